"""WebDataset shards as files and names: index, stream, pack, rewrite, verify. Knows no learning and no torch.

The public names are listed here and loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shards.api import (
        clean,
        configure_storage,
        engine,
        export,
        forecast,
        index,
        index_part,
        join_index,
        leftovers,
        open_index,
        pack_decathlon,
        pack_idx,
        pack_imagefolder,
        pack_stl10,
        rewrite,
        samples,
        verify,
    )
    from shards.errors import Error, Misuse, NotShards, ShardError, ShardsChanged, Unfinished
    from shards.indexing.index import Index, Report
    from shards.indexing.index_parts import IndexPart
    from shards.rewriting.clean import Leftovers
    from shards.rewriting.finalize import RewriteSummary
    from shards.rewriting.forecast import Forecast

__all__ = [
    "Error",
    "Forecast",
    "Index",
    "IndexPart",
    "Leftovers",
    "Misuse",
    "NotShards",
    "Report",
    "RewriteSummary",
    "ShardError",
    "ShardsChanged",
    "Unfinished",
    "clean",
    "configure_storage",
    "engine",
    "export",
    "forecast",
    "index",
    "index_part",
    "join_index",
    "leftovers",
    "open_index",
    "pack_decathlon",
    "pack_idx",
    "pack_imagefolder",
    "pack_stl10",
    "rewrite",
    "samples",
    "verify",
]

_MODULES = {
    **dict.fromkeys(("Error", "Misuse", "NotShards", "ShardError", "ShardsChanged", "Unfinished"), "shards.errors"),
    **dict.fromkeys(("Index", "Report"), "shards.indexing.index"),
    "IndexPart": "shards.indexing.index_parts",
    "RewriteSummary": "shards.rewriting.finalize",
    "Leftovers": "shards.rewriting.clean",
    "Forecast": "shards.rewriting.forecast",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'shards' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "shards.api")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
