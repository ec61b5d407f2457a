"""The meta-losses by name; their rows are in `curate.config.catalogue`."""

from curate.config.catalogue import META_LOSSES

__all__ = ["META_LOSSES"]
