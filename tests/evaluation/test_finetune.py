"""Fine-tuning: a cell's training, the final training, and what a stopped search leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import toyset
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from curate.config.schema import ImageConfig, NetworkConfig
from curate.data.augment import Augment
from curate.errors import CurateError, NonFinite
from curate.evaluation import finetune
from curate.evaluation.finetune import Split, Task, Training, batches, classifier
from curate.evaluation.grid import Cell, Grid, Trace, ranked
from curate.evaluation.search import Found, search, spent, stored, total_seconds
from curate.models.networks import build
from curate.rng import generator
from shards.io.json_files import convert

FAST, SLOW, HOT = Cell(1e-2, 1e-4, 5), Cell(1e-4, 1e-4, 5), Cell(1e30, 0.0, 5)
GRID = Grid((SLOW, FAST), epochs=3, batch=16)
IMAGES = ImageConfig(size=16, crop=16, colour="grey", mirror=False, mean=(0.3,), deviation=(0.35,))


def split(first: int, count: int) -> Split:
    pictures, labels = toyset.digits()
    rows = slice(first, first + count)
    return Split(torch.from_numpy(pictures[rows])[:, None], torch.from_numpy(labels[rows]).long())


def backbone(name: str = "small") -> nn.Module:
    return build(NetworkConfig(network=name, width=4), IMAGES, generator(0, "network"))


def task(train: int = 80, seed: int = 0) -> Task:
    """``train`` digits, 40 others to look at."""
    return Task(backbone, split(0, train), split(400, 40), 10, Augment.of(IMAGES), GRID.batch, seed)


TEST = split(800, 60)


def files(folder: Path) -> dict[str, bytes]:
    """What a search leaves, without the times."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.json")}
    assert found.pop("seconds.json")
    return found


class Stop(Exception):
    """Thrown by a progress callback in place of a kill."""


def stopping_after(epochs: int) -> Callable[[str, int, int], None]:
    def tell(part: str, n_done: int, total: int) -> None:
        if n_done == epochs:
            raise Stop

    return tell


