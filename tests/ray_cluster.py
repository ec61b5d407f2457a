"""A Ray cluster of several machines on this one, for tests: each is of one core, with a small store of objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shards.io.engines import ray as ray_engine

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@contextmanager
def two_machines() -> Iterator[Any]:
    """A `ray.cluster_utils.Cluster`, whose processes find the tests' own tasks."""
    before = dict(os.environ)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ |= {**ray_engine.QUIET, "PYTHONPATH": os.pathsep.join(paths)}
    from ray.cluster_utils import Cluster  # reads the environment when it is loaded

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)
