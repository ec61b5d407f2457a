"""Which engine runs the tasks over shards, by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shards.errors import Misuse
from shards.io.engines import ray
from shards.io.parallel import run_by

ENGINES = ("local", "ray")


@contextmanager
def engine(name: str, ray_address: str | None = None) -> Iterator[None]:
    """Have an engine run the tasks over shards of every call in this block.

    Args:
        name: of `ENGINES`: processes of this machine, or a Ray cluster.
        ray_address: of the cluster; None as `shards.io.engines.ray.connected` has it.

    Raises:
        Misuse: no such engine, or an address of none.
        ShardError: Ray is not installed.
    """
    if name not in ENGINES:
        raise Misuse(f"--engine {name}: no such engine", expected=" or ".join(ENGINES))
    if name == "local":
        if ray_address is not None:
            raise Misuse(f"--ray-address {ray_address}: only with --engine ray; add it, or leave the address out")
        yield
        return
    with ray.connected(ray_address) as tasks, run_by(tasks):
        yield
