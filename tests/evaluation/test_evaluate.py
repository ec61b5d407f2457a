"""Scoring what a pre-training left: which epochs compete, the untrained network, fine-tuning, the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toyset
from click.testing import CliRunner

from curate.cli import curate
from curate.data.decode import Decoder
from curate.data.target import load_split, open_target
from curate.errors import CurateError, Misuse, RunMismatch
from curate.evaluation import logistic
from curate.evaluation.evaluate import FinetuneResult, Protocol, evaluate, features_of, finetune, untrained
from curate.evaluation.grid import Cell, Grid
from curate.evaluation.readings import Reading, read
from curate.evaluation.trained import Trained, open_trained
from curate.progress import epoch_bar
from curate.runs import checkpoint
from curate.runs.pretrain import pretrain
from shards.errors import Busy
from shards.io.locks import locked

CPU = Protocol(device="cpu")
GRID = Grid((Cell(1e-2, 0.0, 5), Cell(1e-3, 0.0, 5)), epochs=2, batch=16)
NETWORK: dict[str, Any] = {
    **{"size": 16, "crop": 16, "colour": "grey", "width": 4, "batch": 16, "epochs": 3, "lr": 0.05},
    **{"workers": 0, "device": "cpu"},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-training of three epochs on 48 digits, and a target with 40 others in each split."""
    folder = tmp_path_factory.mktemp("evaluate")
    toyset.make_data(folder, 48)
    pretrain(str(folder / "store"), folder / "net", NETWORK)
    return folder


def tuned(world: Path, out: Path | None, **changes: Any) -> FinetuneResult:
    how: dict[str, Any] = {"grid": GRID, "seed": 0, "device": "cpu", "epoch": 2, **changes}
    return finetune(world / "net", str(world / "target"), out=out, **how)


def opened(world: Path) -> Trained:
    return open_trained(world / "net", "target", open_target(world / "target"), "cpu")


