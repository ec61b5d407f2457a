"""The errors of this package, and the exit codes they become. Problems of shards are `shards.errors.ShardError`."""

from __future__ import annotations


class CurateError(Exception):
    """The work could not be done: one line that says what is wrong, where, and what to do. Exit code 1."""

    exit_code = 1


class Misuse(CurateError):
    """The request itself cannot be meant: an option out of range, two that exclude each other. Exit code 2."""

    exit_code = 2


class RunMismatch(CurateError):
    """A run folder belongs to another configuration or another store."""


class NonFinite(CurateError):
    """The training loss is no longer a number."""


class NothingLeft(CurateError):
    """Pruning would leave less than one batch."""
