"""The upper bound: plain training on the target's own domain alone. For scoring, where the domains are on record."""

from __future__ import annotations

from curate.methods.base import FixedWeights, MethodInputs


class Oracle(FixedWeights):
    """Weight 1; images of another domain are out before the first epoch.

    Args:
        given: `own` says who stays.
    """

    def __init__(self, given: MethodInputs) -> None:
        assert given.own is not None
        self.admitted = given.own
