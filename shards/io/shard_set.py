"""Resolves what a user named (folder, tar, brace pattern, list file, URL) to an ordered list of shards.

No tar is opened; `shards.io.remote` lists and reads URLs, `shards.io.patterns` expands patterns.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from urllib.parse import unquote

from shards.errors import Misuse, NotShards
from shards.io import patterns, remote
from shards.io.folders import PassedOver, walk_folder
from shards.io.patterns import MAX_SHARDS
from shards.io.regular_files import open_regular
from shards.io.storage.clients import is_object
from shards.io.storage.objects import head
from shards.member_names import IMAGE_SUFFIXES, is_utf8, storable

SUFFIXES = (".tar", ".tgz", ".tar.gz")
#: Bytes of a list: room for a million long names.
MAX_LIST_BYTES = 1 << 28
#: Schemes that a list from the network may name: never a local file nor a command.
REMOTE_SCHEMES = ("http", "https", "s3", "gs", "gcs", "az", "abfs", "hf")
#: Numbers with more holes than this for each one present (dates, hashes) do not count shards.
MAX_HOLES = 10
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")
# Files that this package writes beside shards, and so does not report as skipped.
_COMPANION_FILES = re.compile(
    r"index\.parquet|index\.report\.json|domains\.parquet|manifest\.parquet|curated\.json|sizes\.json|__len__"
    r"|shards\.json|README\.md|uids\.npy|.*\.idx",
    re.S,
)
# Names of shards, those in compressions that are not read included.
_SHARD_LIKE = re.compile(r".*\.(tar(\.(gz|zst|zstd|bz2|xz|lzma|lz|lz4|z|br))?|tgz|tbz2?|txz|tzst|tlz)", re.I | re.S)


@dataclass(frozen=True)
class ShardSet:
    """An ordered list of shards.

    Args:
        root: the deepest folder, or URL prefix ending in ``/``, that all shards share.
        paths: each shard relative to ``root``, in reading order.
        missing: shards that a pattern, a list or the numbering of a folder names and that are not there.
        passed_over: what else a folder holds; nothing where none was named.
    """

    root: str
    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()
    passed_over: PassedOver = field(default_factory=PassedOver)


def resolve(spec: str | Path, *, allow_pipe: bool = False) -> ShardSet:
    """The shards that a folder, a tar, a brace pattern, a text file with one shard a line, or a URL of these names.

    A folder is walked recursively and sorted by relative path, hidden files left out. Anything else keeps the order in
    which it is written. A path that exists literally wins over a pattern. Lines of a list are relative to its folder;
    empty ones, and those that begin with ``#`` and name no file, are passed over.

    All locations that are ever opened come from here, or are paths below a root that does.

    Args:
        spec: what a person named, or a local list.
        allow_pipe: whether that person lets ``pipe:COMMAND`` run. A list that is not local never names one.

    Raises:
        NotShards: nothing is there.
        Misuse: a pattern is malformed or endless, a shard is named twice, shards of several schemes are mixed, or a
            command is named and not allowed.
    """
    text = os.fspath(spec)
    if not text.strip():
        raise Misuse("no shards are named", expected="a folder, a tar, a pattern, a list or a URL", found="nothing")
    text = _without_scheme(text)
    if remote.is_url(text):
        unread: list[str] = []
        missing: list[str] = []
        names = _bounded(_expand_url(as_folder(text), allow_pipe, unread, missing), text)
        if not names:
            raise _no_shard(text, found=f"none; {len(unread)} that are not read" if unread else "none")
        shard_set = _shard_set(names, missing)
        return replace(shard_set, passed_over=PassedOver(unread=tuple(unread)))
    path = Path(text)
    if path.is_dir():
        return _folder(path)
    listed = path.exists() and _is_list(path)
    names = _bounded(_names_in_list(path) if listed else _expand(text), text)
    if listed:
        _refuse_other_text(names, text)
    _refuse_pipes(names, allow_pipe)
    there = [name for name in names if remote.is_url(name) or os.path.exists(name)]
    if not there:
        raise NotShards(
            "no such shard",
            shard=text,
            todo="name a folder, a tar, a pattern such as '{000..099}.tar', a list of shards or a URL",
        )
    present = set(there)
    return _shard_set(there, [name for name in names if name not in present])


def as_folder(spec: str) -> str:
    """A URL with the slash of a folder, where it may only be one: nothing is at its own name, which is no shard's."""
    named = is_shard(spec) or is_unread(spec) or spec.endswith(("/", ".txt")) or "{" in spec
    return spec if named or not is_object(spec) or head(spec) is not None else f"{spec}/"


