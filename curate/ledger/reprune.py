"""Judge a finished run again by other thresholds or a budget, without training: weights.parquet in, a manifest out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.errors import Misuse
from curate.ledger import ledger, manifest, pruner
from curate.types import Beliefs, Mask, Stamp

#: The grid of `curate prune --grid`.
LAMS = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
RHOS = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Choice:
    """By what to judge: thresholds, None for the run's own; or a budget of decodable images, best first: a share,
    or above 1 a count."""

    lam: float | None = None
    rho: float | None = None
    share: float | None = None
    by: pruner.By = "mean"


@dataclass(frozen=True)
class Grid:
    """The share of the decodable images kept, for every pair of thresholds."""

    lams: tuple[float, ...]
    rhos: tuple[float, ...]
    kept: list[list[float]]

    def record(self) -> dict[str, Any]:
        """The JSON form."""
        return {"lam": list(self.lams), "rho": list(self.rhos), "kept": self.kept}

    def text(self) -> str:
        """A table for people: a row a lam, a column a rho."""
        head = "share kept".ljust(12) + "".join(f"rho {rho:<6g}" for rho in self.rhos)
        rows = [f"lam {lam:<8g}" + "".join(f"{x:<10.1%}" for x in row) for lam, row in zip(self.lams, self.kept)]
        return "\n".join([head, *rows])


def judge_again(run: Path, choice: Choice, out: Path | None = None) -> pa.Table:
    """Judge all rows of a run's weights, pruned ones too.

    Args:
        out: where the manifest is written; None for nowhere.

    Returns:
        The manifest, with the footer of its file as metadata of the schema.

    Raises:
        Misuse: a budget beside thresholds, a number out of its range, a rule that keeps nothing, or an ``out`` that
            holds something else.
        CurateError: the run has no weights.parquet yet.
    """
    if choice.share is not None and (choice.lam is not None or choice.rho is not None):
        raise Misuse("--keep is a budget, --lam and --rho are thresholds; give one or the other")
    for name, value in (("--lam", choice.lam), ("--rho", choice.rho)):
        if value is not None:
            pruner.within(value, name)
    if choice.share is not None:
        pruner.check_budget(choice.share)
    beliefs, stamp = _beliefs(run), ledger.stamp_of(run, ledger.epochs(run)[-1])
    kept, rule, stamp = _judge(beliefs, choice, stamp)
    if not kept.any():
        raise Misuse(f"{run}: the rule keeps none of {len(beliefs)} images ({rule}); choose one that keeps some")
    with open(run / "weights.parquet", "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    origin = manifest.Origin(rule, len(beliefs), digest, stamp)
    names = ledger.final_names(run, kept)
    if out is not None:
        _refuse_taken(run, out, origin)
        manifest.write(out, names, beliefs.rows[kept], origin)
    return manifest.table_of(names, beliefs.rows[kept], origin)


def grid(run: Path, lams: tuple[float, ...] = LAMS, rhos: tuple[float, ...] = RHOS) -> Grid:
    """How much every pair of thresholds would keep."""
    beliefs = _beliefs(run)
    return Grid(lams, rhos, pruner.grid(beliefs, lams, rhos).round(6).tolist())


def _beliefs(run: Path) -> Beliefs:
    """Of every image; one that its prior pruned was never visited, and is judged by the prior."""
    beliefs = ledger.final_beliefs(run)
    return pruner.informed(beliefs) if ledger.has_prior(run) else beliefs


def _refuse_taken(run: Path, out: Path, origin: manifest.Origin) -> None:
    """Refuse a file that holds anything but what is to be written."""
    if out.resolve().is_relative_to((run / "manifests").resolve()):
        raise Misuse(f"--out {out}: the run's own manifests are there; name another file")
    if not out.exists():
        return
    held = manifest.origin_of(out)
    if held is None:
        raise Misuse(f"--out {out}: is there, and no manifest of curate's; name another file")
    if held != origin:
        other = f"by another rule ({held.rule})" if held.rule != origin.rule else "of another run"
        raise Misuse(f"--out {out}: holds a manifest {other}; name another file, or remove it")


def _judge(beliefs: Beliefs, choice: Choice, stamp: Stamp) -> tuple[Mask, str, Stamp]:
    if choice.share is not None:
        return (
            pruner.keep_budget(beliefs, choice.share, choice.by),
            pruner.budget_in_words(choice.share, choice.by),
            stamp,
        )
    lam = stamp.lam if choice.lam is None else choice.lam
    rho = stamp.rho if choice.rho is None else choice.rho
    kept = pruner.keep(beliefs, lam, rho)
    return kept, pruner.rule_in_words(beliefs, lam, rho), replace(stamp, lam=lam, rho=rho)