class TestLogistic:
    def test_the_best_epoch_by_val_is_scored(self, world: Path) -> None:
        found = evaluate(world / "net", str(world / "target"), CPU)
        assert list(found.val_by_epoch) == [1, 2, 3]
        assert found.epoch == logistic.best_epoch(found.val_by_epoch)
        assert found.val_accuracy == found.val_by_epoch[found.epoch]
        alone = evaluate(world / "net", str(world / "target"), replace(CPU, epoch=found.epoch))
        assert alone == replace(found, val_by_epoch={found.epoch: found.val_accuracy})
        assert (found.features, found.classes, found.tap, found.solver) == (16, 10, "pool", "sklearn")
        assert 0 < found.gradient <= 1e-4  # scikit-learn's tolerance

    def test_at_layer2_the_features_are_the_flattened_maps(self, world: Path) -> None:
        """Width 4 has 8 channels there, at half the 16 px: 8 * 8 * 8."""
        found = evaluate(world / "net", str(world / "target"), replace(CPU, tap="layer2", epoch=1, solver="torch"))
        assert (found.features, found.solver) == (512, "torch")

    def test_with_patience_it_stops_looking(self, world: Path) -> None:
        """After the first epoch without a better one; which epochs that leaves is counted from the whole."""
        whole = evaluate(world / "net", str(world / "target"), CPU).val_by_epoch
        expected, best = {1: whole[1]}, whole[1]
        for epoch in (2, 3):
            expected[epoch] = whole[epoch]
            if whole[epoch] <= best:
                break
            best = whole[epoch]
        assert evaluate(world / "net", str(world / "target"), replace(CPU, patience=1)).val_by_epoch == expected

    def test_epoch_0_is_the_network_as_it_was_drawn(self, world: Path) -> None:
        trained = opened(world)
        drawn, first = trained.network(0).state_dict(), trained.network(1).state_dict()
        assert int(drawn["stages.stem.1.num_batches_tracked"]) == 0
        assert int(first["stages.stem.1.num_batches_tracked"]) == 3  # 48 images in batches of 16
        assert not torch.equal(drawn["head.weight"], first["head.weight"])
        stored = checkpoint.read(checkpoint.folder(world / "net", 1) / "model.safetensors")
        assert torch.equal(stored["head.weight"], first["head.weight"])
        assert evaluate(world / "net", str(world / "target"), replace(CPU, epoch=0)).epoch == 0

    def test_epoch_0_is_a_baseline(self, world: Path) -> None:
        """Its batch norms are calibrated: features of the first images have a spread, as a trained network's have, and
        another crop of the same target gives the same network."""
        trained = opened(world)
        once, again = untrained(trained), untrained(trained)
        for name, x in once.state_dict().items():
            assert torch.equal(x, again.state_dict()[name])
        drawn = trained.network(0).state_dict()
        assert not torch.equal(
            once.state_dict()["stages.layer3.bn2.running_var"], drawn["stages.layer3.bn2.running_var"]
        )
        assert torch.equal(once.state_dict()["head.weight"], drawn["head.weight"])
        # After their own batch norm every image has features of the order of one, whatever the depth.
        spread = features_of(trained, 0, CPU).train.x.std()
        assert 0.1 < spread < 10

    def test_taps_and_labels_are_read_side_by_side(self, world: Path) -> None:
        """All labels as `evaluate`; a few at the last epoch, which nothing picks; pixels are of every epoch alike."""
        readings = [Reading("pool"), Reading("layer2:4x4", 2), Reading("pixels:9x9", 2)]
        found = read(opened(world), readings, CPU, draws=3)
        whole = evaluate(world / "net", str(world / "target"), CPU)
        assert (found[0].accuracy, found[0].epoch, found[0].deviation) == (whole.test_accuracy, whole.epoch, None)
        assert [one.epoch for one in found[1:]] == [3, 3]
        for one in found:
            assert one.right.shape == (40,)
            assert one.right.mean() == pytest.approx(one.accuracy)
        first = read(opened(world), readings[2:], replace(CPU, epoch=1), draws=3)[0]
        assert first.right.tolist() == found[2].right.tolist()

    def test_labels_with_gaps_become_classes_in_order(self, world: Path, tmp_path: Path) -> None:
        """Digits 0 to 9 under the labels 5, 15, ..., 95."""
        pictures, labels = toyset.digits()
        for number, split in enumerate(("train", "val", "test")):
            rows = range(100 * number, 100 * number + 40)
            samples = [
                [(f"{i}.png", toyset.png(pictures[i])), (f"{i}.cls", str(5 + 10 * labels[i]).encode())] for i in rows
            ]
            toyset.write_shards(tmp_path / split, samples)
        trained = open_trained(world / "net", "t", open_target(tmp_path), "cpu")
        assert trained.classes == 10
        assert trained.splits["val"][1].tolist() == labels[100:140].tolist()

    @pytest.mark.parametrize(
        ("change", "kind", "text"),
        [
            ({"epoch": 7}, CurateError, r"^--epoch 7: not finished; there are 1 to 3$"),
            ({"tap": "layer9"}, Misuse, r"^layer9: not a stage of this network; known: stem, layer1"),
            ({"solver": "newton"}, Misuse, r"^--solver newton: unknown"),
            ({"device": "tpu"}, CurateError, r"^--device tpu: "),
        ],
    )
    def test_what_cannot_be_done_is_said(
        self, world: Path, change: dict[str, Any], kind: type[Exception], text: str
    ) -> None:
        with pytest.raises(kind, match=text):
            evaluate(world / "net", str(world / "target"), replace(CPU, **change))

    def test_a_run_without_an_epoch_and_a_target_without_labels_are_said(self, world: Path, tmp_path: Path) -> None:
        (tmp_path / "net").mkdir()
        (tmp_path / "net" / "run.json").write_bytes((world / "net" / "run.json").read_bytes())
        with pytest.raises(CurateError, match=r"net: no finished epoch; train first with `curate run` or"):
            evaluate(tmp_path / "net", str(world / "target"), CPU)
        toyset.make_target(tmp_path / "bare", labelled=False)
        with pytest.raises(CurateError, match=r"bare/train: no labels \(\.cls members\); evaluation needs a labelled"):
            evaluate(world / "net", str(tmp_path / "bare"), CPU)