class TestTraining:
    def test_digits_are_learnt_in_seconds(self, tmp_path: Path) -> None:
        """Chance is 0.1; the untrained network with a trained head and body reaches three times that on 200 digits."""
        found = search(task(train=200), TEST, Grid((FAST,), epochs=4, batch=16), tmp_path)
        assert found.val_accuracy > 0.3
        assert found.test_accuracy > 0.3

    def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(self) -> None:
        def trace(seed: int) -> Trace:
            training = Training(task(seed=seed), FAST)
            training.epoch()
            training.epoch()
            return training.trace

        assert trace(0) == trace(0)
        assert trace(0) != trace(1)

    @pytest.mark.parametrize("change", [{"lr": 1e-3}, {"weight_decay": 0.1}])
    def test_rate_and_decay_are_the_cells(self, change: dict[str, Any]) -> None:
        traces = []
        for cell in (FAST, replace(FAST, **change)):
            traces.append(Training(task(train=32), cell))
            traces[-1].epoch()
        assert traces[0].trace != traces[1].trace

    def test_the_global_generator_has_no_part(self) -> None:
        torch.manual_seed(1)
        first = classifier(task()).head.weight
        torch.manual_seed(2)
        before = torch.random.get_rng_state()
        assert torch.equal(first, classifier(task()).head.weight)
        assert torch.equal(before, torch.random.get_rng_state())

    @pytest.mark.parametrize(
        ("name", "unused"),
        [("small", {"head"}), ("vae", {"to_mean", "to_log_variance", "decode", "to_pixels"})],
    )
    def test_the_whole_network_moves_but_for_what_the_features_do_not_use(self, name: str, unused: set[str]) -> None:
        training = Training(replace(task(), backbone=partial(backbone, name)), FAST)
        before = {name: x.detach().clone() for name, x in training.network.named_parameters()}
        training.epoch()
        moved = {name for name, x in training.network.named_parameters() if not torch.equal(x, before[name])}
        assert set(before) - moved == {f"backbone.{part}.{kind}" for part in unused for kind in ("weight", "bias")}

    def test_running_statistics_move_in_training_and_are_used_unmoved_in_evaluation(self) -> None:
        made = task()
        network = classifier(made)
        statistics = [x.clone() for name, x in network.named_buffers()]
        alone = finetune.evaluate(made, network, split(400, 1))
        among = [finetune.evaluate(made, network, split(400, n))[1] * n for n in (1, 2)]
        other = finetune.evaluate(made, network, split(401, 1))
        assert all(torch.equal(x, y) for x, y in zip(statistics, network.buffers()))
        # Losses of images add up only where no image sees another.
        assert among[1] - among[0] == pytest.approx(other[1], rel=1e-4)
        assert alone[1] == pytest.approx(among[0])
        finetune.train_epoch(made, network, finetune.adam(network, FAST), made.train, 1)
        assert not all(torch.equal(x, y) for x, y in zip(statistics, network.buffers()))

    def test_the_rate_falls_after_more_than_patience_epochs_without_a_smaller_val_loss(self) -> None:
        """Held against a count by hand; 32 digits are overfitted soon, so the val loss rises."""
        training = Training(task(train=32), replace(FAST, patience=1))
        for _ in range(12):
            training.epoch()
        drops, best, worse = [], float("inf"), 0
        for epoch, loss in enumerate(training.trace.val_loss, start=1):
            worse = 0 if loss < best * (1 - 1e-4) else worse + 1  # torch's threshold
            best = min(best, loss) if worse == 0 else best
            if worse == 2:
                drops, worse = [*drops, epoch], 0
        assert training.trace.drops == tuple(drops)
        assert drops
        assert training.optimiser.param_groups[0]["lr"] == pytest.approx(1e-2 * 0.1 ** len(drops))

    def test_a_loss_that_is_no_number_ends_the_training_and_is_recorded(self) -> None:
        training = Training(task(), HOT)
        while not training.trace.covers(5):
            training.epoch()
        assert training.trace.failed is not None
        assert len(training.trace.val_accuracy) == training.trace.failed - 1

    @given(n=st.integers(2, 50), size=st.integers(2, 20), epoch=st.integers(1, 3))
    @settings(max_examples=60, deadline=None)
    def test_an_epoch_has_each_image_once_and_no_batch_of_one(self, n: int, size: int, epoch: int) -> None:
        parts = batches(n, size, 7, epoch)
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        assert all(2 <= len(part) <= size + 1 for part in parts)
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)

    def test_two_epochs_have_two_orders(self) -> None:
        assert not torch.equal(torch.cat(batches(30, 8, 0, 1)), torch.cat(batches(30, 8, 0, 2)))


