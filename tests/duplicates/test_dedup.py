"""A store with planted copies: what is found at each level, who stays, and what is written."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import planted_copies as copies
import pyarrow.parquet as pq
import pytest

import curate
import shards
from curate.duplicates import hash_files, hash_table, levels, request
from curate.duplicates.hash_files import of_store, places_of
from curate.errors import CurateError, Misuse
from curate.ledger import table_file
from curate.progress import NullProgress
from shards.tar.writer import write_shards


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; the tests leave it as it is, but for its hashes."""
    return copies.make_store(tmp_path_factory.mktemp("store") / "store")


def lines(out: Path) -> dict[str, dict]:
    """duplicates.parquet by key."""
    return {line["key"]: line for line in pq.read_table(out / "duplicates.parquet").to_pylist()}


def kept(out: Path) -> set[str]:
    """The manifest's keys."""
    return set(pq.read_table(out / "manifest.parquet")["key"].to_pylist())


def test_exact_copies_go_and_no_other(store: Path, tmp_path: Path) -> None:
    """The same bytes or pixels; one-colour images of each size are one group, and that is said; broken ones stay."""
    found = curate.dedup(store, out=tmp_path / "out", level="exact", keep="first")
    gone = {line["key"] for line in lines(tmp_path / "out").values() if not line["kept"]}
    wanted = {f"{kind}-{n:02d}" for n in range(copies.EACH) for kind in ("original", "pixels")}  # "bytes" comes first
    assert gone == wanted | {f"plain-{n:02d}" for n in range(2, 12)}
    assert found.by_level == {"exact": len(gone), "perceptual": 0, "semantic": 0}
    assert (found.largest, found.flat, found.undecodable, found.groups) == (6, 12, 3, copies.EACH + 2)
    assert {"broken-0", "broken-1", "empty"} <= kept(tmp_path / "out")
    assert "12 have no look of their own" in found.text()


def test_near_copies_go_and_no_other(store: Path, tmp_path: Path) -> None:
    """One of each digit stays, the largest; what is alike says how."""
    found = curate.dedup(store, out=tmp_path / "out")
    table = lines(tmp_path / "out")
    groups: dict[str, set[str]] = {}
    for line in table.values():
        groups.setdefault(line["representative_key"], set()).add(line["key"])
    digits = [members for members in groups.values() if not any(key.startswith("plain") for key in members)]
    assert sorted(map(sorted, digits)) == [
        sorted(f"{kind}-{n:02d}" for kind in copies.kinds(0)) for n in range(copies.EACH)
    ]
    assert found.groups == copies.EACH + 2  # images of one colour are of two sizes
    for line in table.values():
        assert line["kept"] == (line["key"] == line["representative_key"])
        assert line["kept"] or line["level"] == ("exact" if line["exact"] else "perceptual")
        assert line["kept"] or line["distance"] == (0 if line["exact"] else line["perceptual"]) <= 8
        assert not line["key"].startswith("half") or not line["kept"]
    assert any(line["mirrored"] for line in table.values())
    assert len(kept(tmp_path / "out")) == found.images - found.dropped
    counted = Counter(line["level"] for line in table.values() if not line["kept"])
    assert found.by_level == {"semantic": 0, **counted}
    assert (tmp_path / "out" / "duplicates.png").read_bytes()[:4] == b"\x89PNG"


def test_the_manifest_goes_to_rewrite_as_it_is(store: Path, tmp_path: Path) -> None:
    """And the table of duplicates is refused as one, with the reason."""
    curate.dedup(store, out=tmp_path / "out")
    index = shards.open_index(store)
    counts = shards.rewrite(index, tmp_path / "out" / "manifest.parquet", tmp_path / "once").counts
    assert counts["kept"] == len(kept(tmp_path / "out"))
    assert shards.verify(tmp_path / "once", index) == []
    with pytest.raises(shards.ShardError, match="ledger and no manifest"):
        shards.rewrite(index, tmp_path / "out" / "duplicates.parquet", tmp_path / "none")
    assert curate.dedup(tmp_path / "once", out=tmp_path / "again").dropped == 0
    assert shards.verify(tmp_path / "once", index) == []  # with its hashes beside it


def test_soft_weights_of_a_group_sum_to_one(store: Path, tmp_path: Path) -> None:
    """Every image has one, and there is no manifest."""
    found = curate.dedup(store, out=tmp_path / "out", soft=True)
    weights = pq.read_table(tmp_path / "out" / "weights.parquet").to_pylist()
    mean = {line["key"]: line["mean"] for line in weights}
    assert len(mean) == found.images
    assert np.isclose(sum(mean.values()), found.images - found.dropped)
    assert mean["half-00"] == pytest.approx(1 / 7)
    assert mean["single-20"] == 1
    assert not (tmp_path / "out" / "manifest.parquet").exists()


