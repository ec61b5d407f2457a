"""The pretext tasks by name; their rows are in `curate.config.catalogue`."""

from curate.config.catalogue import PRETEXTS

__all__ = ["PRETEXTS"]
