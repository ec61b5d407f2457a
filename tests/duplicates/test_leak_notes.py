"""A warning where a store holds what it will be scored on, found cheaply; and groups of near-copies for splits."""

from __future__ import annotations

from pathlib import Path

import decathlon_makers
import numpy as np
import planted_copies as copies
import pyarrow.parquet as pq
import pytest
import toyset

import curate
import shards
from curate.data.target import open_target
from curate.duplicates import groups, leak_notes
from curate.duplicates.leak_notes import leak_notes as notes_of
from curate.duplicates.near_groups import near_groups
from curate.duplicates.sorted_pairs import Pairs
from curate.errors import Misuse
from curate.evaluation.leaks import trained_on
from shards.packing.listing import list_folder
from shards.tar.writer import write_shards


@pytest.fixture
def scene(tmp_path: Path) -> tuple[Path, Path]:
    """A store of digits, and a target whose test has one of them as it is and one saved again."""
    store = copies.make_store(tmp_path / "store", singles=10)
    for split, bodies in {
        "train": {"a": copies.kinds(8)["original"]},
        "test": {"b": copies.kinds(9)["original"], "c": copies.kinds(10)["half"], "d": copies.kinds(50)["original"]},
    }.items():
        write_shards(tmp_path / "target" / split, iter([[(f"{key}.png", body)] for key, body in bodies.items()]))
    return store, tmp_path / "target"


def test_copies_of_equal_bytes_are_told_without_hashes(
    scene: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of test alone, train may be there; what is too much is not looked at."""
    store, target = shards.open_index(scene[0]), open_target(scene[1]).splits
    (line,) = notes_of(store, target)
    assert line.startswith("1 of 3 images of the target's test are in the store")
    assert not (scene[0] / ".curate").exists()
    monkeypatch.setattr(leak_notes, "MOST_SOUGHT", 2)
    assert notes_of(store, target) == []


def test_near_copies_are_told_where_hashes_are(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """After any verb that left them."""
    curate.dedup(scene[0], out=tmp_path / "out")
    (line,) = notes_of(shards.open_index(scene[0]), open_target(scene[1]).splits)
    assert line.startswith("2 of 3 images of the target's test (or near-copies of them) are in the store")
    assert notes_of(shards.open_index(scene[0]), {"train": open_target(scene[1]).splits["train"]}) == []


def test_damaged_hashes_are_no_reason_not_to_begin(scene: tuple[Path, Path], tmp_path: Path) -> None:
    """A run warns by the bytes of images then; `curate dedup` makes hashes again."""
    curate.dedup(scene[0], out=tmp_path / "out")
    part = next(scene[0].rglob("hashes-*/*.parquet"))
    part.write_bytes(part.read_bytes()[:100])
    (line,) = notes_of(shards.open_index(scene[0]), open_target(scene[1]).splits)
    assert line.startswith("1 of 3 images of the target's test are in the store")


def test_steps_are_followed_for_splits() -> None:
    """0 - 1 - 2 and 3 - 4; what is farther joins nothing; chunks may come in any order."""
    chunks = [
        Pairs(np.array([1]), np.array([2]), np.array([3], np.uint8)),
        Pairs(np.array([0, 2, 3]), np.array([1, 3, 4]), np.array([3, 9, 1], np.uint8)),
    ]
    for order in (chunks, chunks[::-1]):
        assert groups.connected(6, order, 3).tolist() == [0, 0, 0, 1, 1, 2]
    assert groups.connected(0, [], 3).tolist() == []


def test_a_target_is_split_by_near_duplicates(tmp_path: Path) -> None:
    """Of each digit's copies all stand in one split, and an audit finds nothing across; without, it does."""
    for number in range(12):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        for kind, body in copies.kinds(number).items():
            (folder / f"{number:02d}-{kind}.{'jpg' if body[0] == 255 else 'png'}").write_bytes(body)
    found = near_groups(list_folder(tmp_path / "photos"), distance=8)
    assert (found.together, found.largest) == (12, 7)
    report = curate.pack(
        "imagefolder", tmp_path / "photos", out=tmp_path / "whole", target=True, group_by="near-duplicates"
    )
    assert "12 groups of near-copies" in " ".join(report.remarks())
    kept = pq.read_table(tmp_path / "whole" / "groups.parquet").to_pylist()
    assert len({line["group"] for line in kept}) == 12
    assert curate.audit(tmp_path / "whole").across == []
    curate.pack("imagefolder", tmp_path / "photos", out=tmp_path / "random", target=True)
    assert len(curate.audit(tmp_path / "random").across) > 10
    assert not list(tmp_path.glob(".whole*"))
    with pytest.raises(Misuse, match="--target"):
        curate.pack("imagefolder", tmp_path / "photos", out=tmp_path / "none", group_by="near-duplicates")


def test_a_table_of_files_is_split_by_near_duplicates(tmp_path: Path) -> None:
    """As its folder is; of what lies elsewhere nothing is known beforehand."""
    lines = ["file,label,split"]
    for number in range(12):
        for kind, body in copies.kinds(number).items():
            path = tmp_path / "photos" / f"{number:02d}-{kind}.{'jpg' if body[0] == 255 else 'png'}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(body)
            lines.append(f"photos/{path.name},{number % 2}")
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(line.removesuffix(",split") for line in lines) + "\n")
    out = tmp_path / "out"
    curate.pack("imagefolder", table, out=out, target=True, labels=table, group_by="near-duplicates")
    assert len({line["group"] for line in pq.read_table(out / "groups.parquet").to_pylist()}) == 12
    assert curate.audit(out).across == []
    table.write_text("file,label\nhttps://example.org/a.jpg,1\n")
    with pytest.raises(Misuse, match="near-duplicates are found among files of this machine alone"):
        curate.pack("imagefolder", table, out=tmp_path / "far", target=True, labels=table, group_by="near-duplicates")


