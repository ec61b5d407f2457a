"""`curate compare-baselines`: the sets, the two regimes, the intervals, the costs, and what is refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toyset
from click.testing import CliRunner
from PIL import Image
from toyset import indexed, make_data, run_on

from curate.cli import curate as command
from curate.config.schema import from_options
from curate.data.decode import Decoder
from curate.data.target import load_split, open_target
from curate.errors import Misuse, RunMismatch
from curate.evaluation.evaluate import Protocol
from curate.evaluation.readings import Reading
from curate.experiments.baselines.against import ComparisonSettings, Workspace, _trainings, against, nearest, usual_taps
from curate.experiments.baselines.report import cell_name, costs, figures, page, verdicts
from curate.runs.provenance import read_run
from shards.indexing import domains
from shards.indexing.domains import Domains
from shards.stream import samples

#: Images of the toy store; of these the first 40 are called the target's own.
STORE, OWN = 64, 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with domains, a target, and a run that keeps some of its images."""
    folder = make_data(tmp_path_factory.mktemp("against"), STORE)
    index = indexed(folder / "store")
    codes = np.where(np.arange(STORE) < OWN, 0, 1).astype(np.int32)
    domains.save(index, Domains(("digits", "others"), codes), folder / "store" / domains.FILE_NAME)
    run_on(folder, folder / "run", epochs=2, rewrite="end")
    return folder


@pytest.fixture(scope="module")
def said(data: Path) -> dict[str, Any]:
    """Everything against everything, two seeds."""
    settings = ComparisonSettings(("raw", "random", "nn", "oracle"), seeds=2, domain="digits")
    return against(data / "run", str(data / "target"), settings, data / "out")


def test_subsets_are_of_the_curated_size_and_oracle_of_its_domain(said: dict[str, Any]) -> None:
    """64 images in all, 40 of the target's own domain; random and nn as many as were kept."""
    images = said["images"]["epochs"]
    assert images["raw"] == STORE
    assert images["oracle"] == OWN
    assert images["curated"] == images["random"] == images["nn"] == said["kept"]
    assert 0 < said["kept"] < STORE


