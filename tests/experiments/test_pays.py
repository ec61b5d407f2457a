"""`curate reproduce pays`: the mixed store and its targets, every selector, equal budgets, and what is told of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.errors import Misuse
from curate.experiments.pays import figures, mixed, presets, report
from curate.experiments.pays.mixed import CLASSES, TARGETS, Mixture, divide, pack
from curate.experiments.pays.presets import Scale
from curate.experiments.pays.sources import Picture, apart, pictures, some
from curate.experiments.pays.study import pays
from curate.stats.gains import Curve, Gain, accuracy_over_seconds, gain_map
from shards.indexing import domains
from shards.io.images import encode_png
from shards.store import open_index

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
#: Seconds of a whole study.
TINY = Scale(
    {"10": Mixture(16, {"imagenet12": 40, "mnist": 30}, train=60, val=6, test=30)},
    targets=("gtsrb", "notmnist"),
    pretexts=("rotation",),
    chosen=("nearest-pixels", "classifier-pixels", "semdedup", "softdedup"),
    trained=("raw", "random", "classifier-pixels", "in-domain"),
    weighed=(),
    steps=2,
    lengths={"raw": (4,), "classifier-pixels": (1,)},
    seeds=2,
)


def made(data: Path, name: str, part: str) -> list[Picture]:
    """A set of four classes: noise around a grey of the set's own, two images a group."""
    rng = np.random.default_rng([*name.encode(), *part.encode()])
    grey = 30 + 25 * (sum(name.encode()) % 8)
    bodies = (encode_png(np.clip(rng.normal(grey, 12, (16, 16)), 0, 255).astype(np.uint8)) for _ in range(60))
    return [Picture(body, "png", place % 4, f"{part}/{place % 4}/{place // 8}") for place, body in enumerate(bodies)]


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.SCALES, "tiny", TINY)
        patch.setattr(mixed, "pictures", made)
        patch.setattr(mixed, "CLASSES", {"cifar100": 3})
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("pays")
    return out, pays(out, out, "tiny")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=60), st.integers(0, 40))
def test_no_group_stands_on_two_sides_and_every_class_keeps_one(rows: list[tuple[int, int]], count: int) -> None:
    """A group may hold several classes, as a writer does."""
    found = [Picture(b"", "png", label, str(group)) for label, group in rows]
    inside, rest = apart(found, count, "any")
    assert len(inside) <= count
    assert not {one.group for one in inside} & {one.group for one in rest}
    assert {one.label for one in rest} == {one.label for one in found}


def test_some_are_drawn_in_their_order_and_all_where_there_are_no_more() -> None:
    found = [Picture(b"", "png", place, "") for place in range(20)]
    drawn = [one.label for one in some(found, 5, "a")]
    assert drawn == sorted(drawn)
    assert len(set(drawn)) == 5
    assert drawn != [one.label for one in some(found, 5, "b")]
    assert some(found, 20, "a") is found
    assert some(found, None, "a") is found


def test_the_store_says_what_is_of_which_set_and_the_targets_are_apart(tmp_path: Path) -> None:
    pack(tmp_path, tmp_path / "out", TINY.mixtures["10"])
    index = open_index(str(tmp_path / "out" / "store"))
    held = domains.load(index)
    counts = dict(zip(held.names, np.bincount(held.codes).tolist()))
    assert counts["imagenet12"] == 40
    assert counts["mnist"] == 30
    assert {counts[name] for name in TARGETS if name not in CLASSES} == {16}
    assert counts["cifar100-others"] == 15
    keys = index.table["key"].to_pylist()
    assert all(key.split("/")[0] == held.names[code] for key, code in zip(keys, held.codes))
    divided = divide(tmp_path, "gtsrb", TINY.mixtures["10"])
    sides = [divided.inside, *divided.splits.values()]
    assert all(not {a.body for a in one} & {b.body for b in other} for one in sides for other in sides if one != other)
    assert {one.label for one in divided.splits["train"]} == {0, 1, 2, 3}


