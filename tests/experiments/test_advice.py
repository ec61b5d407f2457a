"""Advice: the verdict's rule, what a pilot is scored on, hours, and the whole of it on a tiny store."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from unittest.mock import Mock

import numpy as np
import pytest
import toyset
from click.testing import CliRunner
from sklearn.datasets import load_digits

import curate
from curate.cli import curate as command
from curate.data.decode import Decoder
from curate.data.target import open_target
from curate.errors import CurateError, Misuse, RunMismatch
from curate.experiments.advice import advise, pilot, plans, scored, verdict
from curate.experiments.advice.plans import Budget, StepSeconds
from curate.experiments.advice.verdict import Gain, Look
from curate.experiments.demo import data
from curate.stats import paired
from shards.tar.writer import write_shards

USUAL = Look(store=10_000, kept=500, pi=600.0, purity=0.9, auroc=0.97)


def gained(mean, half, seeds=3):
    return Gain("rotation", "rotation raw", mean, mean - half, mean + half, seeds)


@pytest.mark.parametrize(
    ("look", "gain", "word", "why"),
    [
        (USUAL, gained(8.0, 5.0), "curate", "+8.0 points [+3.0, +13.0]"),
        (USUAL, gained(8.0, 7.99), "curate", "+8.0"),
        (USUAL, gained(8.0, 8.0), "undecided", "--seeds"),
        (USUAL, gained(8.0, 9.0), "undecided", "--seeds 4"),
        (USUAL, gained(0.4, 0.5), "dont", "trains no better"),
        (USUAL, gained(0.4, 0.3), "curate", "+0.4"),
        (USUAL, gained(0.5, 0.5), "undecided", "a longer pilot"),
        (USUAL, gained(-5.0, 2.0), "dont", "-5.0"),
        (USUAL, gained(-1.0, 3.0), "undecided", "what would: more labelled images"),
        (USUAL, Gain("rotation", "rotation raw", 8.0, None, None, 1), "undecided", "one scored image"),
        (USUAL, None, "undecided", "no labels at all"),
        (replace(USUAL, kept=49), gained(8.0, 5.0), "dont", "hardly any image"),
        (replace(USUAL, kept=0, pi=0.0, purity=None), None, "dont", "0 of 10,000"),
        (replace(USUAL, pi=8_000.0, kept=7_000), gained(8.0, 5.0), "dont", "about 80%"),
        (replace(USUAL, pi=7_999.0, kept=7_000), gained(8.0, 5.0), "curate", "+8.0"),
    ],
)
def test_the_verdict(look, gain, word, why):
    """Curate where the whole interval is a gain, don't where none of it is useful, else undecided."""
    found = verdict.decide(look, gain, "no labels at all")
    assert found.word == word
    assert why in found.why


def test_an_interval_with_a_loss_in_it_never_says_curate():
    """Every mean, half width and look of a grid."""
    for mean in np.linspace(-20, 20, 41):
        for half in np.linspace(0, 20, 41):
            if mean - half <= 0:
                assert verdict.decide(USUAL, gained(mean, half)).word != "curate"


def test_the_gain_is_over_the_best_without_curation():
    """The best curated network, whatever its pretext, less every other set of every pretext; the smallest counts."""
    draws = np.random.default_rng(0)

    def rows(share):
        return (draws.random((3, 400)) < share).astype(float).tolist()

    right = {
        "rotation": {"raw": rows(0.6), "random": rows(0.7), "curated": rows(0.72)},
        "simclr": {"raw": rows(0.3), "random": rows(0.35), "curated": rows(0.9)},
    }
    found = verdict.gain(right)
    assert (found.pretext, found.against) == ("simclr", "rotation random")
    others = [right["rotation"]["raw"], right["rotation"]["random"], right["simclr"]["raw"], right["simclr"]["random"]]
    each = [paired.difference(right["simclr"]["curated"], other) for other in others]
    assert found.mean == min(one.mean for one in each)
    assert found.low == min(one.mean - one.half_width for one in each)
    assert found.high == min(one.mean + one.half_width for one in each)


