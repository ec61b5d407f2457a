"""What every protocol asks of a target's labels."""

from __future__ import annotations

import numpy as np

from curate.errors import CurateError
from curate.records import Ints


def refuse_gaps(labels: Ints, classes: int) -> None:
    """Refuse training labels that do not show every class.

    Args:
        labels: shape (n,), int64, in 0 .. classes - 1.

    Raises:
        CurateError: fewer than two classes, or a class without an example; the first five are named.
    """
    if classes < 2:
        raise CurateError(f"train: expected at least 2 classes, found {classes}; give a labelled target")
    missing = np.setdiff1d(np.arange(classes), labels)
    if len(missing):
        names = ", ".join(str(label) for label in missing[:5]) + (" ..." if len(missing) > 5 else "")
        raise CurateError(f"train: {len(missing)} of {classes} classes have no example ({names}); split by class")
