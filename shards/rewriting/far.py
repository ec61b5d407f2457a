"""A curated set in an object store: what says that it is begun, which shards are done, and how it is finished.

No object is renamed or changed there. `unfinished.json` is put where nothing is, and names the plan; any number of
processes may then write its shards, as the bytes are the same whoever writes them. A shard that is done has a record,
by which a later attempt leaves it as it is. The marker comes last, and then the records go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from shards.errors import NoSuchObject, ShardError
from shards.indexing.scan import Shard
from shards.io.folders import OWN_FOLDER
from shards.io.json_files import json_bytes, parse_json
from shards.io.mapped import read_whole
from shards.io.shard_set import locate
from shards.io.storage.clients import is_object
from shards.io.storage.objects import delete, head, list_objects, put, put_if_absent, read_all
from shards.io.storage.uploads import send_file
from shards.rewriting import marker
from shards.rewriting.copy import PLACES, CopyTask, WrittenShard
from shards.rewriting.marker import FORMAT_VERSION, IN_PROGRESS, MARKER
from shards.rewriting.needed import SourceSlice

#: Where the records of shards that are done lie.
RECORDS = f"{OWN_FOLDER}/written/"
#: Bytes of a marker, or of a record, at most.
_MAX_BYTES = 1 << 28
_KEY = b"curate.written"


def read_marker(out: str) -> dict[str, Any] | None:
    """The marker of a finished set; None where there is none. Raises as `marker.read_marker`."""
    try:
        data = read_all(out + MARKER, _MAX_BYTES)
    except NoSuchObject:
        return None
    with TemporaryDirectory() as folder:
        (Path(folder) / MARKER).write_bytes(data)
        return marker.read_marker(Path(folder))


@contextmanager
def fetched(out: str) -> Iterator[Path]:
    """A temporary folder with the small files of a set, and of its shards the names.

    Raises:
        Unfinished: there is no marker.
        NotShards: a file cannot be read.
    """
    with TemporaryDirectory() as folder:
        for info in list_objects(out):
            path = Path(folder) / info.url.removeprefix(out)
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                if path.suffix != ".tar":
                    read_whole(info, file)
        if not (Path(folder) / MARKER).exists():
            raise marker.unfinished(out)
        yield Path(folder)


def copied_faults(root: str, shards: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each shard without hashes that is not the object that was written, by its size and ETag."""
    for shard in shards:
        name = shard["name"]
        info = head(locate(root, name)) if is_object(root) else None
        if info is None:
            why = "is missing" if is_object(root) else "has no checksum, as a server copied it"
            yield f"{name}: {why}; verify it where it was written"
        elif (info.size, info.etag) != (shard["bytes"], shard["etag"]):
            yield f"{name}: changed since it was written (expected ETag {shard['etag']}, found {info.etag})"


def refuse_unfinished(out: str) -> None:
    """Raise `Unfinished` where a rewrite was begun and not finished."""
    if head(out + IN_PROGRESS) is not None and head(out + MARKER) is None:
        raise marker.unfinished(out)


def begin(out: str, plan: str, names: set[str]) -> frozenset[str]:
    """Say that the shards of a plan are written here; the names of those that an earlier attempt has written.

    What another plan left unfinished here is deleted.

    Args:
        names: of the shards to come.

    Raises:
        Misuse: something else is there.
    """
    there = {info.url.removeprefix(out) for info in list_objects(out)}
    marker.refuse_foreign(out, {name for name in there if not name.startswith(f"{OWN_FOLDER}/")})
    claimed = _claimed(plan)
    if IN_PROGRESS not in there and put_if_absent(out + IN_PROGRESS, json_bytes(claimed)):
        return frozenset()
    if _said(out + IN_PROGRESS) != claimed:
        delete(out + name for name in sorted(there - {IN_PROGRESS}))
        put(out + IN_PROGRESS, json_bytes(claimed))
        return frozenset()
    done = {name.removeprefix(RECORDS).removesuffix(".arrow") for name in there if name.startswith(RECORDS)}
    return frozenset(done & there & names)


def refuse_another(out: str, plan: str) -> None:
    """Raise `ShardError` where a rewrite of another plan has begun since: what both write would be of neither."""
    if _said(out + IN_PROGRESS) == _claimed(plan):
        return
    finished = read_marker(out)  # by another process with the same plan
    if finished is None or finished["plan"] != plan:
        raise ShardError("another rewrite has begun here since", shard=out, todo="choose another --out for one of them")


