"""What can go wrong with a run; the root of the tree, and the errors of requests and shards: `shards.errors`."""

from __future__ import annotations

from shards.errors import Error, Misuse

__all__ = ["CurateError", "Error", "Misuse", "NonFinite", "NothingLeft", "RunMismatch"]


class CurateError(Error):
    """Something is wrong with a run, its configuration, or what it reads."""


class RunMismatch(CurateError):
    """A run folder belongs to another configuration or another store."""


class NonFinite(CurateError):
    """The training loss is no longer a number."""


class NothingLeft(CurateError):
    """Pruning would leave less than one batch."""
