"""Makes the objects what a copy is, as the copy grows: what is new is sent in the order in which it was finished.

Only then what is gone is deleted. So the objects are at any moment what a power cut might have left of the folder, and
whatever goes on from that goes on from them.
"""

from __future__ import annotations

from pathlib import Path

from shards.errors import Error
from shards.io import claim
from shards.io.mirror.copy import Copy, Held, files_in, is_left_out
from shards.io.mirror.fetch import hole, listed
from shards.io.storage.objects import ObjectInfo, delete
from shards.io.storage.uploads import send_file


class Push:
    """Callable with a folder that is on the disk for good (`shards.io.atomic.followed`), to send what is new in it.

    Args:
        copy: of which the folder may be a part; of others nothing is sent.
        held: the claim on its URL; None for a single file, which is written whole.
    """

    def __init__(self, copy: Copy, held: claim.Claim | None) -> None:
        self.copy, self.held = copy, held
        #: The store has failed, and is not to be asked again.
        self.failed = False
        self._busy = False

    def __call__(self, place: Path) -> None:
        """Send what is new in or below a folder.

        Raises:
            Busy: the claim is another's by now.
            ShardError: the store does not answer.
        """
        copy = self.copy
        if self._busy or not (place == copy.home or place.is_relative_to(copy.path)):
            return
        self._busy = True  # the record is a file, too
        try:
            if self._send(copy.path if place == copy.home else place):
                copy.save()
        except Error:
            self.failed = True
            raise
        finally:
            self._busy = False

    def _send(self, below: Path) -> bool:
        """Whether anything was new or gone."""
        copy, found = self.copy, files_in(self.copy, below)
        inside = "" if below == copy.path else f"{below.relative_to(copy.path).as_posix()}/"
        new = {name: file for name, file in found.items() if not file.is_same(copy.objects.get(name))}
        gone = [name for name in copy.objects if name.startswith(inside) and name not in found]
        for name in sorted(new, key=lambda name: new[name].mtime_ns):
            send_file(copy.path / name, copy.object(name), self._check)
            copy.objects[name] = new[name]
        if gone:
            self._check()
            _delete(copy, gone)
        return bool(new or gone)

    def _check(self) -> None:
        """Before anything changes there: whether the claim is still ours."""
        if self.held is not None:
            self.held.check()

    def finish(self, without: tuple[str, ...]) -> None:
        """Send the rest, and again what somebody has removed; note the objects as they are now; give the claim back.

        Args:
            without: patterns of files that do not stay: holes stand for them then.

        Raises:
            As a call.
        """
        copy = self.copy
        self(copy.home)
        copy.ahead = False
        copy.save()  # before there are holes: none of them is ever sent
        there = listed(copy.url)
        if lost := [name for name, file in copy.objects.items() if not _is_there(file, there.get(name))]:
            for name in lost:
                send_file(copy.path / name, copy.object(name), self._check)
            there = listed(copy.url)
        for name, file in list(copy.objects.items()):
            info = there.get(name)
            copy.objects[name] = Held(info.etag if info else None, file.size, file.mtime_ns, file.hole)
            if is_left_out(name, without) and not file.hole:
                copy.objects[name] = hole(copy.path / name, copy.objects[name].etag, file.size)
        if self.held is not None:
            claim.release(self.held)
        copy.owner = None
        copy.save()


def _is_there(file: Held, info: ObjectInfo | None) -> bool:
    """Whether an object is there that may be a file; one that a hole stands for can be sent by nobody."""
    return file.hole or (info is not None and info.size == file.size)


def _delete(copy: Copy, gone: list[str]) -> None:
    """Delete objects, in each folder the newest first: that is a marker, if there is one."""
    by_age = sorted(gone, key=lambda name: copy.objects[name].mtime_ns, reverse=True)
    newest = {name.rpartition("/")[0]: name for name in reversed(by_age)}.values()
    for some in (newest, set(gone).difference(newest)):
        delete([copy.object(name) for name in some])
    for name in gone:
        del copy.objects[name]
