"""Tasks on the machines of a Ray cluster (https://docs.ray.io), or of one that is started for this machine alone.

A task that was lost with its machine or its process is done again, elsewhere; one that is lost every time is done once
more in a process of this machine, which ends in the same error as if all had been done here. Tasks and results travel
as bytes of `pickle`, as between local processes. Few results wait for their turn, so that neither the cluster's memory
nor this process's grows with the number of items.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shards.errors import Busy, ShardError
from shards.io.cores import usable_cores
from shards.io.engines import local
from shards.io.engines.load import Load
from shards.io.storage import clients

Item = TypeVar("Item")
Result = TypeVar("Result")

#: How often a task is done again after it was lost.
RETRIES = 3
#: Tasks handed out for each core of the cluster: one at work, and some to go on with.
AHEAD = 4
#: Seconds for which a lost task may still write somewhere: its machine has not noticed yet.
_WAIT_S = 30.0
#: Seconds for which an address may take to answer.
_KNOCK_S = 10.0
#: Bytes that results may take on this machine, where the cluster is this machine alone.
OBJECT_BYTES = 256 << 20
#: What Ray reads when it is loaded: nothing is sent to its makers, cards are left as they are for tasks that ask for
#: none, and nothing is printed of machines that are lost: it would stand in the midst of the command's own output.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}


class _Raised(NamedTuple):
    """What a task raised, in place of its result."""

    error: Exception


class _Sent(NamedTuple):
    """A task that was handed out: Ray's reference to its result, and the item, in case it is lost."""

    reference: Any
    item: Any


@contextmanager
def connected(address: str | None = None) -> Iterator[Callable[..., Iterator[Any]]]:
    """An engine for `shards.io.parallel.run_by`; it connects to the cluster when it is first needed.

    Args:
        address: as `ray.init` has it; None for that in ``RAY_ADDRESS``, else a cluster of this machine alone, which
            ends with the block. In a program that is connected already, its own.

    Raises:
        ShardError: Ray is not installed.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ShardError("--engine ray needs the library", todo="pip install 'curate-bdw[ray]'") from error
    ours = not ray.is_initialized()
    try:
        yield partial(_results, address or os.environ.get("RAY_ADDRESS"))
    finally:
        if ours:
            ray.shutdown()


def _results(
    address: str | None, task: Callable[[Item], Result], items: Iterator[Item], load: Load
) -> Iterator[Result]:
    for first in items:
        _connect(address)
        yield from _in_order(task, chain((first,), items), load)


def _connect(address: str | None) -> None:
    """Be connected.

    Raises:
        ShardError: no cluster answers, or none can be started.
    """
    import ray
    from ray.exceptions import RayError

    if ray.is_initialized():
        return
    place = address or "a cluster of this machine"
    new = {"num_cpus": usable_cores(), "object_store_memory": OBJECT_BYTES, "include_dashboard": False}
    try:
        _knock(address or "")
        ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else new))
    except (RayError, RuntimeError, ValueError, OSError) as error:
        raise ShardError(f"Ray cannot connect to {place} ({_line(error)})", todo="mend --ray-address") from error


def _knock(address: str) -> None:
    """Raise `OSError` where nobody answers at HOST:PORT: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_KNOCK_S).close()


def _in_order(task: Callable[[Item], Result], items: Iterator[Item], load: Load) -> Iterator[Result]:
    """The results; whatever is handed out and not wanted any more is cancelled, and waited for."""
    import ray

    _refuse_no_card(load)
    send = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=load.cards)(_done).remote
    packed = ray.put(pickle.dumps(task))
    where = version("curate-bdw"), os.getcwd(), clients.configured()
    due: deque[_Sent] = deque()
    try:
        while True:
            for item in islice(items, max(0, AHEAD * _cores() - len(due))):  # less where the cluster has shrunk
                due.append(_Sent(send(packed, pickle.dumps(item), *where), item))
            if not due:
                return
            found = _result(task, due[0])  # in the queue until it is there, or it would not be cancelled
            due.popleft()
            yield found
    finally:
        _cancel(due)


def _result(task: Callable[[Item], Result], sent: _Sent) -> Result:
    """The result of a task, or what it raised.

    Raises:
        ShardError: the cluster cannot run it.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        found = pickle.loads(ray.get(sent.reference))
    except RayTaskError as error:
        todo = "the machines of the cluster need this release of curate-bdw, and the extras that are used"
        raise ShardError(f"Ray cannot run a task ({_line(error)})", todo=todo) from error
    except RayError:  # lost every time, with its process, its machine or its result
        return local.elsewhere(task, sent.item)
    if isinstance(found, _Raised):
        raise found.error
    result: Result = found
    return result


def _done(task: bytes, item: bytes, release: str, folder: str, options: dict[str, str]) -> bytes:
    """What a process of the cluster does: a task, in the folder in which the command was given, and with its options of
    object stores."""
    try:
        _refuse_another_place(release, folder)
        os.chdir(folder)
        if options != clients.configured():
            clients.configure(options)
        found = _patiently(pickle.loads(task), pickle.loads(item))
        return pickle.dumps(found)
    except Exception as error:
        error.add_note(traceback.format_exc())  # of a mistake of ours; the text of the error stays one line
        return _travelling(error)


def _travelling(error: Exception) -> bytes:
    """An error as bytes; one that cannot be made of bytes again, as one that says the same."""
    try:
        data = pickle.dumps(_Raised(error))
        pickle.loads(data)
    except Exception:
        told = ShardError(f"a task failed ({type(error).__name__}: {' '.join(str(error).split())})")
        told.add_note("\n".join(error.__notes__))
        return pickle.dumps(_Raised(told))
    return data


def _patiently(task: Callable[[Item], Result], item: Item) -> Result:
    """The result; a file that a lost task is still writing is waited for."""
    give_up = time.monotonic() + _WAIT_S
    while True:
        try:
            return task(item)
        except Busy:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


def _refuse_another_place(release: str, folder: str) -> None:
    """Raise `ShardError` on a machine that does not have what the command has."""
    own = version("curate-bdw")
    if own != release:
        todo = "install the same release everywhere"
        raise ShardError(
            "a machine of the cluster has another release of curate-bdw", expected=release, found=own, todo=todo
        )
    if not Path(folder).is_dir():
        todo = "work in a folder that all of them see"
        raise ShardError(
            "a machine of the cluster has no such folder", shard=folder, found=os.uname().nodename, todo=todo
        )


def _refuse_no_card(load: Load) -> None:
    """Raise `ShardError` where tasks would wait for ever for a card."""
    import ray

    if load.cards and ray.cluster_resources().get("GPU", 0) < load.cards:
        raise ShardError("no machine of the cluster has a graphics card", todo="add one to it, or give --device cpu")


def _cores() -> int:
    """Cores of the cluster as it is now; it may grow and shrink."""
    import ray

    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _cancel(due: deque[_Sent]) -> None:
    """Cancel tasks, and wait until those that have begun have ended: nobody writes after the command."""
    import ray

    if not due or not ray.is_initialized():
        return
    references = [sent.reference for sent in due]
    # Only what is not done: Ray ends this process where a task is cancelled whose result was taken.
    _, left = ray.wait(references, num_returns=len(references), timeout=0, fetch_local=False)
    for reference in left:
        ray.cancel(reference)
    if left:
        ray.wait(left, num_returns=len(left), timeout=_WAIT_S)


def _line(error: Exception) -> str:
    """The last line of an error's text, which in Ray's says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