def test_equal_epochs_and_equal_steps_are_what_they_say(said: dict[str, Any]) -> None:
    """Batches of 16, 2 epochs: 64 images are 4 steps an epoch; at equal steps all take the raw store's 8."""
    assert said["epochs"] == 2
    assert said["steps"]["epochs"] == {name: 2 * -(-n // 16) for name, n in said["images"]["epochs"].items()}
    assert set(said["steps"]["steps"].values()) == {8}
    assert said["accuracy"]["steps"]["raw"] == said["accuracy"]["epochs"]["raw"]
    assert list(said["steps"]) == ["steps", "epochs"]  # equal computing first


def test_at_equal_steps_the_rate_follows_the_steps(data: Path, said: dict[str, Any]) -> None:
    """Dropped after 3/7 and 5/7 of the raw store's epochs, in steps, for every set; of 2 epochs of 4 steps after the
    first. By epochs a small set would train at the full rate for nearly all of its steps."""
    for kind in ("curated-8-steps-0", "oracle-8-steps-1", "raw-8-steps-0"):
        train = read_run(data / "out" / "networks" / kind)["configuration"]
        # the VAE's rate never drops; a ResNet's would
        assert (train["schedule"], train["steps"], train["lr_drops"]) == ("step", 8, [])
    config = from_options(read_run(data / "run")["configuration"])
    falling = replace(config, train=replace(config.train, lr_drops=(1,)))
    cells = _trainings(ComparisonSettings(("raw",), seeds=1), falling, "id", indexed(data / "store"))
    assert cells["curated-steps-0"].options["lr_drops"] == (4,)
    assert cells["curated-steps-0"].steps == 8
    assert "lr_drops" not in cells["curated-epochs-0"].options
    assert list(cells) == ["curated-steps-0", "raw-steps-0", "curated-epochs-0"]


def test_what_is_not_trained_stands_beside(said: dict[str, Any]) -> None:
    """The network as it was drawn and the pixels, whose score is the same for every seed and in both regimes."""
    for regime in ("steps", "epochs"):
        accuracy = said["accuracy"][regime]
        assert set(accuracy) == {"curated", "raw", "random", "nn", "oracle", "untrained", "pixels"}
        assert len(set(accuracy["pixels"])) == 1
    assert said["accuracy"]["steps"]["untrained"] == said["accuracy"]["epochs"]["untrained"]
    assert set(said["difference"]["steps"]) == {"raw", "random", "nn", "oracle", "untrained", "pixels"}


def test_the_cost_of_choosing_is_part_of_the_whole(said: dict[str, Any]) -> None:
    """The raw store costs nothing to choose; curation costs what the run's epochs took."""
    for regime in ("epochs", "steps"):
        for kind, seconds in said["seconds"][regime].items():
            assert (seconds["curation"] > 0) == (kind != "raw")
            assert seconds["total"] == pytest.approx(seconds["curation"] + seconds["training"], abs=0.011)


def test_a_second_call_trains_nothing_and_says_the_same(data: Path, said: dict[str, Any]) -> None:
    """No file below the folder is written again, but for the two results."""
    before = {path: path.stat().st_mtime_ns for path in (data / "out").rglob("*") if path.is_file()}
    settings = ComparisonSettings(("raw", "random", "nn", "oracle"), seeds=2, domain="digits")
    assert against(data / "run", str(data / "target"), settings, data / "out") == said
    changed = {path.name for path, then in before.items() if path.stat().st_mtime_ns != then}
    assert changed == {"against.json", "against.md"}


def test_another_comparison_in_the_same_folder_is_refused(data: Path, said: dict[str, Any]) -> None:
    """Other epochs are another comparison, and that is said before anything is trained."""
    with pytest.raises(RunMismatch, match=r"epochs was .*, is 1"):
        against(data / "run", str(data / "target"), ComparisonSettings(("raw",), seeds=2, epochs=1), data / "out")


def test_nearest_images_are_nearest_by_hand(data: Path, said: dict[str, Any]) -> None:
    """Squared distances of all pairs of normalised pixels, by numpy."""
    config = from_options(read_run(data / "run")["configuration"])
    index = indexed(data / "store")
    rows = nearest(Workspace(data / "run", str(data / "target"), data / "out", config, "cpu"), index, 10)
    decoder = Decoder.of(config.images)
    own = load_split(open_target(data / "target"), "train", decoder).pixels.numpy().reshape(40, -1).astype(float)
    store = []
    for sample in samples(index, np.arange(len(index))):
        image = Image.open(io.BytesIO(sample["png"])).resize((8, 8), Image.Resampling.BILINEAR)
        store.append(np.asarray(image, float).ravel())
    squared = ((np.array(store)[:, None] - own[None]) ** 2).sum(axis=2).min(axis=1)
    assert squared[rows].max() <= np.sort(squared)[9] * 1.01


def right(share: float, images: int = 40) -> list[float]:
    """The first of so many test images are told."""
    return [1.0] * round(share * images) + [0.0] * (images - round(share * images))


def told(curated: list[float], raw: list[float]) -> dict[str, Any]:
    """What is said of these shares by seed, of 40 test images."""
    shares = {"curated": curated, "raw": raw, "untrained": raw, "pixels": raw}
    cells = {
        cell_name(kind, "steps", seed): cell(right(share))
        for kind, each in shares.items()
        for seed, share in enumerate(each)
    }
    return figures(["steps"], ["curated", "raw"], len(raw), cells, {}, 5.0)


def test_one_seed_is_told_by_its_images() -> None:
    """36 of 40 against 4: as McNemar's table would; one image more is none."""
    alone = "(one seed: another training may say otherwise)"
    assert verdicts(told([0.9], [0.1]), "steps", "pool")[0] == f"curated against raw: better {alone}; 5.0 s more in all"
    assert "not told apart" in verdicts(told([0.925], [0.9]), "steps", "pool")[0]


def test_one_image_of_many_is_no_verdict_though_all_seeds_agree() -> None:
    """Rounded, and over seeds alone, this difference had an interval of width 0."""
    found = told([0.925] * 3, [0.9] * 3)
    assert found["difference"]["steps"]["raw"]["mean"] == pytest.approx(2.5)
    assert found["difference"]["steps"]["raw"]["verdict"] == "not told apart"
    assert found["difference"]["steps"]["raw"]["half_width"] > 2.5


def test_differences_are_taken_seed_by_seed_and_image_by_image() -> None:
    """Seeds that move both alike cancel: the interval of the difference is narrower than either set's own."""
    found = told([0.4, 0.6, 0.8], [0.2, 0.4, 0.6])
    less, own = found["difference"]["steps"]["raw"], found["interval"]["steps"]
    assert less["mean"] == pytest.approx(20)
    assert less["half_width"] < min(own["curated"]["half_width"], own["raw"]["half_width"])
    assert verdicts(found, "steps", "pool")[0] == "curated against raw: better; 5.0 s more in all"


def test_random_subsets_cost_their_mean() -> None:
    """Two subsets in 2 and 4 seconds; another kind's do not count."""
    made = {"random-0": {"seconds": 2.0}, "random-1": {"seconds": 4.0}, "nn": {"seconds": 50.0}}
    assert costs("random", [cell([1.0])], made, 9.0) == {"curation": 3.0, "training": 7.0, "total": 10.0}
    assert costs("curated", [cell([1.0])], made, 9.0)["curation"] == 9.0


def test_the_page_has_every_mean(said: dict[str, Any]) -> None:
    """As two decimals, with its interval."""
    text = page(said)
    for found in (*said["interval"].values(), *said["difference"].values()):
        for one in found.values():
            assert f"{one['mean']:.2f} ± {one['half_width']:.2f}" in text
    assert "A verdict is of this budget" in text


def test_several_readings_stand_side_by_side(data: Path, said: dict[str, Any]) -> None:
    """Nothing is trained again but what these cells ask for; each tap and count of labels has its own table."""
    readings = (Reading("pool", 2), Reading("pixels"))
    settings = ComparisonSettings(
        ("raw",), seeds=1, readings=readings, draws=3, steps=5, protocol=Protocol(standardise=True)
    )
    found = against(data / "run", str(data / "target"), settings, data / "several")
    assert list(found["readings"]) == ["pool, 2 labels a class", "pixels, all labels"]
    assert found["steps"] == {"steps": {"curated": 5, "raw": 5}}
    assert set(found["accuracy"]) == {"steps"}
    for reading in readings:
        assert f"As many steps of each: {reading.name}" in page(found)
    of_pixels = found["readings"]["pixels, all labels"]["accuracy"]["steps"]
    assert of_pixels["raw"] == of_pixels["curated"]


def test_a_folder_is_of_one_run_and_one_target(data: Path, said: dict[str, Any], tmp_path: Path) -> None:
    """Accuracies on another target are other accuracies, though the trainings are the same."""
    toyset.make_target(tmp_path / "other", 30)
    with pytest.raises(RunMismatch, match=r"holds another evaluation: target was .*, is .*; name a new --out$"):
        against(data / "run", str(tmp_path / "other"), ComparisonSettings(("raw",), seeds=2), data / "out")


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("target/val", "overlaps the target"),
        ("store/new", "overlaps the store"),
        ("run/curated", "overlaps the run"),
        ("", "overlaps the target"),
        ("strange", r"holds files, but no comparison\.json"),
    ],
)
def test_a_folder_that_is_not_its_own_is_refused_and_nothing_written(data: Path, out: str, message: str) -> None:
    """Shards written into a split of the target would be read as the target's."""
    (data / "strange").mkdir(exist_ok=True)
    (data / "strange" / "mine.txt").write_text("")
    before = sorted(data.rglob("*"))
    with pytest.raises(Misuse, match=f"^--out .*{message}"):
        against(data / "run", str(data / "target"), ComparisonSettings(("random",)), data / out)
    assert sorted(data.rglob("*")) == before


