"""Finds and removes what a kill has left in an object store: uploads without an end, and sets without a marker."""

from __future__ import annotations

from dataclasses import dataclass

from shards.io import claim
from shards.io.storage.objects import delete, list_objects
from shards.io.storage.uploads import Unended, abort, unended_uploads
from shards.rewriting.far import RECORDS
from shards.rewriting.marker import IN_PROGRESS, MARKER, is_own_file


@dataclass(frozen=True)
class Leftovers:
    """What was left below a URL.

    Args:
        uploads: begun, and neither completed nor aborted: they are billed, and no listing of objects shows them.
        objects: of rewrites that were begun and not finished, and what finished ones no longer need.
    """

    uploads: tuple[Unended, ...]
    objects: tuple[str, ...]


def leftovers(url: str) -> Leftovers:
    """What was left below a URL; nothing in a folder that somebody has claimed and is writing.

    A rewrite claims nothing: of one that is at work right now it is all that it has written.

    Raises:
        NotShards: it cannot be listed.
    """
    there = [info.url for info in list_objects(url)]
    claims = (one.removesuffix(f"/{claim.NAME}") for one in there if one.endswith(f"/{claim.NAME}"))
    at_work = tuple(f"{folder}/" for folder in claims if claim.is_fresh(folder))
    finished = {one.removesuffix(MARKER) for one in there if one.endswith(f"/{MARKER}")}
    begun = {one.removesuffix(IN_PROGRESS) for one in there if one.endswith(f"/{IN_PROGRESS}")}
    found = [one for one in there if _is_left(one, begun, finished) and not one.startswith(at_work)]
    return Leftovers(tuple(one for one in unended_uploads(url) if not one.url.startswith(at_work)), tuple(found))


def _is_left(one: str, begun: set[str], finished: set[str]) -> bool:
    folder, _, name = one.rpartition("/")
    folder += "/"
    if folder.endswith(f"/{RECORDS}"):
        return folder.removesuffix(RECORDS) in begun | finished
    if folder in finished:
        return name == IN_PROGRESS
    return folder in begun and is_own_file(name)


def remove(left: Leftovers) -> None:
    """Remove what was left; a set's shards before what says that they were begun.

    Raises:
        NotShards: an object cannot be deleted, or an upload not be aborted.
    """
    for one in left.uploads:
        abort(one)
    last = [url for url in left.objects if url.endswith(f"/{IN_PROGRESS}")]
    delete(sorted(set(left.objects) - set(last)))
    delete(last)