class TestFinal:
    def test_it_replays_the_drops_on_train_and_val(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Drops after epochs 1 and 3 of 4: the rate of each epoch, by hand; 80 + 40 images."""
        seen, real = [], finetune.train_epoch

        def spy(made: Task, network: nn.Module, optimiser: Any, part: Split, epoch: int) -> float:
            seen.append((epoch, len(part), optimiser.param_groups[0]["lr"]))
            return real(made, network, optimiser, part, epoch)

        monkeypatch.setattr(finetune, "train_epoch", spy)
        finetune.final(task(), FAST, 4, (1, 3), lambda: None)
        assert [(epoch, n) for epoch, n, _ in seen] == [(1, 120), (2, 120), (3, 120), (4, 120)]
        assert [rate for *_, rate in seen] == pytest.approx([1e-2, 1e-3, 1e-3, 1e-4])

    def test_a_search_hands_it_the_best_epoch_and_the_drops_before_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A drop after the best epoch itself changes nothing any more, and is left out."""
        trace = Trace((0.1, 0.5, 0.3, 0.6, 0.6), (2.0, 1.9, 2.0, 1.8, 1.9), (2, 4))
        store(tmp_path, FAST, trace)
        seen = []
        real = finetune.final
        monkeypatch.setattr("curate.evaluation.search.final", lambda *a: seen.append(a[1:4]) or real(*a))
        found = search(task(), TEST, Grid((FAST,), epochs=5, batch=16), tmp_path)
        assert seen == [(FAST, 4, (2,))]
        assert (found.cell, found.epochs, found.drops, found.val_accuracy) == (FAST, 4, (2,), 0.6)

    def test_one_that_diverges_is_an_error(self, tmp_path: Path) -> None:
        store(tmp_path, HOT, Trace((0.1, 0.5), (2.0, 1.9)))
        with pytest.raises(NonFinite, match=r"^fine-tuning on train and val with lr=1e\+30.*: the loss is not finite;"):
            search(task(), TEST, Grid((HOT,), epochs=2, batch=16), tmp_path)


def store(folder: Path, cell: Cell, trace: Trace) -> None:
    """A cell's file, written out."""
    said = {"format": 1, "val_accuracy": trace.val_accuracy, "val_loss": trace.val_loss, "drops": trace.drops}
    path = folder / "cells" / f"{cell.name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**said, "failed": trace.failed}))


class TestSearch:
    def test_the_picked_cell_is_the_best_by_val_of_those_stored(self, tmp_path: Path) -> None:
        found = search(task(), TEST, GRID, tmp_path)
        best = {}
        for cell in GRID.cells:
            said = json.loads((tmp_path / "cells" / f"{cell.name}.json").read_text())
            assert len(said["val_accuracy"]) == GRID.epochs
            best[cell] = max(said["val_accuracy"])
        assert best[found.cell] == max(best.values()) == found.val_accuracy
        assert best[FAST] != best[SLOW]  # or this test could not tell
        assert total_seconds(tmp_path) > 0

    @pytest.mark.parametrize("halving", [False, True])
    def test_stopped_anywhere_and_taken_up_it_leaves_the_same_bytes(self, halving: bool, tmp_path: Path) -> None:
        grid = replace(GRID, cells=(SLOW, FAST, Cell(3e-3, 0.0, 5)), epochs=4, halving=halving)
        whole = search(task(train=32), TEST, grid, tmp_path / "whole")
        for epochs in (1, 5, 7, 9):
            out = tmp_path / f"after-{epochs}"
            out.mkdir()
            with pytest.raises(Stop):
                search(task(train=32), TEST, grid, out, stopping_after(epochs))
            assert search(task(train=32), TEST, grid, out) == whole
            assert files(out) == files(tmp_path / "whole")

    def test_what_is_finished_is_not_trained_again(self, tmp_path: Path) -> None:
        told: list[tuple[str, int, int]] = []
        whole = search(task(train=32), TEST, GRID, tmp_path, lambda *said: told.append(said))
        assert [part for part, *_ in told] == [SLOW.name] * 3 + [FAST.name] * 3 + ["final"] * whole.epochs
        assert told[-1][1:] == (6 + whole.epochs, 6 + whole.epochs)
        (tmp_path / "result.json").unlink()
        told.clear()
        assert search(task(train=32), TEST, GRID, tmp_path, lambda *said: told.append(said)) == whole
        assert {part for part, *_ in told} == {"final"}
        assert search(task(train=32), TEST, GRID, tmp_path, stopping_after(1)) == whole  # nothing to stop

    def test_halving_takes_one_cell_to_the_end(self, tmp_path: Path) -> None:
        """Three cells for one epoch, the best two for two, the best for four."""
        cells = (SLOW, FAST, Cell(3e-3, 0.0, 5))
        told: list[str] = []
        grid = replace(GRID, cells=cells, epochs=4, halving=True)
        found = search(task(), TEST, grid, tmp_path, lambda part, n_done, total: told.append(part))
        assert len(told) == 3 * 1 + 2 * 1 + 1 * 2 + found.epochs  # none trained twice
        lengths = {
            path.stem: len(json.loads(path.read_text())["val_accuracy"]) for path in (tmp_path / "cells").iterdir()
        }
        assert sorted(lengths.values()) == [1, 2, 4]
        assert lengths[found.cell.name] == 4
        trainings = {cell: Training(task(), cell) for cell in cells}
        for training in trainings.values():
            training.epoch()
        assert lengths[ranked({cell: training.trace for cell, training in trainings.items()})[-1].name] == 1

    def test_a_rung_is_judged_by_what_was_known_at_its_end(self, tmp_path: Path) -> None:
        """Both were trained on before a kill, one of them by another grid: after the first epoch SLOW was ahead."""
        store(tmp_path, SLOW, Trace((0.5, 0.1), (2.0, 1.9)))
        store(tmp_path, FAST, Trace((0.4, 0.9), (2.0, 1.9)))
        assert search(task(), TEST, replace(GRID, epochs=2, halving=True), tmp_path).cell == SLOW

    def test_a_cell_that_diverges_is_recorded_and_another_is_taken(self, tmp_path: Path) -> None:
        found = search(task(), TEST, replace(GRID, cells=(HOT, FAST)), tmp_path)
        assert found.cell == FAST
        assert json.loads((tmp_path / "cells" / f"{HOT.name}.json").read_text())["failed"] >= 1
        with pytest.raises(CurateError, match=r"^fine-tuning: no cell has a finite loss .*; give smaller rates"):
            search(task(), TEST, replace(GRID, cells=(HOT,)), tmp_path / "all")

    def test_a_class_that_train_lacks_is_named(self, tmp_path: Path) -> None:
        made = task()
        some = made.train.labels != 7
        lacking = replace(made, train=Split(made.train.pixels[some], made.train.labels[some]))
        with pytest.raises(CurateError, match=r"^train: 1 of 10 classes have no example \(7\); split by class$"):
            search(lacking, TEST, GRID, tmp_path)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            (f"cells/{FAST.name}.json", "{"),
            (f"cells/{FAST.name}.json", '{"format": 1, "val_accuracy": [0.5]}'),
            (
                f"cells/{FAST.name}.json",
                '{"format": 1, "val_accuracy": ["0.5"], "val_loss": [1], "drops": [], "failed": null}',
            ),
            (
                f"cells/{FAST.name}.json",
                '{"format": 1, "val_accuracy": [0.5], "val_loss": [], "drops": [], "failed": null}',
            ),
            ("result.json", '{"format": 1, "cell": {}}'),
        ],
    )
    def test_a_damaged_file_is_named(self, name: str, text: str, tmp_path: Path) -> None:
        (tmp_path / "cells").mkdir()
        (tmp_path / name).write_text(text)
        with pytest.raises(CurateError, match=r"json: is damaged \(.*; remove it to train that again$"):
            search(task(), TEST, replace(GRID, cells=(FAST,)), tmp_path)

    @pytest.mark.parametrize(
        "text", ["{", '{"format": 1}', '{"format": 1, "seconds": {"a": "x"}}', '{"format": 1, "seconds": {"a": NaN}}']
    )
    def test_damaged_times_are_said_before_anything_is_trained(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "seconds.json").write_text(text)
        with pytest.raises(CurateError, match=r"seconds\.json: is damaged \(.*\); remove it; only times are lost$"):
            search(task(), TEST, GRID, tmp_path, stopping_after(1))
        assert [path.name for path in tmp_path.iterdir()] == ["seconds.json"]

    def test_times_that_break_while_a_cell_is_trained_cost_no_cell(self, tmp_path: Path) -> None:
        """What is known of the times is in memory by then, and is written again."""

        def tell(part: str, n_done: int, total: int) -> None:
            (tmp_path / "seconds.json").write_text("{")

        search(task(train=32), TEST, replace(GRID, cells=(FAST,)), tmp_path, tell)
        assert set(spent(tmp_path)) == {FAST.name, "final"}

    def test_a_cell_is_there_before_its_times_are(self, tmp_path: Path) -> None:
        """A folder in the place of the times cannot be written over: the trained cell stays."""

        def tell(part: str, n_done: int, total: int) -> None:
            (tmp_path / "seconds.json").mkdir(exist_ok=True)

        with pytest.raises(OSError, match="seconds"):
            search(task(train=32), TEST, replace(GRID, cells=(FAST,)), tmp_path, tell)
        assert (tmp_path / "cells" / f"{FAST.name}.json").is_file()

    def test_a_result_is_there_after_its_times_are(self, tmp_path: Path) -> None:
        """A later call finds it and counts no time any more."""

        def tell(part: str, n_done: int, total: int) -> None:
            if part == "final":
                (tmp_path / "seconds.json").unlink(missing_ok=True)
                (tmp_path / "seconds.json").mkdir(exist_ok=True)

        with pytest.raises(OSError, match="seconds"):
            search(task(train=32), TEST, replace(GRID, cells=(FAST,), epochs=1), tmp_path, tell)
        assert not (tmp_path / "result.json").exists()

    def test_a_file_of_another_release_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "result.json").write_text('{"format": 2}')
        with pytest.raises(CurateError, match=r"result\.json: version 2, this release reads 1; remove it"):
            search(task(), TEST, GRID, tmp_path)

    def test_a_result_reads_back_as_it_was(self, tmp_path: Path) -> None:
        found = search(task(train=32), TEST, replace(GRID, cells=(FAST,)), tmp_path)
        again = search(task(train=32), TEST, replace(GRID, cells=(FAST,)), tmp_path)
        assert isinstance(again, Found)
        assert again == found


