"""One thread a test process, set before torch loads: two test workers on two cores, and sums in one order."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from object_server import KEYS, ObjectServer, serving_objects, standing_between

os.environ.setdefault("OMP_NUM_THREADS", "1")


# A machine that is busy with something else makes no example wrong. The same examples every time, so that a change is
# blamed for what it did; FUZZ in the environment looks for others.
settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize="FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
#: Where the tests of `shards` are.
SHARDS = ("io", "tar", "indexing", "rewriting", "packing", "test_format.py", "test_shuffle.py", "test_stream.py")


@pytest.fixture(autouse=True)
def _spread_at_once(request, monkeypatch):
    """Tests of `shards` start their worker processes at once, though their sets are tiny."""
    if request.path.name in SHARDS or request.path.parent.name in SHARDS:
        monkeypatch.setattr("shards.io.engines.local.SERIAL_S", 0.0)
        monkeypatch.setattr("shards.io.engines.local.ALONE_S", 0.0)


@pytest.fixture(scope="session")
def object_server(tmp_path_factory) -> Iterator[ObjectServer]:
    """A real server of objects, with one before it that counts and fails, as `objects` gives it out."""
    with serving_objects(tmp_path_factory.mktemp("objects")) as endpoint, standing_between(endpoint) as between:
        yield ObjectServer(endpoint, between)


@pytest.fixture
def objects(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """The server, which the environment names, as it names a real one; what it was told and counted before is gone."""
    from shards.io.storage import clients

    for name, value in (KEYS | {"AWS_ENDPOINT_URL": object_server.between.endpoint}).items():
        monkeypatch.setenv(name, value)
    object_server.between.forget()
    clients.configure({})
    yield object_server
    object_server.between.fault = lambda asked: None
    clients.configure({})