def test_every_arm_has_its_numbers(done: tuple[Path, dict[str, Any]]) -> None:
    out, record = done
    same = [cell for cell in record["cells"] if cell["budget"] == "equal-steps"]
    arms = Counter((cell["target"], cell["selector"], cell["steps"]) for cell in same)
    assert set(arms.values()) == {4, 2}  # two taps with two counts of labels; the pixels have one tap
    lengths = {("raw", 2), ("raw", 4), ("random", 2), ("in-domain", 2), ("untrained", 0), ("pixels", 0)}
    lengths |= {("classifier-pixels", 1), ("classifier-pixels", 2)}
    assert set(arms) == {(target, *one) for target in TINY.targets for one in lengths}
    assert {cell["seeds"] for cell in same if cell["selector"] != "pixels"} == {2}
    assert all(0 <= cell["mean"] <= 100 for cell in same)
    assert {one["choice"] for one in record["selected"]} == {
        f"{target}-{name}" for target in TINY.targets for name in TINY.chosen
    }
    kept = {one["choice"]: one["kept"] for one in record["selected"]}
    for target in TINY.targets:  # half the store, whatever is inside
        assert (
            kept[f"{target}-semdedup"] == kept[f"{target}-softdedup"] == round(sum(record["stores"]["10"].values()) / 2)
        )
    for name in ("pays.json", "pays.md", "map.png", "curves.png"):
        assert (out / name).stat().st_size > 500
    assert json.loads((out / "pays.json").read_bytes()) == record


def test_a_second_call_computes_nothing_and_says_the_same(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, record = done
    monkeypatch.setattr("curate.experiments.pays.cells.pretrain", None)
    monkeypatch.setattr("curate.experiments.pays.cells.run", None)
    assert pays(tmp_path, out, "tiny") == record
    assert pays(tmp_path, out, "tiny", targets=["gtsrb"], selectors=["raw", "random"]) == record


def test_a_call_for_others_adds_to_what_is_there(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out, whole = done
    (tmp_path / "share-10").symlink_to(out / "share-10")
    signs = pays(tmp_path, tmp_path, "tiny", targets=["gtsrb"], selectors=["raw", "random"])
    shown = ("raw", "random", "untrained", "pixels")
    few = [cell for cell in whole["cells"] if cell["target"] == "gtsrb" and cell["selector"] in shown]
    assert signs["cells"] == few
    assert pays(tmp_path, tmp_path, "tiny", targets=["notmnist"]) != whole
    both = pays(tmp_path, tmp_path, "tiny", targets=["gtsrb"])
    for name in ("cells", "verdicts", "selected"):
        assert sorted(both[name], key=json.dumps) == sorted(whole[name], key=json.dumps)
    assert both["encoders"] == whole["encoders"]
    again = json.loads((tmp_path / "pays.json").read_bytes())
    again["cells"][0]["mean"] = -1.0
    (tmp_path / "pays.json").write_text(json.dumps(again))
    assert pays(tmp_path, tmp_path, "tiny", pretexts=["rotation"])["cells"] == both["cells"]  # the newer line counts


def test_the_numbers_of_another_study_are_not_added_to(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    out, whole = done
    (tmp_path / "share-10").symlink_to(out / "share-10")
    (tmp_path / "pays.json").write_text(json.dumps(whole | {"steps": 3, "scale": "mini"}))
    with pytest.raises(Misuse, match=r"pays.json: is of another study \(scale, steps differ\)"):
        pays(tmp_path, tmp_path, "tiny")
    assert json.loads((tmp_path / "pays.json").read_bytes())["steps"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": "huge"}, "--scale huge: unknown; known: smoke, mini, shares, full"),
        ({"targets": ["mars"]}, "--targets mars: expected some of gtsrb"),
        ({"selectors": ["guess"]}, "--selectors guess: expected some of raw"),
        ({"pretexts": ["colour"]}, "--pretexts colour: expected some of rotation, simclr"),
        ({"targets": ()}, "--targets : expected some of"),
        ({"targets": []}, "--targets : expected some of"),
    ],
)
def test_what_there_is_not_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse) as caught:
        pays(tmp_path, tmp_path / "out", **{"scale": "mini", **options})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_sets_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "pictures", pictures)
    with pytest.raises(Misuse, match=r"--data .*imagenet12|--data .*origin"):
        pays(tmp_path, tmp_path / "out", "smoke")


