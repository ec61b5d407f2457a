"""Names: which shards a set has, and which key and extension a member's name stands for.

Owns how a folder, a tar, a brace pattern, a list file or a URL of these becomes an ordered list of shards, and how a
member's name is split and judged. Opens no tar; what lies behind a URL is asked of `shards.io.remote`.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

import braceexpand

from shards.errors import Misuse, NotShards
from shards.io import remote
from shards.io.folders import PassedOver, walk
from shards.member_names import is_utf8, storable

SUFFIXES = (".tar", ".tgz", ".tar.gz")
#: More names than any store has shards: a pattern that makes more is a slip.
MOST_SHARDS = 1_000_000
#: Numbers with more holes than this for each one present (dates, hashes) do not count shards.
MOST_HOLES = 10
_RANGE = re.compile(r"\{(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")
# What `index`, `rewrite`, `export` and the packers put beside shards: no loss, and no news.
_BESIDE = re.compile(
    r"index\.parquet|index\.report\.json|domains\.parquet|manifest\.parquet|curated\.json|sizes\.json|__len__"
    r"|shards\.json|uids\.npy|.*\.idx",
    re.S,
)
# What somebody calls a shard, those in forms that are not read included.
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


def resolve(spec: str | Path) -> ShardSet:
    """The shards that a folder, a tar, a brace pattern, a text file with one shard a line, or a URL of these names.

    A folder is walked recursively and sorted by relative path, hidden files left out. Anything else keeps the order in
    which it is written. A path that exists literally wins over a pattern. Lines of a list are relative to its folder.

    Raises:
        NotShards: nothing is there.
        Misuse: a pattern is malformed or endless, a shard is named twice, or shards of several schemes are mixed.
    """
    text = os.fspath(spec)
    if not text.strip():
        raise Misuse("no shards are named", expected="a folder, a tar, a pattern, a list or a URL", found="nothing")
    if text.startswith("file:"):
        text = unquote(re.sub(r"^file:(//(localhost)?(?=/))?", "", text))
    if remote.is_url(text):
        unread: list[str] = []
        shard_set = _shard_set(list(_expand_url(text, unread)), ())
        return replace(shard_set, passed_over=PassedOver(unread=tuple(unread)))
    path = Path(text)
    if path.is_dir():
        return _folder(path)
    names = list(_expand(text))
    if path.exists() and _is_list(path):
        names = [
            name for line in _lines(path.read_text("utf-8", "surrogateescape")) for name in _expand(line, path.parent)
        ]
    there = [name for name in names if remote.is_url(name) or os.path.exists(name)]
    if not there:
        raise NotShards(
            "no such shard",
            shard=text,
            todo="name a folder, a tar, a pattern such as '{000..099}.tar', a list of shards or a URL",
        )
    present = set(there)
    return _shard_set(there, [name for name in names if name not in present])


def locate(root: str, path: str) -> str:
    """The path or URL under which a shard is opened."""
    return root + path if remote.is_url(root) else os.path.join(root, path)


def is_shard(name: str) -> bool:
    """Whether a file of a folder is one of its shards, by its name."""
    return name.lower().endswith(SUFFIXES)


def is_unread(name: str) -> bool:
    """Whether a file of a folder is a unread shard here, by its name."""
    return bool(_SHARD_LIKE.fullmatch(name)) and not is_shard(name)


def _expand(text: str, folder: Path | None = None) -> Iterator[str]:
    """The names of a pattern, under ``folder`` where they are relative; a path that exists is no pattern."""
    place = str(folder / text) if folder is not None and not remote.is_url(text) else text
    if "{" not in text or (not remote.is_url(place) and os.path.exists(place)):
        yield place
        return
    # Counted before it is expanded, which would take minutes and all memory for a slip such as {0..999999999}.
    ranges = _RANGE.findall(place)
    if math.prod(abs(int(last) - int(first)) + 1 for first, last in ranges) > MOST_SHARDS:
        raise Misuse("the pattern names too many shards", shard=text, expected=f"at most {MOST_SHARDS}")
    try:
        yield from braceexpand.braceexpand(place)
    except ValueError as error:
        raise Misuse(f"malformed pattern ({error})", shard=text, todo="balance its braces") from error


def _expand_url(text: str, unread: list[str]) -> Iterator[str]:
    """The shards of a URL; those of a folder that are not read go to ``unread``."""
    for url in _expand(text):
        if url.endswith("/"):
            listed = remote.list_folder(url)
            unread += [name for name in listed if is_unread(name)]
            yield from (name for name in listed if is_shard(name))
        elif url.partition("?")[0].endswith(".txt"):
            folder = url.rpartition("/")[0] + "/"
            for line in _lines(remote.read(url).decode("utf-8")):
                yield from _expand(line if remote.is_url(line) else folder + line)
        else:
            yield url


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _is_list(path: Path) -> bool:
    """Whether a file is a list of shards: not called a tar, and its beginning is text."""
    if is_shard(path.name):
        return False
    with open(path, "rb") as file:
        beginning = file.read(4096)
    return bool(beginning) and b"\0" not in beginning and not beginning.startswith(b"\x1f\x8b")


def _folder(folder: Path) -> ShardSet:
    known, passed_over = walk(folder, lambda name: bool(_SHARD_LIKE.fullmatch(name) or _BESIDE.fullmatch(name)))
    shards = [path for path in known if not _BESIDE.fullmatch(os.path.basename(path))]
    found = [path for path in shards if is_shard(path)]
    passed_over = replace(passed_over, unread=tuple(storable(path) for path in shards if not is_shard(path)))
    if not found:
        named = passed_over.left_out()
        raise NotShards(
            "no shard in this folder",
            shard=str(folder),
            expected=" or ".join(SUFFIXES),
            found=f"none; passed over {named}" if named else "none",
        )
    place = str(folder)
    shard_set = _shard_set(
        [os.path.join(place, path) for path in found], [os.path.join(place, path) for path in _holes(found)]
    )
    return replace(shard_set, passed_over=passed_over)


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
        if 0 < n_holes <= MOST_HOLES * len(numbers):
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
        return ShardSet(root, tuple(name[len(root) :] for name in names), tuple(missing))
    root = os.path.commonpath([os.path.dirname(name) for name in names])
    paths, absent = (tuple(os.path.relpath(os.path.abspath(name), root) for name in some) for some in (names, missing))
    return ShardSet(root, paths, absent)