def test_a_pre_training_in_place_of_a_run_is_said(data: Path, said: dict[str, Any]) -> None:
    """One of those that the comparison itself left."""
    net = data / "out" / "networks" / "raw-8-steps-0"
    with pytest.raises(
        Misuse, match="has no curated shards; --against wants the folder of a finished `curate run`, not"
    ):
        against(net, str(data / "target"), ComparisonSettings(("raw",)))
    assert not (net / "evaluations").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ComparisonSettings(("raw", "best")), "expected some of raw, random, nn, oracle"),
        (ComparisonSettings(()), "expected some of raw"),
        (ComparisonSettings(("raw", "raw")), "each once"),
        (ComparisonSettings(("oracle",)), "the run was told no domain"),
        (ComparisonSettings(("raw",), seeds=0), "--seeds 0: expected at least 1"),
        (
            ComparisonSettings(("raw",), readings=(Reading("layer2"),)),
            "layer2: not a stage of this network; known: pool",
        ),
        (ComparisonSettings(("raw",), steps=5, epochs=2), "--steps and --epochs both say how long"),
        (
            ComparisonSettings(("raw",), readings=(Reading("pool"), Reading("pool"))),
            "--tap, --labels-per-class: each once",
        ),
        (ComparisonSettings(("raw",), domain="digits"), "--domain digits: only for --against oracle"),
    ],
)
def test_what_cannot_be_meant_is_one_line(data: Path, settings: ComparisonSettings, message: str) -> None:
    """Before anything is trained."""
    with pytest.raises(Misuse, match=message):
        against(data / "run", str(data / "target"), settings, data / "refused")
    assert not (data / "refused").exists()


