"""The one tree of errors: a line that says where, what was found against what was expected, and what to do.

`Error` is its root, here and in `curate`; each has the exit code that it becomes on the command line.
"""

from __future__ import annotations


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
        super().__init__(self._line())

    def _line(self) -> str:
        place = [self.shard, self.key, None if self.offset is None else f"byte {self.offset}"]
        where = ", ".join(part for part in place if part is not None)
        line = f"{where}: {self.problem}" if where else self.problem
        against = {"expected": self.expected, "found": self.found}
        said = ", ".join(f"{word} {value}" for word, value in against.items() if value is not None)
        if said:
            line += f" ({said})"
        return f"{line}; {self.todo}" if self.todo else line


class ShardError(Error):
    """Something is wrong with a shard, an index, a manifest or an output folder."""


class NotShards(ShardError):
    """What was named is no tar, or holds none."""


class ShardsChanged(ShardError):
    """A shard is not the one that was indexed."""


class RootDiffers(ShardError):
    """An index is of shards that lie elsewhere."""


class Unfinished(ShardError):
    """A folder lacks the marker that is written last, or a file is cut, empty or damaged.

    Ours appear whole or not at all: something else happened to them.
    """


class UnknownFormat(ShardError):
    """A file of ours in a format, or a version of it, that this release does not read."""


class NoSpace(ShardError):
    """The disk is too small for what would be written."""


class Busy(ShardError):
    """Another process is writing the folder."""


class Misuse(Error):
    """The request itself cannot be meant: output inside input, an option out of its range, two that exclude another."""

    exit_code = 2