def test_a_decathlon_domain_is_split_by_near_duplicates(tmp_path: Path) -> None:
    """From a folder or a tar; as prescribed, copies stand on both sides."""
    bodies = [body for number in range(24) for body in copies.kinds(number).values() if body[0] == 255]
    decathlon_makers.make_domain(tmp_path / "root", "imagenet12", 2, 1)
    decathlon_makers.make_domain(tmp_path / "root", "signs", len(bodies) // 6, len(bodies) // 6)
    files = sorted((tmp_path / "root" / "data" / "signs").rglob("*.jpg"), key=lambda path: path.name)
    for path, body in zip(files, bodies):
        path.write_bytes(body)
    prescribed, whole, tar = (tmp_path / name for name in ("prescribed", "whole", "tar"))
    curate.pack("decathlon", tmp_path / "root", out=prescribed, domains=["signs"])
    assert curate.audit(prescribed / "targets" / "signs").across != []
    report = curate.pack("decathlon", tmp_path / "root", out=whole, groups="near-duplicates")
    assert "groups of near-copies" in " ".join(report.remarks())
    assert curate.audit(whole / "targets" / "signs").across == []
    decathlon_makers.into_tar(tmp_path / "root", "signs")
    curate.pack("decathlon", tmp_path / "root", out=tar, domains=["signs"], groups="near-duplicates")
    for path in sorted((whole / "targets").rglob("*.tar")):
        assert path.read_bytes() == (tar / path.relative_to(whole)).read_bytes()


def test_a_stopped_packing_finds_its_groups_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is left as it was, by which a packing knows that it is the same."""
    for number in range(12):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(copies.kinds(number)["original"])
    seen = []

    def stopped(folder: Path, **options: object) -> None:
        path = Path(str(options["group_by"]))
        seen.append((path, path.stat().st_mtime_ns))
        raise KeyboardInterrupt

    monkeypatch.setattr("shards.api.pack_imagefolder", stopped)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            curate.pack(
                "imagefolder", tmp_path / "photos", out=tmp_path / "out", target=True, group_by="near-duplicates"
            )
    assert seen[0] == seen[1]


def test_a_run_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, a line; and whoever scores its network hears it, as long as the store is there."""
    from curate.progress import Bar

    toyset.make_store(tmp_path / "store", 48)
    toyset.make_target(tmp_path / "target")
    pictures = toyset.digits()[0]
    write_shards(tmp_path / "target" / "test", iter([[("a.png", toyset.png(pictures[3])), ("a.cls", b"3")]]))
    curate.run(
        tmp_path / "store",
        tmp_path / "target",
        out=tmp_path / "run",
        progress=Bar("run"),
        **{**toyset.FAST, "epochs": 1},
    )
    assert "1 of 1 images of the target's test are in the store" in capsys.readouterr().err
    (line,) = trained_on(tmp_path / "run", str(tmp_path / "target"))
    assert "a score on test says too much" in line
    (tmp_path / "store").rename(tmp_path / "gone")
    assert trained_on(tmp_path / "run", str(tmp_path / "target")) == []