def test_a_wide_interval_of_any_other_set_keeps_from_curate():
    """The lower end is the lowest of all, not that of the set with the smallest mean difference."""
    ours = np.ones((2, 100))
    steady, shaky = np.ones((2, 100)), np.ones((2, 100))
    steady[:, :4] = 0
    shaky[0, :20] = 0
    found = verdict.gain({"rotation": {"curated": ours, "raw": steady, "random": shaky}})
    assert found.against == "rotation raw"
    assert found.low == pytest.approx(10 - paired.difference(ours, shaky).half_width)
    assert found.low < 0
    assert verdict.decide(USUAL, found).word == "undecided"


def test_seeds_that_would_decide():
    """The half width falls with the root of the seeds; where twenty would not do, none are named."""
    assert "--seeds 7," in verdict.would_decide(gained(2.0, 3.0))
    assert "--seeds" not in verdict.would_decide(gained(1.0, 3.0))
    assert "--seeds" not in verdict.would_decide(gained(-1.0, 3.0))


@pytest.mark.parametrize("text", ["", "h", "-3", "0", "0h", "1e3", "nan", "infh", "3 days", "9" * 19, "1.5", "٣"])
def test_a_budget_that_is_none(text):
    """Steps or hours, more than none."""
    with pytest.raises(Misuse, match="--budget"):
        Budget.parse(text)


def test_hours_of_each_plan():
    """The same steps in each; choosing on top; what was not measured stays unknown."""
    assert Budget.parse("2h").of(0.5) == 14_400
    assert Budget.parse("300").of(0.5) == 300
    assert Budget.parse("0.000001h").of(10.0) == 1
    found = plans.hours(7200, StepSeconds(1.0, 0.5, 3.0), 1800.0, 1001, 10)
    assert found == {
        "plain on raw": 2.0,
        "classifier, plain on curated": 1.5,
        "BDW, plain on curated": round((3 * 101 * 3.0 + 3600) / 3600, 4),
    }
    assert plans.hours(1, StepSeconds(1.0, 1.0, None), 0.0, 1, 1)["BDW, plain on curated"] is None


def test_steps_fit_the_time():
    """All trainings of all pretexts in about two minutes, whatever a step takes."""
    for seconds in (0.001, 0.02, 0.05, 0.1):
        for seeds, processes in ((3, 2), (5, 1)):
            timed = {"rotation": {"plain": seconds}, "simclr": {"plain": 2 * seconds}}
            steps = pilot.steps_that_fit(timed, seeds, processes)
            spent = 3 * seeds / processes * (3 * seconds * steps + 2 * pilot.BESIDE)
            assert spent <= pilot.SECONDS or steps == pilot.STEPS[-1]


def test_later_seeds_have_as_many_steps(tmp_path):
    """What fits is asked once a folder: more seeds in the same time would be fewer steps, and another experiment."""
    place = pilot.Place("", "", tmp_path, None, "cpu", (), ())
    timed = {"rotation": {"plain": 0.05}}
    first = pilot.length(place, pilot.Pilot(("rotation",), seeds=3), timed, 2)
    assert first == pilot.length(place, pilot.Pilot(("rotation",), seeds=9), timed, 2)
    assert first > pilot.steps_that_fit(timed, 9, 2)
    assert pilot.length(place, pilot.Pilot(("rotation",), steps=7), timed, 2) == 7


def drawn(target, seed=0):
    return scored.draw(open_target(target), Decoder(16, "grey"), seed)


def test_val_scores_and_test_is_not_looked_at(tmp_path):
    """The held images are val's; what stands in test changes nothing."""
    target = toyset.make_target(tmp_path / "target", 60)
    found = drawn(target)
    pictures, labels = toyset.digits()
    val = range(len(labels) - 120, len(labels) - 60)
    assert sorted(found.held[1].tolist()) == sorted(labels[val].tolist())
    assert {x.numpy().tobytes() for x in found.held[0]} == {pictures[i].tobytes() for i in val}
    assert (found.classes, found.notes) == (10, ())
    for shard in (target / "test").glob("*.tar"):
        shard.write_bytes(next((target / "val").glob("*.tar")).read_bytes())
    again = drawn(target)
    assert all((a == b).all() for a, b in zip((*again.train, *again.held), (*found.train, *found.held)))


