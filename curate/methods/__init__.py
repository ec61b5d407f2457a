"""The methods by name; their rows are in `curate.config.catalogue`."""

from curate.config.catalogue import METHODS

__all__ = ["METHODS"]
