"""What a run did, in words."""

from __future__ import annotations

from typing import Any

from curate.reporting.reading import Judged, Reading

#: Methods of ours; one from outside goes by its name.
TITLES = {
    "bdw": "Beta Data Weighter: a belief about every image's weight",
    "dw": "Data Weighter: a weight for every image",
    "l2rw": "Learning to reweight: weights anew in every batch",
    "nn": "Weights by the distance to the nearest target image",
    "oracle": "Oracle: told which images are of the target's own domain",
    "uniform": "Plain training: every image alike",
    "classifier": "Classifier: what looks like the target",
    "nearest": "Nearest to the target's images",
    "simcore": "SimCore: a core set around the target's images",
    "semdedup": "SemDeDup: one image of each that look the same",
    "softdedup": "Soft deduplication: the commoner an image, the less chance of a place",
    "random": "Random choice",
}
#: Stages of an epoch, by the names that metrics.jsonl has for them.
STAGES = {
    "load": "reading and decoding",
    "step": "training steps",
    "prune": "judging",
    "ledger": "writing the ledger",
    "rewrite": "rewriting shards on the way",
    "checkpoint": "checkpoints",
    "features": "features",
    "score": "scoring",
}


def title(method: str) -> str:
    """Of a method."""
    return TITLES.get(method, f"Method {method}")


def measure(reading: Reading) -> str:
    """What the number below an image is."""
    if reading.selects:
        return "score"
    return "weight" if reading.judged is None or reading.judged.beliefs.a is None else "expected weight E[w]"


def rule(reading: Reading, judged: Judged) -> str:
    """Who goes and who stays, as a sentence."""
    lam, rho = judged.stamp.lam, judged.stamp.rho
    if reading.selects:
        return f"An image stays where its score is above {lam:.4g}{_whose(reading.options)}."
    if not judged.cut:
        if reading.method == "oracle":
            return f"Images of the domain {reading.options.get('domain')} alone are used, as the run was told."
        return "No image goes for its weight; `curate prune --keep` takes a budget afterwards."
    if judged.beliefs.a is None:
        return f"After each epoch an image goes whose weight is {lam:g} or less.{_before(reading)}"
    unseen = _before(reading) or " An image that was not trained on yet is not judged."
    return (
        f"After each epoch an image goes where more than {rho:.0%} of its belief Beta(a, b) lies below the weight "
        f"{lam:g}.{unseen}"
    )


def _before(reading: Reading) -> str:
    """What was believed beforehand, and what went by it; empty where that was nothing."""
    if not reading.prior:
        return ""
    first = reading.epochs[0]
    return (
        f" Before the first epoch all {first.live:,} images were judged once, by a prior ({reading.prior}), which kept "
        f"{first.kept:,}."
    )


def _whose(options: dict[str, Any]) -> str:
    """Where the cut of a selector comes from."""
    keep = options.get("keep") or 0
    if keep:
        return f", so that {f'{keep:.1%} of the images' if keep < 1 else f'{int(keep):,} images'} do, as was asked for"
    if options.get("method") == "classifier":
        return ", the cut at which the classifier's own estimate of F1 is best"
    return ", by the method's own rule"