def test_without_a_labelled_val_half_of_train_is_held_out(tmp_path):
    """No image on both sides, each class on both, and it is said."""
    target = toyset.make_target(tmp_path / "target", 60)
    for split in ("val", "test"):
        for path in (target / split).iterdir():
            path.unlink()
        (target / split).rmdir()
    found = drawn(target)
    sides = [{x.numpy().tobytes() for x in pixels} for pixels, _ in (found.train, found.held)]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 60
    assert set(found.train[1].tolist()) == set(found.held[1].tolist()) == set(range(10))
    assert "near-copies" in found.notes[0]


def test_few_classes_and_images_are_scored(tmp_path, monkeypatch):
    """A regression on very many would take minutes; labels begin at 0 again."""
    monkeypatch.setattr(scored, "CLASSES", 4)
    monkeypatch.setattr(scored, "IMAGES", 12)
    found = drawn(toyset.make_target(tmp_path / "target", 120))
    assert np.bincount(found.train[1]).tolist() == np.bincount(found.held[1]).tolist() == [3, 3, 3, 3]
    assert "4 of 10 classes" in found.notes[0]


def test_what_is_scored_is_kept_as_it_is(tmp_path):
    """Saved and loaded; the same draw gives the same bytes; a damaged file is named."""
    found = drawn(toyset.make_target(tmp_path / "target", 30))
    scored.save(tmp_path / "a.npz", found)
    scored.save(tmp_path / "b.npz", found)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = scored.load(tmp_path / "a.npz")
    assert all((a == b).all() for a, b in zip((*again.train, *again.held), (*found.train, *found.held)))
    assert again.classes == found.classes
    (tmp_path / "a.npz").write_bytes(b"PK")
    with pytest.raises(curate.CurateError, match=r"a\.npz: is damaged"):
        scored.load(tmp_path / "a.npz")


@pytest.mark.parametrize("label", [None, b"dog", b"3"])
def test_a_target_that_cannot_score(tmp_path, label):
    """No label, words for labels, or one class: said in a line, and no error of the advice."""
    pictures, _ = toyset.digits()
    cls = [] if label is None else [("a.cls", label)]
    samples = [[(f"{i}.png", toyset.png(pictures[i])), *[(f"{i}.cls", body) for _, body in cls]] for i in range(8)]
    write_shards(tmp_path / "target" / "train", samples)
    with pytest.raises(scored.Unscorable, match="two are needed" if label == b"3" else "no labels"):
        drawn(tmp_path / "target")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The demo's store with a tenth of the patches, and its target; digits alone without labels, as shards."""
    folder = tmp_path_factory.mktemp("advice")
    data.pack(folder, 0, patches=1300)
    (folder / "source").rename(folder / "store")
    pictures = [toyset.png(data._digit(image)) for image in load_digits().images]
    for name, held in (("unlabelled", pictures[:100]), ("digits", pictures[100:800])):
        write_shards(folder / name, ([(f"{n:04d}.png", picture)] for n, picture in enumerate(held)))
    return folder


SMALL = {"pretexts": ("rotation",), "seeds": 2, "steps": 2, "processes": 1, "device": "cpu", "budget": "1000"}


@pytest.fixture(scope="module")
def advised(world):
    """Advice on it, of two seeds and two steps."""
    return curate.advise(world / "store", world / "target", out=world / "out", **SMALL)


def same(found):
    """What two calls share: everything but seconds, and the hours made of them."""
    return {k: v for k, v in asdict(found).items() if k not in ("seconds", "hours", "sheets", "page")}


