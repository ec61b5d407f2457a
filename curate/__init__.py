"""Learn how much each image of a store helps a target task, and keep what helps.

The public names are listed here and loaded when they are first used: ``import curate`` loads neither torch nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from curate.api import (
        advise,
        audit,
        compare,
        compare_baselines,
        configuration,
        dedup,
        demo,
        dry_run,
        evaluate,
        export,
        features,
        hash_part,
        ledger_summary,
        manifest_of,
        pack,
        pretrain,
        prune,
        prune_grid,
        register_meta_loss,
        register_method,
        register_network,
        register_packer,
        register_pretext,
        report,
        reproduce_pays,
        reproduce_table1,
        reproduce_table2,
        reproduce_table3,
        run,
        subset,
        write_weights,
    )
    from curate.errors import CurateError, Error, Misuse
    from curate.runs.opened import Run, open_run

__version__ = "0.6.0"

__all__ = [
    "CurateError",
    "Error",
    "Misuse",
    "Run",
    "advise",
    "audit",
    "compare",
    "compare_baselines",
    "configuration",
    "dedup",
    "demo",
    "dry_run",
    "evaluate",
    "export",
    "features",
    "hash_part",
    "ledger_summary",
    "manifest_of",
    "open_run",
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

_MODULES = {
    **dict.fromkeys(("CurateError", "Error", "Misuse"), "curate.errors"),
    **dict.fromkeys(("Run", "open_run"), "curate.runs.opened"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'curate' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "curate.api")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
