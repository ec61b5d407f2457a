"""The exceptions of both packages. The text of each is one line: where, what is wrong, expected, found, what to do.

`Error` is the root, here and in `curate`; its `exit_code` is that of the command line.
"""

from __future__ import annotations

import re

_SCHEME = r"\b[A-Za-z][A-Za-z0-9+.-]*://"
_USER = re.compile(rf"({_SCHEME})[^/\s@\"']*@")
_QUERY = re.compile(rf"({_SCHEME}[^\s?\"']*|\.(?:tar|tgz|gz))\?[^\s\"')<>]*=[^\s\"')<>]*?(?=[:,;]?(?:[\s\"')<>]|$))")


def without_secrets(text: str) -> str:
    """A text for people: of a URL or shard in it neither user nor query, where a password or a signature may stand.

    >>> without_secrets("https://me:secret@host/0.tar?X-Amz-Signature=abc: no such file")
    'https://host/0.tar: no such file'
    """
    return _QUERY.sub(r"\1", _USER.sub(r"\1", text))


class Error(Exception):
    """The work could not be done.

    The text is one line, ``where: problem (expected ..., found ...); todo``, without the parts that are None. The parts
    stay readable as attributes.
    """

    exit_code = 1

    def __init__(
        self,
        problem: str,
        *,
        shard: str | None = None,
        key: str | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        todo: str | None = None,
    ) -> None:
        self.problem, self.shard, self.key, self.offset = problem, shard, key, offset
        self.expected, self.found, self.todo = expected, found, todo
        super().__init__(without_secrets(self._line()))

    def _line(self) -> str:
        place = [self.shard, self.key, None if self.offset is None else f"byte {self.offset}"]
        where = ", ".join(part for part in place if part is not None)
        line = f"{where}: {self.problem}" if where else self.problem
        against = {"expected": self.expected, "found": self.found}
        details = ", ".join(f"{word} {value}" for word, value in against.items() if value is not None)
        if details:
            line += f" ({details})"
        return f"{line}; {self.todo}" if self.todo else line


class ShardError(Error):
    """Something is wrong with a shard, an index, a manifest or an output folder."""


class NotShards(ShardError):
    """A file is no tar, a URL or path cannot be opened, or a folder holds no shard."""


class NoSuchObject(NotShards):
    """Nothing lies under a URL."""


class StoreFailed(NotShards):
    """An object store or a server refuses, breaks off, or is out of reach, which says nothing of what lies there."""


class ShardsChanged(ShardError):
    """A shard differs from what its index recorded: it is gone, shorter, or has other headers."""


class RootDiffers(ShardError):
    """An index belongs to shards in another folder or under another URL."""


class Unfinished(ShardError):
    """A folder lacks the marker that is written last, or a file is truncated, empty or damaged.

    Every file is written atomically here, so a truncated one was damaged afterwards.
    """


class UnknownFormat(ShardError):
    """A file that this package writes, in a format or version that this release does not read."""


class NoSpace(ShardError):
    """The disk has less room than is needed."""


class Busy(ShardError):
    """Another process holds the lock of the folder or file."""


class Misuse(Error):
    """The call contradicts itself: output inside input, an option out of range, two options that exclude each other."""

    exit_code = 2