def test_advice_end_to_end(world, advised):
    """Every file and number that is promised; the store is left as it was."""
    assert advised.verdict in ("curate", "dont", "undecided")
    assert 600 <= advised.kept <= 750
    assert advised.purity > 0.9
    assert 0.75 < advised.auroc < 0.9  # its ceiling is .825
    assert (advised.store, advised.steps, advised.seeds, advised.labels) == (2000, 2, 2, 5)
    assert advised.interval[0] <= advised.expected_gain <= advised.interval[1]
    assert set(advised.pilot["rotation"]["accuracy"]) == {"raw", "random", "curated", "untrained", "pixels"}
    assert all(hours > 0 for hours in advised.hours.values())
    assert len(advised.hours) == 3
    assert (advised.budget_steps, advised.repetitions) == (1000, round(64 / advised.kept, 1))
    record = json.loads((world / "out" / "advice.json").read_text())
    assert record.pop("format") == "advice"
    assert record["kept"] == advised.kept
    text = (world / "out" / "advice.md").read_text()
    assert advised.sentence in text
    assert "a verdict is of its budget: 2 steps" in text
    assert "2404.07177" in text
    for name in ("most-alike", "at-the-cut", "least-alike"):
        assert (world / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not any((world / "store" / name).exists() for name in ("index.parquet", ".curate"))
    assert not (world / "store" / "features").exists()


def test_advice_goes_on_and_is_the_same_again(world, advised, monkeypatch):
    """A cell that is gone is computed again, to the same numbers, and no other; another budget changes hours alone."""
    place = world / "out" / "cells" / "rotation"
    (place / "curated-1.json").unlink()
    (world / "out" / "advice.json").unlink()
    trained = []
    work = pilot.work
    monkeypatch.setattr(pilot, "work", lambda *given: trained.append(given[1]) or work(*given))
    again = curate.advise(world / "store", world / "target", out=world / "out", **SMALL)
    assert [(cell.shards, cell.seed) for cell in trained] == [("curated", 1)]
    assert same(again) == same(advised)
    more = curate.advise(world / "store", world / "target", out=world / "out", **SMALL | {"seeds": 3})
    assert [(cell.shards, cell.seed) for cell in trained[1:]] == [(kind, 2) for kind in pilot.SETS]
    assert more.seeds == 3
    longer = curate.advise(world / "store", world / "target", out=world / "out", **SMALL | {"budget": "2000"})
    assert longer.budget_steps == 2000
    assert longer.hours["plain on raw"] == pytest.approx(2 * again.hours["plain on raw"], abs=2e-4)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"steps": 3}, RunMismatch, "steps was 2, is 3"),
        ({"seed": 1}, RunMismatch, "seed was 0, is 1"),
        ({"seeds": 0}, Misuse, "--seeds 0"),
        ({"pretexts": ("simclr",)}, RunMismatch, "pretexts was"),
        ({"pretexts": ()}, Misuse, "--pretext"),
        ({"pretexts": ("reconstruction",)}, Misuse, "rotation, simclr"),
        ({"pretexts": ("rotation", "rotation")}, Misuse, "each once"),
        ({"steps": 0}, Misuse, "--steps 0"),
        ({"budget": "soon"}, Misuse, "--budget soon"),
        ({"nets": 9}, Misuse, "--nets 9"),
        ({"budget": 12}, Misuse, "--budget 12: expected steps"),
        ({"seeds": 2.5}, Misuse, "--seeds 2.5: expected at least 1, a whole number"),
        ({"steps": "2"}, Misuse, "--steps 2: expected at least 1, a whole number"),
        ({"pretexts": (["rotation"],)}, Misuse, "rotation, simclr, each once"),
        ({"keep": 0.5}, Misuse, "keep: not an option of advice"),
        ({"method": "bdw"}, Misuse, "method: not an option of advice"),
        ({"seed": -1}, Misuse, "--seed -1"),
        ({"encoder": "none"}, Misuse, "none"),
    ],
)
def test_what_is_refused(world, advised, changed, error, text):
    """In a line, before anything is computed."""
    with pytest.raises(error, match=text):
        curate.advise(world / "store", world / "target", out=world / "out", **SMALL | changed)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("cells/rotation/curated-0", {"right": None}),
        ("cells/rotation/curated-0", {"steps": 0}),
        ("cells/rotation/raw-0", {"seconds": None}),
        ("cells/rotation/untrained-0", {"right": ["x"]}),
        ("cells/pixels", {"right": [float("nan")]}),
        ("timings/rotation", {"plain": 0}),
    ],
)
def test_a_damaged_cell_is_named(world, advised, tmp_path, name, changed):
    """Its settings are right, and its result is none; nothing else is touched."""
    shutil.copytree(world / "out", tmp_path / "out")
    path = tmp_path / "out" / f"{name}.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({"cell": held["cell"], "result": held["result"] | changed}))
    with pytest.raises(CurateError, match=rf"{name}\.json: is damaged \(.*remove it, and its cell is computed again"):
        curate.advise(world / "store", world / "target", out=tmp_path / "out", **SMALL)


