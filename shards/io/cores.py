"""How many cores this process may use, and how many of them are free now.

A core that others are at work on is worse than none: threads wait for the one that got no time, and burn the time of
all others while they wait.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that the scheduler lets this process run on, at most the whole ones of its cgroup's quota; at least 1."""
    return max(1, int(min(len(os.sched_getaffinity(0)), quota())))


def free_cores() -> int:
    """Of `usable_cores`, those that the machine's load of the last minute leaves; at least 1."""
    left = (os.cpu_count() or 1) - round(os.getloadavg()[0])
    return max(1, min(usable_cores(), left))


def quota(memberships: Path = Path("/proc/self/cgroup"), root: Path = _CGROUPS) -> float:
    """Cores' worth of time that the cgroups of this process, versions 1 and 2, may take; infinity for no limit.

    Args:
        memberships: lines of ``number:controllers:path`` (`man 7 cgroups`).
        root: where cgroups are mounted; those of version 1 in a folder a controller.
    """
    limits = [float("inf")]
    for line in _words(memberships, "\n"):
        _, controllers, path = line.split(":", 2)
        place, own = root / "cpu" if "cpu" in controllers.split(",") else root, PurePosixPath(path)
        # A container sees its own cgroup as the root, but the path may be the host's.
        for folder in (place, *(place / str(part).lstrip("/") for part in (own, *own.parents))):
            limits.append(_cores(_words(folder / "cpu.max")))
            limits.append(_cores([*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")]))
    return min(limits)


def _cores(limit: list[str]) -> float:
    """Microseconds in a period of microseconds, as cores; "max" and -1 are none."""
    if len(limit) != 2 or not all(word.isdigit() for word in limit) or int(limit[1]) == 0:
        return float("inf")
    return int(limit[0]) / int(limit[1])


def _words(file: Path, between: str | None = None) -> list[str]:
    """What stands in a small file of the system's; nothing where there is none."""
    try:
        return [word for word in file.read_text().split(between) if word]
    except (OSError, ValueError):
        return []