def line(selector: str, steps: int, seconds: float, **more: Any) -> dict[str, Any]:
    """A line of equal steps."""
    key = {"target": "t", "pretext": "rotation", "tap": "pool", "labels": "5"}
    return {**key, "selector": selector, "steps": steps, "seconds": seconds, "budget": "equal-steps", **more}


def test_equal_seconds_take_the_longest_training_that_ends_in_time() -> None:
    scale = Scale({}, (), (), (), (), (), 10, lengths={"raw": (20,), "choice": (5,)})
    lines = [line("raw", 10, 9.0), line("raw", 20, 18.0), line("choice", 5, 8.0), line("choice", 10, 12.0)]
    found = {(cell["limit"], cell["selector"]): cell["steps"] for cell in figures._at_equal_seconds(lines, scale)}
    assert found == {(9.0, "raw"): 10, (9.0, "choice"): 5, (18.0, "raw"): 20, (18.0, "choice"): 10}
    assert not figures._at_equal_seconds([line("raw", 10, 1.0), line("other", 10, 0.5)], scale)[1:]


def test_accuracies_have_the_error_over_seeds() -> None:
    found = figures._accuracy([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    assert found["mean"] == 50
    assert found["seeds"] == 3
    assert found["se"] == pytest.approx(np.std([50, 25, 75], ddof=1) / 3**0.5, abs=1e-3)
    assert figures._accuracy([[1, 0]])["se"] is None


def test_figures_are_drawn_to_the_byte(tmp_path: Path) -> None:
    gains = {("a", "x"): Gain(3.0, True), ("b", "x"): Gain(-1.0, False)}
    curves = {"a": [Curve("x", [1, 2], [50, 60], [1, 1]), Curve("y", [2], [55], [0])]}
    for name in ("one.png", "two.png"):
        gain_map(tmp_path / name, gains, "gain")
        accuracy_over_seconds(tmp_path / f"c{name}", curves, "accuracy")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert (tmp_path / "cone.png").read_bytes() == (tmp_path / "ctwo.png").read_bytes()


def test_the_committed_study_is_what_its_page_says() -> None:
    """The page and the figures are made from the JSON, not by hand."""
    folder = Path(__file__).resolve().parents[2] / "scripts" / "results" / "pays"
    record = json.loads((folder / "pays.json").read_bytes())
    assert report.page(record) == (folder / "pays.md").read_text(encoding="utf-8")
    assert report.curves(record)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the sets of ../shared/data are not here")
def test_the_smoke_study_on_real_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "pictures", pictures)
    monkeypatch.setattr(mixed, "CLASSES", {"cifar100": 20})
    record = pays(SHARED, tmp_path / "out", "smoke")
    chosen = next(one for one in record["selected"] if one["choice"] == "notmnist-classifier-1")
    assert chosen["auroc"] > 0.9
    assert {cell["selector"] for cell in record["cells"]} >= {"raw", "random", "in-domain", "bdw-prior"}


@pytest.mark.skipif(not SHARED.exists(), reason="the sets of ../shared/data are not here")
def test_tracks_and_writers_are_read_off_the_names_of_source_files() -> None:
    signs = pictures(SHARED, "gtsrb", "train")
    assert len(signs) == 2_580
    assert len({one.group for one in signs}) > 100
    assert all(len({one.label for one in signs if one.group == group}) == 1 for group in {signs[0].group})
    letters = Counter(one.group for one in pictures(SHARED, "omniglot", "train"))
    assert len(letters) == 15
    assert set(letters.values()) == {104}
