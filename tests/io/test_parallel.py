"""How the tasks of a parallel map are spread: by a pool and a clock that are turned by hand."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from shards.io.engines import local


class Clock:
    """Seconds, and a pool whose workers take one for each task, as this process does."""

    def __init__(self, workers: int) -> None:
        self.now, self.free = 0, [0] * workers

    def submit(self, task: Any, item: int) -> Future[int]:
        worker = self.free.index(min(self.free))
        self.free[worker] = max(self.free[worker], self.now) + 1
        return Elsewhere(self, self.free[worker], 2 * item)

    def here(self, item: int) -> int:
        self.now += 1
        return 2 * item


class Elsewhere(Future[int]):
    """A result that is there from a second on; who waits for it lets time pass."""

    def __init__(self, clock: Clock, at: int, value: int) -> None:
        super().__init__()
        self.clock, self.at, self.value = clock, at, value

    def done(self) -> bool:
        return self.clock.now >= self.at

    def result(self, timeout: float | None = None) -> int:
        self.clock.now = max(self.clock.now, self.at)
        return self.value


@pytest.mark.parametrize("n_processes", [2, 3, 4, 8])
@pytest.mark.parametrize("n_items", range(1, 20))
def test_nobody_is_idle_while_another_has_two(n_processes: int, n_items: int) -> None:
    """Of few equal tasks the last ones were all with the others: eight shards took five turns of two, not four."""
    clock = Clock(n_processes - 1)
    pool: Any = clock
    found = list(local._together(pool, clock.here, iter(range(n_items)), n_processes, n_items))
    assert found == [2 * item for item in range(n_items)]
    assert clock.now == -(-n_items // n_processes)


def test_a_wrong_count_loses_no_item() -> None:
    """The number of items is only a help."""
    for told in (0, 1, 5, 100):
        clock = Clock(2)
        pool: Any = clock
        assert list(local._together(pool, clock.here, iter(range(10)), 3, told)) == list(range(0, 20, 2))