def test_who_stays_is_the_rules(store: Path, tmp_path: Path) -> None:
    """Of a run, whom it weighs most; ties and images that it does not know go by key."""
    index = shards.open_index(store)
    run = tmp_path / "run"
    names = index.table.select(["shard", "key"]).to_pylist()
    liked = [0.9 if line["key"].startswith("half") else 0.5 for line in names]
    rows = [
        {**line, "mean": mean, "error": None} for line, mean in zip(names, liked) if not line["key"].startswith("bytes")
    ]
    import pyarrow as pa

    schema = pa.schema([("shard", pa.string()), ("key", pa.string()), ("mean", pa.float32()), ("error", pa.string())])
    table_file.write(run / "weights.parquet", pa.Table.from_pylist(rows, schema), {})
    curate.dedup(store, out=tmp_path / "out", keep="highest-weight", run=run)
    stays = {key for key, line in lines(tmp_path / "out").items() if line["kept"]}
    assert {key for key in stays if not key.startswith("plain")} == {f"half-{n:02d}" for n in range(copies.EACH)}
    assert {key for key in stays if key.startswith("plain")} == {"plain-00", "plain-01"}
    for other in ({"run": run}, {"keep": "highest-weight"}):
        with pytest.raises(Misuse, match="together"):
            curate.dedup(store, out=tmp_path / "out", **other)
    table_file.write(run / "weights.parquet", pa.Table.from_pylist([{**rows[0], "shard": "x"}], schema), {})
    with pytest.raises(CurateError, match="knows no image"):
        curate.dedup(store, out=tmp_path / "out", keep="highest-weight", run=run)


@pytest.mark.parametrize("level", ["exact", "perceptual"])
def test_against_another_store(store: Path, tmp_path: Path, level: str) -> None:
    """What is like an image of the other goes; its own copies stay unless they are asked for."""
    other = tmp_path / "other"
    write_shards(other, [[("seen.png", copies.kinds(2)["original"])], [("x.png", copies.kinds(3)["mirrored"])]])
    found = curate.dedup(store, out=tmp_path / "out", against=other, level=level)
    gone = {line["key"] for line in lines(tmp_path / "out").values()}
    exact = {f"{kind}-02" for kind in ("original", "bytes", "pixels")} | {"mirrored-03"}
    assert gone == (exact if level == "exact" else {f"{kind}-{n:02d}" for kind in copies.kinds(0) for n in (2, 3)})
    assert {line["of"] for line in lines(tmp_path / "out").values()} == {"other"}
    assert found.dropped == len(gone) == found.images - len(kept(tmp_path / "out"))
    both = curate.dedup(store, out=tmp_path / "both", against=other, within=True)
    alone = curate.dedup(store, out=tmp_path / "alone")
    assert both.dropped == alone.dropped + 2


