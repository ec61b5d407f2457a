"""One thread a test process, set before torch loads: two test workers on two cores, and sums in one order."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")


# A machine that is busy with something else makes no example wrong.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
#: Where the tests of `shards` are.
SHARDS = ("io", "tar", "indexing", "rewriting", "packing", "test_format.py", "test_shuffle.py", "test_stream.py")


@pytest.fixture(autouse=True)
def _spread_at_once(request, monkeypatch):
    """Tests of `shards` start their worker processes at once, though their sets are tiny."""
    if request.path.name in SHARDS or request.path.parent.name in SHARDS:
        monkeypatch.setattr("shards.io.parallel.SERIAL_S", 0.0)
        monkeypatch.setattr("shards.io.parallel.ALONE_S", 0.0)
