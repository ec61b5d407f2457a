"""Names: which shards a set has, and which key and extension a member's name stands for.

Owns how a folder, a tar, a brace pattern, a list file or a URL of these becomes an ordered list of shards, and how a
member's name is split and judged. Opens no tar; what lies behind a URL is asked of `shards.remote`.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import braceexpand

from shards import remote
from shards.errors import Misuse, NotShards

SUFFIXES = (".tar", ".tgz", ".tar.gz")
#: More names than any store has shards: a pattern that makes more is a slip.
MOST_SHARDS = 1_000_000
#: Numbers with more holes than this for each one present (dates, hashes) do not count shards.
MOST_HOLES = 10

# The key ends at the first dot of the base name; a dot in a folder does not end it. A base name that begins with a dot
# lends its key from the folder ("a/.x" is key "a/"), which is what webdataset makes of it.
_SPLIT = re.compile(r"((?:.*/)?[^.]+)\.([^/]*)$")
_META = re.compile(r"__[^/]*__($|/)")
_RANGE = re.compile(r"\{(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})")
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


@dataclass(frozen=True)
class ShardSet:
    """An ordered list of shards.

    Args:
        root: the deepest folder, or URL prefix ending in ``/``, that all shards share.
        paths: each shard relative to ``root``, in reading order.
        missing: shards that a pattern, a list or the numbering of a folder names and that are not there.
    """

    root: str
    paths: tuple[str, ...]
    missing: tuple[str, ...] = ()


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
        return _shard_set(_expand_url(text), ())
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


def split_name(member: str) -> tuple[str, str] | None:
    """Key and lower-cased extension of a member, as webdataset splits them; None where it has no key.

    >>> split_name("train.v1/0001.Left.JPG")
    ('train.v1/0001', 'left.jpg')
    """
    match = _SPLIT.match(member)
    if match is None or _META.match(member):
        return None
    return match[1], match[2].lower()


def is_hidden(member: str) -> bool:
    """Whether a member without a key is one that readers pass over on purpose (``.x``, ``__meta__/x``)."""
    return _META.match(member) is not None or member.rpartition("/")[2].startswith(".")


def is_safe(name: str) -> bool:
    """Whether a key or member name stays inside the folder it would be unpacked to: relative, without ``..``."""
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def storable(name: str) -> str:
    r"""A name as it stands in an index: itself, or, where its bytes are not UTF-8, with ``\xNN`` for those bytes.

    A backslash of such a name is doubled. Takes a name decoded with ``surrogateescape``.

    >>> storable(b"caf\xe9.jpg".decode("utf-8", "surrogateescape"))
    'caf\\xe9.jpg'
    """
    if is_utf8(name):
        return name
    return name.replace("\\", r"\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_utf8(name: str) -> bool:
    """Whether a name decoded with ``surrogateescape`` was UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in name) if not name.isascii() else True


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


def _expand_url(text: str) -> Iterator[str]:
    for url in _expand(text):
        if url.endswith("/"):
            yield from (name for name in remote.list_folder(url) if name.endswith(SUFFIXES))
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
    if path.name.endswith(SUFFIXES):
        return False
    with open(path, "rb") as file:
        beginning = file.read(4096)
    return bool(beginning) and b"\0" not in beginning and not beginning.startswith(b"\x1f\x8b")


def _folder(folder: Path) -> ShardSet:
    found = []
    for place, _, files in os.walk(folder):
        relative = os.path.relpath(place, folder)
        found += [
            os.path.normpath(os.path.join(relative, name))
            for name in files
            if name.endswith(SUFFIXES) and not name.startswith(".")
        ]
    if not found:
        raise NotShards("no shard in this folder", shard=str(folder), expected=" or ".join(SUFFIXES), found="none")
    found.sort()
    place = str(folder)
    return _shard_set(
        [os.path.join(place, path) for path in found], [os.path.join(place, path) for path in _holes(found)]
    )


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


def _shard_set(names: list[str] | Iterator[str], missing: list[str] | tuple[str, ...]) -> ShardSet:
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
    return ShardSet(
        root,
        tuple(os.path.relpath(name, root) for name in names),
        tuple(os.path.relpath(os.path.abspath(name), root) for name in missing),
    )
