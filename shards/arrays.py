"""Types of the numpy arrays that pass between modules. Docstrings give shapes and units."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: Row numbers, byte offsets, sizes, labels.
Int64Array = npt.NDArray[np.int64]
#: Bytes: of headers, names, pixels.
UInt8Array = npt.NDArray[np.uint8]
#: Masks.
BoolArray = npt.NDArray[np.bool_]
