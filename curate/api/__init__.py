"""The public calls of the package, under the names that `curate` gives them; the command line makes the same calls.

Stores and targets are named by strings or paths: a folder, a tar, a brace pattern, a list file or a URL. Options are
those of the command line, with underscores: ``epochs=5, lr_drops=(3,)``. Whatever can go wrong is a
`shards.errors.Error` whose text is one line.
"""

from __future__ import annotations

from curate.api.beliefs import ledger_summary, manifest_of, prune, prune_grid, report, write_weights
from curate.api.copies import audit, dedup, hash_part
from curate.api.plugins import register_meta_loss, register_method, register_network, register_packer, register_pretext
from curate.api.runs import configuration, configured, dry_run, pretrain, run
from curate.api.scores import compare, compare_baselines, evaluate
from curate.api.stores import export, features, pack, subset
from curate.api.studies import advise, demo, reproduce_pays, reproduce_table1, reproduce_table2, reproduce_table3

__all__ = [
    "advise",
    "audit",
    "compare",
    "compare_baselines",
    "configuration",
    "configured",
    "dedup",
    "demo",
    "dry_run",
    "evaluate",
    "export",
    "features",
    "hash_part",
    "ledger_summary",
    "manifest_of",
    "pack",
    "pretrain",
    "prune",
    "prune_grid",
    "register_meta_loss",
    "register_method",
    "register_network",
    "register_packer",
    "register_pretext",
    "report",
    "reproduce_pays",
    "reproduce_table1",
    "reproduce_table2",
    "reproduce_table3",
    "run",
    "subset",
    "write_weights",
]