@pytest.mark.parametrize("options", [{"distance": 13}, {"distance": -1}, {"within": False}])
def test_what_cannot_be_meant_is_refused(store: Path, tmp_path: Path, options: dict) -> None:
    """Before anything is written."""
    with pytest.raises(Misuse, match=r"--(distance|no-within)"):
        curate.dedup(store, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_hashes_are_made_once_a_shard_whatever_the_workers(store: Path, tmp_path: Path, monkeypatch) -> None:
    """A part that is there is not made again; what was stopped goes on."""
    index = shards.open_index(store)
    one = hash_files.made(index, tmp_path / "one", 1, NullProgress())
    parts = sorted(one.glob("*.parquet"))
    assert len(parts) == len(index.shards) > 2
    monkeypatch.setattr("shards.io.engines.local.SERIAL_S", 0)
    two = hash_files.made(index, tmp_path / "two", 2, NullProgress())
    assert [path.read_bytes() for path in parts] == [path.read_bytes() for path in sorted(two.glob("*.parquet"))]
    parts[1].unlink()
    before = parts[0].stat().st_mtime_ns
    assert len(of_store(index, [tmp_path / "none", one], 1, NullProgress())) == len(index)
    assert parts[1].exists()
    assert parts[0].stat().st_mtime_ns == before


def test_damaged_and_foreign_hashes_are_refused(store: Path, tmp_path: Path) -> None:
    """One line each."""
    index = shards.open_index(store)
    folder = hash_files.made(index, tmp_path / "held", 1, NullProgress())
    first, second = sorted(folder.glob("*.parquet"))[:2]
    table_file.write(second, table_file.read(second).slice(1), {"format": "hashes", "version": 1})
    with pytest.raises(CurateError, match="rows"):
        hash_files.load(folder, index)
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(curate.Error, match="damaged"):
        hash_files.load(folder, index)


def test_damaged_hashes_are_made_again(store: Path, tmp_path: Path, monkeypatch) -> None:
    """Whatever is wrong with a part; where nothing may be written, the line says what to remove."""
    index = shards.open_index(store)
    folder = hash_files.made(index, hash_files.folder_in(tmp_path, index), 1, NullProgress())
    first, second, third = sorted(folder.glob("*.parquet"))[:3]
    whole = {path: path.read_bytes() for path in (first, second, third)}

    def damage() -> None:
        first.write_bytes(whole[first][:100])
        table_file.write(second, table_file.read(second).slice(1), {"format": "hashes", "version": 1})
        third.write_bytes(b"")

    class Heard(NullProgress):
        notes: list[str] = []  # noqa: RUF012

        def note(self, text: str) -> None:
            self.notes.append(text)

    damage()
    assert len(of_store(index, [folder], 1, Heard())) == len(index)
    assert [path.read_bytes() for path in whole] == list(whole.values())
    assert Heard.notes == [f"{path}: is damaged, and is made again" for path in whole]
    damage()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(curate.Error, match=f"remove {first}, and the same command makes it again"):
        of_store(index, [folder], 1, Heard())


def test_hashes_lie_where_they_may(store: Path, tmp_path: Path, monkeypatch) -> None:
    """Beside a store; of one that may not be written to in the output, else nowhere."""
    index = shards.open_index(store)
    assert [place.parent for place in places_of(index, tmp_path)] == [store / ".curate"]
    monkeypatch.setattr("os.access", lambda path, mode: not Path(path).is_relative_to(store))
    assert [place.parent for place in places_of(index, tmp_path / "out")] == [store / ".curate", tmp_path / "out"]
    assert not hash_files.may_be_made(places_of(index, None)[-1])


def test_twenty_thousand_copies_make_no_quadratic_output(tmp_path: Path) -> None:
    """Of one image saved in ten ways, and of one colour: seconds, and no list of 200 million pairs."""
    bodies = [copies.jpeg(copies.digit(5), quality) for quality in range(50, 60)]
    samples = ([(f"{n:05d}.jpg", bodies[n % 10])] for n in range(2000))
    write_shards(tmp_path / "many", samples, shard_size=2**20)
    index = shards.open_index(tmp_path / "many")
    held = of_store(index, [tmp_path / "hashes"], 1, NullProgress())
    many = hash_table.taken(held, np.arange(20_000) % 2000)
    assert len(set(levels.perceptual_groups(many, np.arange(20_000)[::-1]).tolist())) == 1
    near = levels.nearest_of_other(many, 10_000, "perceptual")
    assert (near.bits <= 8).all()
    assert near.place[:10_000].tolist() == [10_000 + n % 10 for n in range(10_000)]


def test_nearest_are_those_of_brute_force() -> None:
    """Of two parts of toy hashes, flat ones among them, at both levels."""
    from test_pairs import skewed

    from curate.duplicates.hashes import PerceptualHashes

    hashes_, mirrors = skewed(120)
    rng = np.random.default_rng(0)
    flat = rng.random(120) < 0.1
    pixels = np.stack([rng.integers(0, 60, 120), np.ones(120, int)], axis=1).astype(np.uint64)
    hashes_, mirrors = hashes_[pixels[:, 0]], mirrors[pixels[:, 0]]  # the same pixels, the same hashes
    flat = flat[pixels[:, 0]]
    error = np.zeros(120, np.uint8)
    import pyarrow as pa

    names = pa.table({"shard": [""] * 120, "key": [str(n) for n in range(120)]})
    held = hash_table.Hashed(names, pixels, pixels, PerceptualHashes(hashes_, mirrors, flat), *(error,) * 3)
    for level in ("exact", "perceptual"):
        near = levels.nearest_of_other(held, 50, level, 6)
        for one in range(120):
            best = (65, -1)
            for other in range(70, 120) if one < 70 else range(70):
                bits = min(
                    (int(x ^ y)).bit_count()
                    for x, y in (
                        (hashes_[one], hashes_[other]),
                        (hashes_[one], mirrors[other]),
                        (mirrors[one], hashes_[other]),
                    )
                )
                if pixels[one, 0] == pixels[other, 0]:
                    bits = 0
                elif level == "exact" or flat[one] or flat[other] or bits > 6:
                    continue
                best = min(best, (bits, other), key=lambda pair: (pair[0], pair[1] if pair[1] >= 0 else 999))
            assert near.place[one] == best[1]
            assert near.bits[one] == (best[0] if best[1] >= 0 else -1)


def test_no_digit_is_lost_without_a_copy_that_stays(store: Path, tmp_path: Path) -> None:
    """Whatever the distance: who goes lies within it of who stays."""
    for distance in (0, 4, 12):
        curate.dedup(store, out=tmp_path / str(distance), distance=distance)
        table = lines(tmp_path / str(distance))
        assert all(table[line["representative_key"]]["kept"] for line in table.values())
        assert all(line["distance"] <= distance for line in table.values() if line["level"] == "perceptual")


def test_a_store_of_none(tmp_path: Path) -> None:
    """Of nothing but broken images nothing is found, and nothing goes."""
    write_shards(tmp_path / "store", [[("a.png", b"x")], [("b.txt", b"no image")]])
    found = curate.dedup(tmp_path / "store", out=tmp_path / "out")
    assert (found.images, found.dropped, found.undecodable, found.groups) == (2, 0, 2, 0)
    assert not (tmp_path / "out" / "duplicates.png").exists()


@pytest.mark.parametrize("verb", ["dedup", "audit"])
def test_a_folder_of_something_else_is_left_alone(store: Path, tmp_path: Path, verb: str) -> None:
    """A run's weights and a curated set's manifest have the names of ours; so does what was found of another store."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "weights.parquet").write_bytes(b"learnt")
    (out / "manifest.parquet").write_bytes(b"kept")

    def ask(store: Path, distance: int = 8) -> None:
        if verb == "dedup":
            curate.dedup(store, out=out, distance=distance)
        else:
            curate.audit(tmp_path / "photos", store=store, out=out, distance=distance)

    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.png").write_bytes(copies.kinds(0)["original"])
    with pytest.raises(Misuse, match=r"--out .*out: holds something else; name a new folder"):
        ask(store)
    assert {path.name for path in out.iterdir()} == {"weights.parquet", "manifest.parquet"}
    shutil.rmtree(out)
    ask(store)
    shutil.copytree(store, tmp_path / "other")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(Misuse, match=r"holds what was asked for otherwise \(store was .*, is .*other\)"):
        ask(tmp_path / "other")
    with pytest.raises(Misuse, match=r"\(distance was 8, is 3\); name a new folder"):
        ask(store, distance=3)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_of_an_earlier_release_it_goes_on_and_is_marked_anew(store: Path, tmp_path: Path) -> None:
    """Its mark says only what was compared."""
    out = tmp_path / "out"
    curate.dedup(store, out=out, distance=3)
    mark = out / request.MARK
    mark.write_text(json.dumps({"verb": "dedup", "store": str(store), "against": None}))
    curate.dedup(store, out=out)
    assert json.loads(mark.read_text())["distance"] == 8


def test_what_a_kill_has_left_is_no_reason_to_stop_and_goes(store: Path, tmp_path: Path) -> None:
    """At the very beginning, or in the midst of work."""
    out = tmp_path / "out"
    out.mkdir()
    (out / ".asked.json.partial").write_bytes(b"{")
    curate.dedup(store, out=out)
    (out / ".features-abc").mkdir()
    (out / ".features-abc" / "features.npy").write_bytes(b"large")
    (out / ".weights.parquet.partial").write_bytes(b"begun")
    curate.dedup(store, out=out)
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_nothing_is_compared_with_itself(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All would be copies."""
    monkeypatch.chdir(store.parent)
    for one, other in (("s3://b/store/", "s3://b/store"), (store.name, f"{store.parent}/./{store.name}")):
        with pytest.raises(Misuse, match="is compared with itself"):
            request.refuse_itself("--against", one, other)
    with pytest.raises(Misuse, match="is compared with itself"):
        curate.dedup(store, out=tmp_path / "out", against=store)
    with pytest.raises(Misuse, match="is compared with itself"):
        curate.audit(store, store=store, out=tmp_path / "out")


@pytest.mark.parametrize("level", ["exact", "perceptual", "semantic"])
def test_shards_without_images(store: Path, tmp_path: Path, level: str) -> None:
    """An empty tar and one without an image keep their places, with others and alone."""
    for folder in (tmp_path / "mixed", tmp_path / "none"):
        folder.mkdir()
        tarfile.open(folder / "000000.tar", "w").close()
        with tarfile.open(folder / "000001.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("a.txt"))
    shutil.copy(next(store.glob("*.tar")), tmp_path / "mixed" / "000002.tar")
    assert curate.dedup(tmp_path / "none", out=tmp_path / "out", level=level).dropped == 0
    assert curate.dedup(tmp_path / "mixed", out=tmp_path / "more", level=level).images > 1


def test_a_hash_that_says_nothing_is_null(store: Path, tmp_path: Path) -> None:
    """In the table: of images of one colour, that go for their bytes."""
    curate.dedup(store, out=tmp_path / "out")
    found = {key: line["perceptual"] for key, line in lines(tmp_path / "out").items() if not line["kept"]}
    assert {value for key, value in found.items() if key.startswith("plain")} == {None}
    assert all(0 <= value <= 8 for key, value in found.items() if not key.startswith("plain"))
