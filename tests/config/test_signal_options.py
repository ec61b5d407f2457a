"""Which options each signal has, what they are where nothing is said, and why some do not go together."""

from __future__ import annotations

import pytest

from curate.config.catalogue import PAPER_SIGNAL, SIGNALS
from curate.config.defaults import resolve, usual
from curate.config.schema import from_options
from curate.errors import Misuse


def belief(**changes):
    """The resolved options of a signal."""
    return resolve(from_options({"store": "s", "target": "t", **changes}), labelled=False).belief


def test_the_meta_gradient_is_what_it_was():
    """Where no signal is named."""
    found = belief()
    assert (found.signal, found.contrast, found.meta_average, found.meta_every, found.warmup) == (
        *("exact", "none", 0.0, 1),
        0,
    )
    assert (found.eta, found.eta_scale, found.reference) == (1.0, "history", "target")
    assert PAPER_SIGNAL["signal"] == "exact"


def test_the_heads_defaults():
    """Raw cosines at eta 10, means over some thirty steps, one epoch of warm-up; what is given wins."""
    found = belief(signal="head")
    assert (found.eta, found.eta_scale, found.reference, found.contrast) == (10.0, "raw", "quantile", "store")
    assert (found.meta_average, found.warmup) == (0.97, 1)
    own = belief(signal="head", eta_scale="history", meta_average=0.0, warmup=0, contrast="none", reference="batch")
    assert (own.eta, own.meta_average, own.warmup, own.contrast, own.reference) == (1.0, 0.0, 0, "none", "batch")


def test_a_single_epoch_has_no_warm_up():
    """Or nothing would be learnt; who asks for one gets it."""
    assert belief(signal="head", epochs=1).warmup == 0
    assert belief(signal="head", epochs=1, warmup=1).warmup == 1


def test_what_is_usual_leaves_a_signal_its_own():
    """`curate run` averages the meta-gradient over 20 steps; the head's means are the head's."""
    assert usual({})["meta_average"] == 0.95
    assert "meta_average" not in usual({"signal": "head"})
    assert usual({"signal": "head"})["prior"] == "classifier"


def test_a_point_weight_keeps_its_own():
    """dw may take any signal; eta, its unit and no warm-up are the method's."""
    found = belief(method="dw", signal="head")
    assert (found.eta, found.eta_scale, found.reference, found.warmup) == (0.1, "recent", "none", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signal": "tail"}, "--signal tail: unknown; known: exact, head, precond"),
        ({"reference": "quantile"}, "--reference quantile: not of --signal exact; it knows target, batch, none"),
        ({"signal": "head", "reference": "target"}, "--reference target: not of --signal head; it knows quantile"),
        ({"contrast": "store"}, "--contrast store: says nothing to --signal exact: the meta-gradient is of"),
        ({"signal": "head", "meta_loss": "prototypical"}, "--signal head needs --meta-loss self-supervised"),
        ({"signal": "head", "method": "l2rw"}, "--signal head: says nothing to --method l2rw"),
        ({"signal": "head", "method": "uniform"}, "--signal head: says nothing to --method uniform"),
        ({"meta_every": 2, "method": "l2rw"}, "--meta-every 2: says nothing to --method l2rw"),
    ],
    ids=str,
)
def test_what_does_not_go_together_says_why(changes, message):
    """In one line, before any work."""
    with pytest.raises(Misuse) as refused:
        resolve(from_options({"store": "s", "target": "t", **changes}), labelled=True)
    assert str(refused.value).startswith(message)


def test_every_signal_resolves_by_itself():
    """And names references that the option knows."""
    for name in SIGNALS:
        assert belief(signal=name).reference in SIGNALS.spec(name).references
