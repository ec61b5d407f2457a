"""Places that people name, local or by a URL, as local paths: `local` to read, `filled` and `written` to write.

A local path passes through all three. A folder that is written has a claim (`shards.io.claim`). While it is ours, the
local copy counts: after a kill or a lost connection the same call goes on with it, and sends what is missing. Otherwise
the objects count.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from shards.errors import Busy, Error, Misuse, NoSuchObject
from shards.io import claim, remote
from shards.io.atomic import followed
from shards.io.mirror.copy import Copy, copy_of, opened, url_of
from shards.io.mirror.fetch import fetch
from shards.io.mirror.push import Push
from shards.io.parallel import is_local
from shards.io.storage.clients import is_object

PathLike: TypeAlias = str | os.PathLike[str]

#: Homes of the copies that this process is filling: a path in one of them is a local path.
_filling: set[Path] = set()


def local(place: PathLike, *, without: tuple[str, ...] = ()) -> Path:
    """A path to read from: of a URL a copy of its file or folder, as it is now; a local path as it is.

    Args:
        without: patterns of files of which only the size matters; they come as holes.

    Raises:
        ShardError: nothing is there, or it cannot be read.
    """
    url = _url(place)
    if url is None:
        return Path(place)
    with _opened_to_read(url) as copy:
        if copy is not None and not (copy.ahead and claim.is_held(url, copy.owner or "")):
            fetch(copy, without)
    path = copy_of(url).path
    if not path.exists():
        raise NoSuchObject("nothing is there", shard=url, todo="look at its name")
    return path


@contextmanager
def filled(place: PathLike, *, without: tuple[str, ...] = ()) -> Iterator[Path]:
    """A folder to write into, that goes to its URL as it grows; a local one as it is.

    Args:
        without: patterns of files that are not fetched, and not kept here once they are sent: holes stay.

    Raises:
        Busy: another process writes it.
        Misuse: it is behind a URL, and tasks are run by another engine than this machine's processes.
        ShardError: it cannot be read or written; what the block has written stays here, and the same call goes on.
    """
    url = _url(place)
    if url is None:
        yield Path(place)
        return
    if not is_local():
        todo = "name a folder that all of them see, or leave --engine out"
        raise Misuse("is behind a URL, where other machines' tasks do not write", shard=url, todo=todo)
    with _opened_to_write(url) as copy:
        copy.ahead = copy.ahead and claim.is_held(url, copy.owner or "")
        copy.owner = copy.owner or secrets.token_hex(16)
        copy.save()  # so that the claim is known for ours, and the copy for what it is, even if this is killed now
        held = claim.take(url, copy.owner)
        with claim.renewing(held):
            if not (copy.ahead and held.went_on):
                _fetch_all(copy, held, without)
            with _given_back(Push(copy, held), without) as push, followed(push):
                push(copy.home)  # what an earlier call had no time for
                yield copy.path


@contextmanager
def written(place: PathLike) -> Iterator[Path]:
    """A file to write, that goes to its URL when the block ends without an exception; a local one as it is.

    Raises:
        Busy: another process writes it.
        ShardError: it cannot be read or written.
    """
    url = _url(place)
    if url is None:
        yield Path(place)
        return
    with _opened_to_write(url) as copy:
        fetch(copy, ())
        yield copy.path
        Push(copy, None).finish(())


def is_elsewhere(place: PathLike) -> bool:
    """Whether a place is behind a URL, and not on this machine."""
    return _url(place) is not None


def child(place: PathLike, *names: str) -> str:
    """What lies below a place, by its name."""
    text = os.fspath(place)
    return "/".join([text.rstrip("/"), *names]) if remote.is_url(text) else os.path.join(text, *names)


def _url(place: PathLike) -> str | None:
    """The URL of what is not local.

    Raises:
        Misuse: it is one of no object store.
    """
    text = os.fspath(place)
    if is_object(text):
        return text.rstrip("/")
    if remote.is_url(text):
        raise Misuse("no object store's", shard=text, todo="give a local path, or a URL of s3://, gs:// or az://")
    return None if _filling.intersection(Path(os.path.abspath(text)).parents) else url_of(Path(text))


def parent(place: PathLike) -> str:
    """What a place lies in."""
    return os.fspath(place).rstrip("/").rpartition("/")[0]


@contextmanager
def _opened_to_read(url: str) -> Iterator[Copy | None]:
    """The copy of a URL, locked; None where a process of this machine writes it: it is up to date then."""
    with ExitStack() as stack:
        while True:
            try:
                copy = stack.enter_context(opened(url))
                break
            except Busy:
                if copy_of(url).ahead:
                    copy = None
                    break
                time.sleep(0.05)  # somebody fetches it
        yield copy


@contextmanager
def _opened_to_write(url: str) -> Iterator[Copy]:
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(opened(url))
        except Busy as error:
            raise Busy("another process is writing this", shard=url, todo="wait for it, or name another") from error
        _filling.add(copy.home)
        stack.callback(_filling.discard, copy.home)
        yield copy


def _fetch_all(copy: Copy, held: claim.Claim, without: tuple[str, ...]) -> None:
    try:
        fetch(copy, without)
    except BaseException:
        with suppress(Error):
            claim.release(held)
        raise
    copy.ahead = True
    copy.save()


@contextmanager
def _given_back(push: Push, without: tuple[str, ...]) -> Iterator[Push]:
    """Send the rest and give the claim back at the block's end; where the store has failed, the claim stays ours."""
    try:
        yield push
    except BaseException:
        if not push.failed:
            with suppress(Error):
                push.finish(without)
        raise
    push.finish(without)
