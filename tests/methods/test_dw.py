"""Point weights: where they start, how they move, when they are dropped, and how they compare with a Beta's mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toyset
from hypothesis import given
from hypothesis import strategies as st

from curate.config.schema import BeliefConfig
from curate.methods.base import MethodInputs
from curate.methods.bdw import Bdw
from curate.methods.dw import Dw
from curate.runs.prepare import method_notes, prepare

CPU = torch.device("cpu")


def fresh(n=4, eta=0.5):
    return Dw(MethodInputs(n, BeliefConfig(eta=eta), 0, CPU), torch.float64)


def test_all_weights_start_at_zero():
    """The paper's definition; so the first epoch trains nothing."""
    assert fresh().weights(torch.arange(4)).tolist() == [0.0] * 4


def test_a_move_is_eta_times_the_signal_and_is_clipped():
    """By hand, eta 0.5: 0 + 0.5 * 0.6 = 0.3; 0 + 0.5 * 3 = 1.5 -> 1; 0 - 0.5 -> 0; the fourth is not in the batch."""
    dw, batch = fresh(), torch.tensor([2, 0, 1])
    dw.update(batch, torch.tensor([-0.6, -3.0, 1.0], dtype=torch.float64), 0)
    assert dw.weights(torch.arange(4)).tolist() == [1.0, 0.0, 0.3, 0.0]
    dw.update(torch.tensor([0]), torch.tensor([1.0]), 1)
    assert dw.weights(torch.tensor([0])).tolist() == [0.5]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_weights_never_leave_the_unit_interval(signals):
    """Whatever the signals."""
    dw = fresh(n=1)
    for step, signal in enumerate(signals):
        dw.update(torch.tensor([0]), torch.tensor([signal], dtype=torch.float64), step)
        assert 0 <= float(dw.weights(torch.tensor([0]))) <= 1


def test_dw_and_bdw_agree_in_expectation_when_the_beta_is_nearly_a_point():
    """Moves of E[w] under the same signals.

    With m = E[w] = sigmoid(log a - log b), dm = m (1 - m) (dlog a - dlog b). One visit moves log a by -eta s dw/dlog a
    and log b by -eta s dw/dlog b, whose means over draws are +-m (1 - m) (the slope of the mean, as dE[w] = E[dw]).
    So the mean of dm is -2 (m (1 - m))^2 eta s: as dw moves with 2 (m (1 - m))^2 eta, which is eta / 8 at m = 1/2.
    At log a = log b = 6 a weight has a deviation of 1.8 %; over 4,096 rows the mean is known to well under 1 %.
    """
    n, eta = 4096, 0.02
    bdw = Bdw(MethodInputs(n, BeliefConfig(eta=eta), 0, CPU), torch.float64)
    six = torch.full((n,), 6.0, dtype=torch.float64)
    bdw.restore({"log_a": six, "log_b": six})
    dw = fresh(n, eta / 8)
    dw.restore({"weight": torch.full((n,), 0.5)})
    signal = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.arange(n)
    bdw.begin_epoch(rows, torch.zeros_like(rows), 1)
    for method in (bdw, dw):
        method.update(rows, signal, 0)
    # The summary's float32 resolves 6e-8; a move is 2.5e-3 times a standard normal number.
    moved_bdw, moved_dw = (method.summary(rows.numpy()).mean - 0.5 for method in (bdw, dw))
    slope = float(moved_bdw @ moved_dw / (moved_dw @ moved_dw))
    assert slope == pytest.approx(1, abs=0.01)
    assert np.corrcoef(moved_bdw, moved_dw)[0, 1] > 0.99


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return toyset.make_data(tmp_path_factory.mktemp("data"), 64)


def test_a_run_drops_what_stays_at_zero_and_keeps_the_rest(data, tmp_path):
    """lam 0: after each epoch exactly the visited rows with w > 0 are kept; the rule says so."""
    options = {"method": "dw", "eta": 0.1, "eta_scale": "recent", "reference": "batch", "lam": 0.0, "epochs": 2}
    toyset.run_on(data, tmp_path / "run", **options, batch=4)
    for epoch in (1, 2):
        rows = toyset.partition(tmp_path / "run", epoch, "mean", "kept", "a", "below")
        assert all(kept == (mean > 0) for mean, kept, _, _ in rows)
        assert all(a is None and below is None for _, _, a, below in rows)
    assert 0 < len(rows) <= 64
    assert toyset.metrics(tmp_path / "run")[0]["pruned"] > 0


def test_a_larger_lam_is_warned_of(data, tmp_path):
    """Nearly everything would go after the first epoch; with 0 there is nothing to say."""
    warned, fine = (toyset.config(data / "store", data / "target", method="dw", lam=lam) for lam in (0.1, 0.0))
    assert any(note.startswith("--lam 0.1: weights of dw start at 0") for note in prepare(warned, tmp_path).notes)
    assert method_notes(fine) == []