GOOD: dict[str, Any] = {"val_accuracy": [0.5, 1], "val_loss": [2.0, 1.5], "drops": [1, 2], "failed": None}


class TestReadback:
    def test_what_was_written_reads_back(self) -> None:
        """Bounds belong: an accuracy of 1, a drop after the last epoch, a failure in the epoch after it."""
        assert convert(GOOD, Trace) == Trace((0.5, 1.0), (2.0, 1.5), (1, 2))
        assert convert(GOOD | {"failed": 3}, Trace).failed == 3

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"val_accuracy": ["0.5", 1]}, r"Expected `float`, got `str` - at `\$\.val_accuracy\[0\]`$"),
            ({"val_accuracy": [True, 1]}, r"got `bool` - at `\$\.val_accuracy"),
            ({"val_accuracy": [0.5, 1.01]}, r"Expected `float` <= 1\.0 - at `\$\.val_accuracy\[1\]`$"),
            ({"val_loss": [2.0, float("nan")]}, r"at `\$\.val_loss\[1\]`$"),
            ({"val_loss": [2.0, float("inf")]}, r"at `\$\.val_loss\[1\]`$"),
            ({"val_loss": [2.0]}, "^val_loss: expected 2 epochs, found 1$"),
            ({"drops": [0]}, r"Expected `int` >= 1 - at `\$\.drops\[0\]`$"),
            ({"drops": [3]}, r"^drops: expected rising epochs up to 2, found \(3,\)$"),
            ({"drops": [2, 1]}, r"^drops: expected rising epochs up to 2, found \(2, 1\)$"),
            ({"failed": "3"}, r"got `str` - at `\$\.failed`$"),
            ({"failed": 2}, "^failed: expected epoch 3, found 2$"),
        ],
    )
    def test_every_number_of_a_trace_is_checked(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            convert(GOOD | change, Trace)

    @pytest.mark.parametrize(
        "change",
        [
            *({"val_accuracy": "0.5"}, {"test_accuracy": 2}, {"epochs": 0}, {"epochs": 1.5}, {"drops": [4]}),
            *({"cell": {"lr": "x", "weight_decay": 0, "patience": 5}}, {"cell": 3}, {"drops": None}),
        ],
    )
    def test_every_number_of_a_result_is_checked(self, change: dict[str, Any], tmp_path: Path) -> None:
        cell = {"lr": 1e-2, "weight_decay": 0.0, "patience": 5}
        said = {"format": 1, "cell": cell, "epochs": 3, "drops": [2], "val_accuracy": 0.5, "test_accuracy": 0.25}
        (tmp_path / "result.json").write_text(json.dumps(said))
        assert stored(tmp_path) == Found(Cell(1e-2, 0.0, 5), 3, (2,), 0.5, 0.25)
        (tmp_path / "result.json").write_text(json.dumps(said | change))
        with pytest.raises(CurateError, match=r"result\.json: is damaged \(.*\); remove it to train that again$"):
            stored(tmp_path)