def locate(root: str, path: str) -> str:
    """The path or URL under which a shard is opened."""
    return root + path if remote.is_url(root) else os.path.join(root, path)


def is_shard(name: str) -> bool:
    """Whether a file is a shard by its name: ``.tar``, ``.tgz`` or ``.tar.gz`` in any case."""
    return name.lower().endswith(SUFFIXES)


def is_unread(name: str) -> bool:
    """Whether a file is a shard by its name, in a compression that is not read (``.tar.zst``)."""
    return bool(_SHARD_LIKE.fullmatch(name)) and not is_shard(name)


def _expand(text: str, folder: Path | None = None) -> Iterator[str]:
    """The names of a pattern, under ``folder`` where they are relative; a path that exists is no pattern."""
    place = str(folder / text) if folder is not None and not remote.is_url(text) else text
    if "{" not in text or (not remote.is_url(place) and os.path.exists(place)):
        yield place
        return
    yield from patterns.expand(place)


def _bounded(names: Iterator[str], spec: str) -> list[str]:
    """All names of a spec, whose many lines and patterns may each be small."""
    found = list(islice(names, MAX_SHARDS + 1))
    if len(found) > MAX_SHARDS:
        raise Misuse("names too many shards", shard=spec, expected=f"at most {MAX_SHARDS}")
    return found


def _refuse_pipes(names: list[str], allowed: bool) -> None:
    named = next((name for name in names if remote.is_pipe(name)), None)
    if named is not None and not allowed:
        raise Misuse("runs a command", shard=named, todo="pass --allow-pipe if that is what you want")


def _refuse_other_text(names: list[str], text: str) -> None:
    """A page of prose is no list: what a list names is there, or has the name of a shard, or of a server."""
    other = next((name for name in names if not (_named_like_shard(name) or os.path.exists(name))), None)
    if other is not None:
        found = ascii(os.path.basename(other))
        raise NotShards(
            "neither a tar nor a list of shards",
            shard=text,
            expected="a shard a line",
            found=f"{found:.60}",
            todo="name the folder or the shards themselves",
        )


def _named_like_shard(name: str) -> bool:
    return remote.is_url(name) or bool(_SHARD_LIKE.fullmatch(os.path.basename(name)))


def _without_scheme(text: str) -> str:
    """The path in a ``file:`` URL; anything else as it is."""
    if not text.startswith("file:"):
        return text
    return unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", text))


def _expand_url(text: str, allow_pipe: bool, unread: list[str], missing: list[str]) -> Iterator[str]:
    """The shards of a URL; those of a folder that are not read go to ``unread``, its `_holes` to ``missing``."""
    for url in _expand(text):
        if remote.is_pipe(url):
            _refuse_pipes([url], allow_pipe)
            yield url
            continue
        remote.check_url(url)
        if url.endswith("/"):
            shown = [name for name in remote.list_folder(url) if "/." not in f"/{name.removeprefix(url)}"]
            found = [name for name in shown if is_shard(name)]
            unread += [name for name in shown if is_unread(name)]
            missing += _holes(found)
            yield from found
        elif url.partition("?")[0].endswith(".txt"):
            yield from _names_in_remote_list(url)
        else:
            yield url


def _names_in_list(path: Path) -> Iterator[str]:
    with open_regular(path) as file:
        data = file.read(MAX_LIST_BYTES + 1)
    if len(data) > MAX_LIST_BYTES:
        raise Misuse("too long for a list of shards", shard=str(path), expected=f"at most {MAX_LIST_BYTES} bytes")
    for line in _lines(data, str(path), "surrogateescape"):
        if not line.startswith("#") or (path.parent / line).exists():
            yield from _expand(_without_scheme(line), path.parent)


def _names_in_remote_list(url: str) -> Iterator[str]:
    """Shards below the folder of a list, or on another server; who wrote it says nothing of this machine."""
    folder, scheme = url.rpartition("/")[0] + "/", url.partition(":")[0]
    for line in _lines(remote.read_url(url, MAX_LIST_BYTES), url, "strict"):
        if line.startswith("#"):
            continue
        named, _, rest = line.partition(":")
        remote_too = remote.is_url(line) and named.lower() in (scheme, *REMOTE_SCHEMES) and "::" not in rest
        if (remote.is_url(line) and not remote_too) or "::" in named:
            expected = f"relative paths, or URLs of {', '.join(dict.fromkeys((scheme, *REMOTE_SCHEMES)))}"
            raise Misuse("a list from elsewhere names this", shard=url, expected=expected, found=ascii(line))
        for name in _expand(line if remote_too else folder + line):
            remote.check_url(name)
            yield name