class TestFinetune:
    def test_it_starts_from_the_epoch_named_and_says_all_that_a_table_needs(self, world: Path, tmp_path: Path) -> None:
        found = tuned(world, tmp_path / "out")
        assert found.epoch == 2
        assert found.cell in GRID.cells
        assert 1 <= found.epochs <= 2
        assert 0 <= found.test_accuracy <= 1
        assert found.seconds > 0
        assert found.folder == str(tmp_path / "out")
        assert tuned(world, tmp_path / "other", epoch=1).val_accuracy != found.val_accuracy

    def test_without_an_epoch_the_best_by_logistic_regression_is_taken(self, world: Path, tmp_path: Path) -> None:
        best = evaluate(world / "net", str(world / "target"), CPU).epoch
        assert tuned(world, tmp_path / "a", epoch=None).epoch == best
        other = 1 + best % 3
        assert tuned(world, tmp_path / "b", epoch=replace(CPU, epoch=other)).epoch == other  # the protocol is heeded

    def test_a_second_call_returns_the_first_ones_result_and_another_seed_another(
        self, world: Path, tmp_path: Path
    ) -> None:
        found = tuned(world, tmp_path / "out")
        assert tuned(world, tmp_path / "out", progress=_refuse) == found
        again = tuned(world, tmp_path / "again")
        assert replace(again, seconds=found.seconds, folder=found.folder) == found
        for name in ("search.json", "result.json"):
            assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
        assert tuned(world, tmp_path / "seed", seed=1).val_accuracy != found.val_accuracy

    def test_without_a_folder_each_search_gets_one_of_its_own_in_the_run(self, world: Path) -> None:
        grid = replace(GRID, epochs=1)
        first, second = tuned(world, None, grid=grid), tuned(world, None, grid=grid, seed=1)
        assert Path(first.folder).parent == world / "net" / "evaluations"
        assert first.folder != second.folder
        assert tuned(world, None, grid=grid) == first

    def test_a_folder_of_another_search_is_refused_and_both_values_shown(self, world: Path, tmp_path: Path) -> None:
        tuned(world, tmp_path / "out")
        with pytest.raises(RunMismatch, match=r"holds another search: seed was 0, is 3; name a new --out$"):
            tuned(world, tmp_path / "out", seed=3)
        with pytest.raises(RunMismatch, match=r"holds another search: grid was .*'epochs': 2.*, is .*'epochs': 9"):
            tuned(world, tmp_path / "out", grid=replace(GRID, epochs=9))

    def test_a_damaged_record_and_a_folder_in_use_are_said(self, world: Path, tmp_path: Path) -> None:
        (tmp_path / "search.json").write_text("{}")
        with pytest.raises(
            CurateError, match=r"search\.json: is damaged \(.*missing required field `asked`\); name a new --out$"
        ):
            tuned(world, tmp_path)
        for text, what in (
            (
                '{"format": 1, "asked": {}, "epoch": "2"}',
                r"is damaged \(Expected `int`, got `str` - at `\$\.epoch`\)",
            ),
            ('{"format": 1, "asked": {}, "epoch": -1}', r"Expected `int` >= 0 - at `\$\.epoch`\)"),
            ('{"format": 2, "asked": {}, "epoch": 2}', "version 2, this release reads 1; name a new --out$"),
        ):
            (tmp_path / "search.json").write_text(text)
            with pytest.raises(CurateError, match=rf"search\.json: .*{what}"):
                tuned(world, tmp_path)
        with locked(tmp_path / "held"), pytest.raises(Busy, match="held"):
            tuned(world, tmp_path / "held")

    def test_a_folder_that_is_not_its_own_is_refused_and_nothing_written(self, world: Path, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("")
        for out, what in (
            (world / "target" / "val", "overlaps the target"),
            (world / "store" / "new", "overlaps the store"),
            (world / "net" / "new", "overlaps the run"),
            (tmp_path, r"holds files, but no search\.json"),
        ):
            before = sorted(out.parent.rglob("*"))
            with pytest.raises(Misuse, match=rf"^--out .*{what}"):
                tuned(world, out)
            assert sorted(out.parent.rglob("*")) == before

    def test_damaged_times_are_said_at_once_even_of_a_finished_search(self, world: Path, tmp_path: Path) -> None:
        found = tuned(world, tmp_path / "out")
        (tmp_path / "out" / "seconds.json").write_text('{"format": 1, "seconds": {"a": "x"}}')
        with pytest.raises(CurateError, match=r"Expected `float`, got `str` .*\); remove it; only times"):
            tuned(world, tmp_path / "out")
        (tmp_path / "out" / "seconds.json").unlink()
        assert tuned(world, tmp_path / "out", progress=_refuse) == replace(found, seconds=0.0)

    def test_a_class_that_train_lacks_is_named(self, world: Path, tmp_path: Path) -> None:
        toyset.make_target(tmp_path / "t")
        pictures, labels = toyset.digits()
        rows = [i for i in range(200, 300) if labels[i] != 4]
        for path in (tmp_path / "t" / "train").iterdir():
            path.unlink()
        toyset.write_shards(
            tmp_path / "t" / "train",
            [[(f"{i}.png", toyset.png(pictures[i])), (f"{i}.cls", str(labels[i]).encode())] for i in rows],
        )
        with pytest.raises(CurateError, match=r"^train: 1 of 10 classes have no example \(4\); split by class$"):
            finetune(world / "net", str(tmp_path / "t"), GRID, tmp_path / "out", 0, "cpu", epoch=1)


def _refuse(part: str, n_done: int, total: int) -> None:
    raise AssertionError(f"{part} was trained again")


class TestCommand:
    def test_fine_tuning_prints_its_result_as_json(self, world: Path, tmp_path: Path) -> None:
        arguments = [
            "--protocol",
            "finetune",
            "--epochs",
            "2",
            "--epoch",
            "1",
            "--halving",
            "--out",
            str(tmp_path / "o"),
        ]
        said = json.loads(run(world, *arguments, "--json"))
        assert said["epoch"] == 1
        assert set(said["cell"]) == {"lr", "weight_decay", "patience"}
        assert 0 <= said["test_accuracy"] <= 1
        kept = json.loads((tmp_path / "o" / "search.json").read_text())["asked"]["grid"]
        assert (kept["epochs"], kept["halving"], len(kept["cells"])) == (2, True, 2)
        text = run(world, *arguments)
        assert text.startswith(f"test {said['test_accuracy']:.2%}, val {said['val_accuracy']:.2%}: lr=")

    def test_epoch_0_and_the_solver_are_options_of_logistic_regression(self, world: Path) -> None:
        said = json.loads(run(world, "--epoch", "0", "--solver", "torch", "--standardise", "--json"))
        assert (said["epoch"], said["solver"]) == (0, "torch")

    def test_options_of_fine_tuning_alone_are_misuse_elsewhere(self, world: Path) -> None:
        with pytest.raises(
            Misuse, match=r"^--grid, --halving: only for --protocol finetune; add it, or leave them out$"
        ):
            run(world, "--halving", "--grid", "paper")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--seed 3", "--seed: only for --protocol finetune"),
            ("--seed 0", "--seed: only for --protocol finetune"),
            ("--draws 2", "--draws: only with --labels-per-class"),
            ("--epoch 1 --patience 2", "--patience: not with --epoch, which leaves one to look at"),
            (
                "--protocol finetune --epoch 0 --tap pool --solver auto",
                "--tap, --solver: idle where --epoch says which",
            ),
            ("--protocol finetune --epoch 1 --standardise", "--standardise: idle where --epoch says which"),
        ],
    )
    def test_options_that_would_do_nothing_are_misuse(self, world: Path, words: str, message: str) -> None:
        """Even with the value that they have anyway."""
        with pytest.raises(Misuse, match=f"^{message}.*; "):
            run(world, *words.split())

    @pytest.mark.parametrize("counts", ["0", "5,x", ",", "-1", "1.5"])
    def test_labels_are_whole_numbers_or_all(self, world: Path, counts: str) -> None:
        with pytest.raises(Misuse, match=r"^--labels-per-class.*: expected whole numbers from 1 on, or all"):
            run(world, "--labels-per-class", counts)

    def test_several_taps_are_of_logistic_regression(self, world: Path) -> None:
        with pytest.raises(Misuse, match="several are for logistic regression alone"):
            run(world, "--tap", "pool,layer2", "--protocol", "finetune")

    def test_readings_are_a_line_each_or_json(self, world: Path) -> None:
        words = ("--tap", "pool,pixels", "--labels-per-class", "2,all", "--draws", "2", "--epoch", "2")
        said = json.loads(run(world, *words, "--json"))["readings"]
        expected = [(tap, count) for tap in ("pool", "pixels") for count in (2, None)]
        assert [(one["tap"], one["labels_per_class"]) for one in said] == expected
        lines = run(world, *words).splitlines()
        assert len(lines) == 4
        assert lines[3].endswith("pixels, all labels, epoch 2")


def run(world: Path, *arguments: str) -> str:
    place = ["evaluate", str(world / "net"), "--target", str(world / "target"), "--device", "cpu"]
    return CliRunner().invoke(curate, [*place, *arguments], catch_exceptions=False, standalone_mode=False).stdout


def test_the_bar_takes_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its total may change as more is known."""
    tell: Callable[[str, int, int], None]
    with epoch_bar("fine-tuning") as tell:
        tell("a cell", 1, 9)
        tell("final", 4, 5)
    assert capsys.readouterr().out == ""


def test_the_target_is_decoded_as_the_run_was(world: Path) -> None:
    trained = opened(world)
    images = load_split(open_target(world / "target"), "test", Decoder(16, "grey"))
    assert torch.equal(trained.splits["test"][0], images.pixels)
    assert trained.left_out == {}