def test_folders_that_are_refused(world, tmp_path):
    """One with other files, one in the store, another target in the same one."""
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(Misuse, match="holds files"):
        curate.advise(world / "store", world / "target", out=tmp_path, **SMALL)
    with pytest.raises(Misuse, match="overlaps the store"):
        curate.advise(world / "store", world / "target", out=world / "store" / "out", **SMALL)


def test_a_store_without_an_index_is_advised_on_after_a_kill(world, tmp_path, monkeypatch):
    """The index that is made for it is there before the folder says whose it is."""
    shutil.copytree(world / "store", tmp_path / "store", ignore=shutil.ignore_patterns(".curate", "features"))
    asked = (tmp_path / "store", world / "unlabelled")
    with monkeypatch.context() as patch:
        patch.setattr(advise.output_dir, "keep", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            curate.advise(*asked, out=tmp_path / "out", **SMALL)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.parquet"]
    assert curate.advise(*asked, out=tmp_path / "out", **SMALL).verdict == "undecided"


def test_an_unlabelled_target_is_undecided(world, tmp_path):
    """No pilot, and so no gain; what the classifier found and the hours are there."""
    found = curate.advise(world / "store", world / "unlabelled", out=tmp_path / "out", **SMALL)
    assert found.verdict == "undecided"
    assert "no labels" in found.sentence
    assert (found.expected_gain, found.interval, found.steps) == (None, None, None)
    assert found.kept > 200
    assert len(found.hours) == 3
    assert not (tmp_path / "out" / "cells").exists()


def test_nothing_alike_or_all_of_it_needs_no_pilot(world, tmp_path):
    """A store of noise alone, and one of digits alone."""
    noise = np.random.default_rng(2).integers(0, 256, (120, 16, 16), np.uint8)
    write_shards(tmp_path / "noise", ([(f"{i:04d}.png", toyset.png(x))] for i, x in enumerate(noise)))
    for store, why in ((tmp_path / "noise", "hardly any image"), (world / "digits", "most of the store")):
        name = store.name
        found = curate.advise(store, world / "target", out=tmp_path / f"{name}-out", **SMALL)
        assert (found.verdict, found.command, found.hours) == ("dont", "", {})
        assert why in found.sentence
        assert not (tmp_path / f"{name}-out" / "timings").exists()
        (note,) = found.notes
        assert note.startswith("no pilot was trained, for what the classifier found decides; ")
        assert ("--method classifier --keep COUNT" in note) == (why == "hardly any image")


def test_the_command_line(world, advised):
    """JSON for programs, a page for people; the command that curates names what was asked for."""
    words = ["advise", "--store", str(world / "store"), "--target", str(world / "target"), "--out", str(world / "out")]
    words += ["--pretext", "rotation", "--seeds", "2", "--steps", "2", "--processes", "1", "--device", "cpu"]
    ran = CliRunner().invoke(command, [*words, "--budget", "1000", "--json"], catch_exceptions=False)
    found = json.loads(ran.stdout)
    assert (found["verdict"], found["kept"]) == (advised.verdict, advised.kept)
    assert set(found) >= {"verdict", "expected_gain", "interval", "hours", "pi", "kept", "purity"}
    page = CliRunner().invoke(command, words, catch_exceptions=False).stdout
    assert advised.sentence in page
    if advised.command:
        assert advised.command.startswith(f"curate run --store {world / 'store'} --target {world / 'target'} ")
        assert "--method classifier" in advised.command
