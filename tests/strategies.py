"""What a store may hold, for hypothesis: keys, samples, tars, shard sizes. One place, so that all tests agree."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass

from hypothesis import strategies as st

#: Letters of names: any Unicode but NUL, the slash, the dot (given apart) and lone surrogates. No line feed:
#: behind one, a dot in a folder ends the key for webdataset and so for us.
LETTERS = st.characters(exclude_characters="\0/.\n", exclude_categories=("Cs",))
WORDS = st.text(LETTERS, min_size=1, max_size=12)
#: A folder may have dots, anywhere but alone.
FOLDERS = st.builds(lambda word, rest: word + rest, WORDS, st.sampled_from(["", ".v1", "..", ".a.b"]))
EXTENSIONS = st.sampled_from(["jpg", "JPG", "png", "left.jpg", "Right.PNG", "txt", "json", "cls", "seg.npy", "", "a b"])
FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
BODIES = st.one_of(st.binary(max_size=40), st.sampled_from([0, 1, 511, 512, 513, 1024]).map(bytes))
#: Bytes of a shard: below one sample, and a few samples.
SHARD_SIZES = st.integers(min_value=1, max_value=40_000)
#: Times of members; those with a fraction make the PAX format write a header of its own for each member.
TIMES = st.sampled_from([0, 1_700_000_000, 1_700_000_000.25])


def is_plain_key(key: str) -> bool:
    """Whether readers take a member of this key for content (``__meta__`` names are passed over)."""
    return not key.startswith("__")


@st.composite
def keys(draw: st.DrawFn) -> str:
    """A key as a store may have it: nested folders with dots, a base name without one, some longer than a header."""
    folders = draw(st.lists(FOLDERS, max_size=3))
    base = draw(st.one_of(WORDS, st.just("n" * 120)))
    return "/".join([*folders, base])


@dataclass(frozen=True)
class Content:
    """One sample before it is written: extensions as stored, no two the same in lower case."""

    key: str
    bodies: dict[str, bytes]


@st.composite
def contents(draw: st.DrawFn, max_size: int = 6) -> list[Content]:
    """Samples with keys of their own, each with one to four members."""
    names = draw(st.lists(keys().filter(is_plain_key), unique=True, max_size=max_size))
    members = st.dictionaries(EXTENSIONS, BODIES, min_size=1, max_size=4)
    distinct = members.filter(lambda bodies: len({extension.lower() for extension in bodies}) == len(bodies))
    return [Content(name, draw(distinct)) for name in names]


def tar_bytes(samples: list[Content], tar_format: int = tarfile.PAX_FORMAT, mtime: float = 0) -> bytes:
    """A healthy tar of these samples, as Python's own writer makes it."""
    members = [(f"{one.key}.{extension}", body) for one in samples for extension, body in one.bodies.items()]
    return tar_of(members, tar_format, mtime)


def tar_of(members: list[tuple[str, bytes]], tar_format: int = tarfile.PAX_FORMAT, mtime: float = 0) -> bytes:
    """A healthy tar of regular files with these names and bodies."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tar_format) as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(body), mtime  # type: ignore[assignment]
            tar.addfile(info, io.BytesIO(body))
    return packed.getvalue()