def test_the_verb_prints_the_page_or_its_json(data: Path, said: dict[str, Any]) -> None:
    """`evaluate --against` as it was, with a note; the same folder, so nothing is trained."""
    words = ["evaluate", str(data / "run"), "--target", str(data / "target"), "--out", str(data / "out")]
    words += ["--against", "raw,random,nn,oracle", "--seeds", "2", "--domain", "digits"]
    shown = CliRunner().invoke(command, words, catch_exceptions=False)
    assert "Did curation pay?" in shown.stdout
    assert "`curate compare-baselines` does this now" in shown.stderr
    asjson = CliRunner().invoke(command, [*words, "--json"], catch_exceptions=False)
    assert json.loads(asjson.stdout) == said


def test_compare_baselines_is_a_verb(data: Path) -> None:
    """Of the VAE the one tap; 5 labels a class and all of them."""
    words = ["compare-baselines", str(data / "run"), "--target", str(data / "target"), "--out", str(data / "verb")]
    words += ["--sets", "raw", "--seeds", "1", "--steps", "3", "--json"]
    found = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
    assert list(found["readings"]) == ["pool, 5 labels a class", "pool, all labels"]
    assert found["sets"] == ["curated", "raw"]
    assert usual_taps(data / "run") == ["pool"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "2"], "--seeds: only with --against"),
        (["--against", "raw", "--grid", "small"], "--grid: not with --against"),
        (["--against", "raw", "--seed", "1"], "--seed: not with --against"),
        (["--against", "raw", "--epoch", "1", "--patience", "1"], "--patience: not with --epoch"),
        (["--against", "raw", "--protocol", "finetune"], "--protocol finetune: not with --against"),
    ],
)
def test_options_of_other_protocols_are_refused(data: Path, words: list[str], message: str) -> None:
    """One line that names them."""
    with pytest.raises(Misuse, match=message):
        CliRunner().invoke(
            command, ["evaluate", str(data / "run"), "--target", str(data / "target"), *words], catch_exceptions=False
        )


def cell(told: list[float]) -> dict[str, Any]:
    """What a training found, of 7 seconds."""
    return {"right": {"pool": told}, "images": 5, "epochs": 1, "steps": 1, "seconds": 7.0}