def _lines(data: bytes, place: str, errors: str) -> list[str]:
    """The lines of a list that are not empty: UTF-8, or UTF-16 with a byte order mark."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig", "strict" if wide else errors)
    except UnicodeDecodeError as error:
        raise NotShards(f"a list that is no text ({error})", shard=place, todo="write it in UTF-8") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_list(path: Path) -> bool:
    """Whether a file is a list of shards: not called a tar, and its beginning is text."""
    if is_shard(path.name) or not path.is_file():
        return False
    with open_regular(path) as file:
        beginning = file.read(4096)
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    return bool(beginning) and b"\0" not in beginning and not beginning.startswith(b"\x1f\x8b")


def _folder(folder: Path) -> ShardSet:
    known, passed_over = walk_folder(
        folder, lambda name: bool(_SHARD_LIKE.fullmatch(name) or _COMPANION_FILES.fullmatch(name))
    )
    shards = [path for path in known if not _COMPANION_FILES.fullmatch(os.path.basename(path))]
    found = [path for path in shards if is_shard(path)]
    passed_over = replace(passed_over, unread=tuple(storable(path) for path in shards if not is_shard(path)))
    if not found:
        named = passed_over.left_out()
        pictures = sum(count for suffix, count in passed_over.others.items() if suffix[1:] in IMAGE_SUFFIXES)
        quoted = quote(str(folder))
        found_instead = (f"none; {pictures:,} image files" if pictures else "none") + (
            f"; passed over {named}" if named else ""
        )
        todo = f"make shards of them first: curate pack imagefolder {quoted} --out STORE" if pictures else None
        raise _no_shard(str(folder), found_instead, todo)
    place = str(folder)
    shard_set = _shard_set(
        [os.path.join(place, path) for path in found], [os.path.join(place, path) for path in _holes(found)]
    )
    return replace(shard_set, passed_over=passed_over)


def _no_shard(folder: str, found: str, todo: str | None = None) -> NotShards:
    return NotShards("no shard in this folder", shard=folder, expected=" or ".join(SUFFIXES), found=found, todo=todo)


def _holes(paths: list[str]) -> list[str]:
    """The names that a numbering leaves out: 00000.tar and 00002.tar have a hole at 00001.tar."""
    runs: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for path in paths:
        folder, name = os.path.split(path)
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            before, digits, after = numbered.groups()
            runs[os.path.join(folder, before), len(digits), after].add(int(digits))
    holes = []
    for (before, width, after), numbers in sorted(runs.items()):
        n_holes = max(numbers) - min(numbers) + 1 - len(numbers)
        if 0 < n_holes <= MAX_HOLES * len(numbers):
            absent = set(range(min(numbers), max(numbers))) - numbers
            holes += [f"{before}{number:0{width}d}{after}" for number in sorted(absent)]
    return holes


def _folder_of(path: str) -> str:
    """Up to the last slash; nothing where there is none, as in ``pipe:make_shard``."""
    folder, slash, _ = path.partition("?")[0].rpartition("/")
    return folder + slash


def _shard_set(names: list[str], missing: Sequence[str]) -> ShardSet:
    """Names as written -> the root they share and the paths below it."""
    names = [name if remote.is_url(name) else os.path.abspath(name) for name in names]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise Misuse("named twice", shard=twice[0], todo="name every shard once")
    odd = [name for name in names if not is_utf8(name)]
    if odd:
        raise Misuse("its file name is not UTF-8", shard=storable(odd[0]), todo="rename the shard")
    if any(remote.is_url(name) for name in names):
        schemes = {name.partition(":")[0] + ":" if remote.is_url(name) else "local paths" for name in names}
        if len(schemes) > 1:
            raise Misuse(
                "one set of shards from several places", expected="one scheme", found=" and ".join(sorted(schemes))
            )
        scheme = schemes.pop()
        folders = [scheme + _folder_of(name.removeprefix(scheme)) for name in names]
        low, high = min(folders), max(folders)
        n_common = next((place for place, (a, b) in enumerate(zip(low, high)) if a != b), min(len(low), len(high)))
        root = low[: max(low.rfind("/", 0, n_common) + 1, len(scheme))]
        paths, absent = (tuple(name[len(root) :] for name in some) for some in (names, missing))
        return ShardSet(root, paths, absent)
    root = os.path.commonpath([os.path.dirname(name) for name in names])
    paths, absent = (tuple(os.path.relpath(os.path.abspath(name), root) for name in some) for some in (names, missing))
    return ShardSet(root, paths, absent)