def refuse_lost(out: str, shards: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ShardError` where a finished set has since lost a shard or part of one; `verify` checks its bytes.

    Args:
        shards: as its marker has them.
    """
    there = {info.url.removeprefix(out): info.size for info in list_objects(out)}
    for shard in shards:
        found = there.get(shard["name"], "no object")
        if found != shard["bytes"]:
            raise marker.damaged(out + shard["name"], shard["bytes"], found)


def _refuse_replaced(out: str, written: Mapping[str, WrittenShard]) -> None:
    """Raise `ShardError` unless all shards are there as they were written."""
    there = {info.url.removeprefix(out): info for info in list_objects(out)}
    for name, one in written.items():
        info = there.get(name)
        if info is None or (info.size, info.etag) != (one.shard.size, one.etag):
            todo = "run the same command again, and nothing else that writes here"
            raise ShardError("was replaced since it was written", shard=out + name, todo=todo)


def _claimed(plan: str) -> dict[str, Any]:
    return {"version": FORMAT_VERSION, "plan": plan}


def _said(url: str) -> Any:
    try:
        return parse_json(read_all(url, _MAX_BYTES))
    except (NoSuchObject, ValueError):
        return None


def finish(out: str, folder: Path, plan: str, written: Mapping[str, WrittenShard]) -> None:
    """Put the files of a set beside its shards, the marker last, and delete what was there for the time until then.

    Args:
        folder: has the files.
        written: the shards, by name.

    Raises:
        ShardError: another rewrite has begun or finished here, or has replaced a shard.
    """
    refuse_another(out, plan)
    for path in sorted(folder.iterdir()):
        if path.name != MARKER:
            send_file(path, out + path.name)
    _refuse_replaced(out, written)
    refuse_another(out, plan)
    if not put_if_absent(out + MARKER, (folder / MARKER).read_bytes()):
        raise ShardError("another rewrite has finished here", shard=out, todo="choose another --out")
    forget_beginning(out)


def forget_beginning(out: str) -> None:
    """Delete what a finished set does not need."""
    records = [info.url for info in list_objects(out + RECORDS)]
    delete([*records, out + IN_PROGRESS])


@dataclass(frozen=True)
class FarCopyTask:
    """`copy.CopyTask` in an object store, which passes over the shards that are done and notes what it has done.

    Args:
        copy: writes the shards.
        plan: of the rewrite.
        done: names of shards that are written.
    """

    copy: CopyTask
    plan: str
    done: frozenset[str]

    def __call__(self, item: tuple[int, tuple[SourceSlice, ...]]) -> tuple[WrittenShard, pa.RecordBatch]:
        """As `copy.CopyTask`."""
        name = self.copy.name_of(item)
        found = _read_record(self.copy.out, name) if name in self.done else None
        if found is not None:
            return found
        refuse_another(self.copy.out, self.plan)
        written, places = self.copy(item)
        info = head(self.copy.out + name)
        if info is None or info.size != written.shard.size:
            found_bytes = "no object" if info is None else f"{info.size} bytes"
            raise ShardError("was not written as it should be", shard=name, found=found_bytes, todo="rewrite again")
        written = replace(written, etag=info.etag)
        put(_record_of(self.copy.out, name), _record_bytes(written, places))
        return written, places


def _record_of(out: str, name: str) -> str:
    return f"{out}{RECORDS}{name}.arrow"


def _record_bytes(written: WrittenShard, places: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    schema = places.schema.with_metadata({_KEY: json.dumps(asdict(written)).encode()})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(places.replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue())


def _read_record(out: str, name: str) -> tuple[WrittenShard, pa.RecordBatch] | None:
    """What a record says of a shard that is still as it was; None where it does not hold."""
    try:
        with pa.ipc.open_stream(read_all(_record_of(out, name), _MAX_BYTES)) as reader:
            places = reader.read_all().combine_chunks().to_batches()[0]
        fields = json.loads(places.schema.metadata[_KEY])
        written = WrittenShard(**{**fields, "shard": Shard(**fields["shard"])})
    except (NoSuchObject, pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    info = head(out + name)
    same = info is not None and (info.size, info.etag) == (written.shard.size, written.etag)
    return (written, places.replace_schema_metadata(None).cast(PLACES)) if same else None
