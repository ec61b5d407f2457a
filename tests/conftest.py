"""One thread a test process, set before torch loads: two test workers on two cores, and sums in one order."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
