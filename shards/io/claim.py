"""A claim on a folder of an object store: an object in it that says who is writing there.

No store has locks, but all of them can refuse to write an object that is there, or that has changed. Whoever holds a
claim renews it every minute; one that was not renewed for ten has lost its owner, and may be taken over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shards.errors import Busy, NoSuchObject, ShardError
from shards.io.json_files import json_bytes, parse_json
from shards.io.storage.objects import delete, head, put_if_absent, put_if_same, read_object

NAME = ".curate-claim.json"
#: Seconds between two renewals, and after which a claim that was not renewed is nobody's.
RENEW_S, STALE_S = 60.0, 600.0
FORMAT, VERSION = "claim", 1
_MAX_BYTES = 1 << 20


@dataclass
class Claim:
    """A claim that is held.

    Args:
        url: of the folder.
        owner: a word that nobody else has.
        etag: of the claim as it was last written; None once it is known to be another's.
        renewed: when that was, by `_clock`.
        went_on: the owner had it before.
    """

    url: str
    owner: str
    etag: str | None
    renewed: float
    went_on: bool
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self) -> None:
        """Say that the owner still lives.

        Raises:
            Busy: another has taken it over.
            ShardError: the store does not answer.
        """
        with self._lock:
            if self.etag is not None:
                self.etag = _renewed(self.url, self.owner, self.etag)
            if self.etag is None:
                raise Busy("another process has taken over", shard=self.url, todo="let it finish, then run this again")
            self.renewed = _clock()

    def check(self) -> None:
        """As `renew`, where that is due; a machine that slept finds out here what became of its claim."""
        if self.etag is None or _clock() - self.renewed > 2 * RENEW_S:
            self.renew()


def take(url: str, owner: str) -> Claim:
    """Claim a folder: one that nobody claims, that ``owner`` itself claimed before, or whose claim is stale.

    Raises:
        Busy: another holds it; the line says for how long at most.
        ShardError: the store does not answer.
    """
    new = put_if_absent(_object(url), _text(owner))
    etag, other, age = _read(url)
    if new and other == owner:
        return Claim(url, owner, etag, _clock(), went_on=False)
    if other != owner and age < STALE_S:
        raise Busy(
            f"another process is writing this, and was heard of {age:.0f} s ago",
            shard=url,
            todo=f"wait for it; where it is dead, the same command works in {STALE_S - age:.0f} s",
        )
    taken = put_if_same(_object(url), _text(owner), etag)
    if taken is None:
        raise Busy("another process has just taken this over", shard=url, todo="wait for it")
    return Claim(url, owner, taken, _clock(), went_on=other == owner)


def is_held(url: str, owner: str) -> bool:
    """Whether an owner has a claim on a folder.

    Raises:
        ShardError: the store does not answer.
    """
    return head(_object(url)) is not None and _read(url)[1] == owner


def is_fresh(url: str) -> bool:
    """Whether somebody has claimed a folder and was heard of since.

    Raises:
        ShardError: the store does not answer.
    """
    try:
        return _read(url)[2] < STALE_S
    except NoSuchObject:
        return False


def release(claim: Claim) -> None:
    """Give a claim back.

    Raises:
        Busy, ShardError: as `Claim.renew`; it may be another's.
    """
    claim.renew()
    delete([_object(claim.url)])


@contextmanager
def renewing(claim: Claim) -> Iterator[None]:
    """Renew a claim every minute for the block, in a thread; a failure shows when the claim is next checked."""
    over = threading.Event()
    thread = threading.Thread(target=_renew_until, args=(claim, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)  # it may hang on a lost connection


def _renew_until(claim: Claim, over: threading.Event) -> None:
    while not over.wait(RENEW_S):
        try:
            claim.renew()
        except ShardError:  # passes, or `check` meets it
            continue


def _renewed(url: str, owner: str, etag: str) -> str | None:
    """The claim's new ETag; None where it is another's. Where it has changed and is ours, an answer was lost."""
    done = put_if_same(_object(url), _text(owner), etag)
    if done is not None:
        return done
    if not is_held(url, owner):
        return None
    etag, _, _ = _read(url)
    return put_if_same(_object(url), _text(owner), etag)


def _read(url: str) -> tuple[str, str, float]:
    """ETag and owner of the claim that is there, and the seconds since it was renewed."""
    try:
        found, data = read_object(_object(url), _MAX_BYTES)
    except NoSuchObject as error:
        raise NoSuchObject("a claim came and went", shard=url, todo="run the same command again") from error
    try:
        said = parse_json(data)
        return found.etag or "", str(said["owner"]), max(0.0, time.time() - float(said["renewed"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Busy("a claim that cannot be read", shard=_object(url), todo="remove it if it is nobody's") from error


def _clock() -> float:
    """Seconds that have passed, those in which the machine slept included, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _object(url: str) -> str:
    return f"{url}/{NAME}"


def _text(owner: str) -> bytes:
    return json_bytes({"format": FORMAT, "version": VERSION, "owner": owner, "renewed": time.time()})
