"""How many cores are there, by affinity and cgroups, and how many of them are free."""

from __future__ import annotations

import os

import pytest

from shards.io import cores, parallel


def cgroup(folder, memberships, files):
    """Files of the system's: the memberships of a process, and what the folders of cgroups hold."""
    (folder / "cgroup").write_text(memberships)
    for name, text in files.items():
        (folder / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "fs" / name).write_text(text)
    return folder / "cgroup", folder / "fs"


@pytest.mark.parametrize(
    ("memberships", "files", "limit"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, float("inf")),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000", "cpu.max": "max 100000"}, 2.0),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "400000 100000"}, 1.0),
        ("0::/docker/on-the-host\n", {"cpu.max": "300000 100000"}, 3.0),
        ("4:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"}, 0.5),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, float("inf")),
        ("4:cpuset:/\n0::/\n", {}, float("inf")),
        ("0::/\n", {"cpu.max": "nonsense"}, float("inf")),
        ("", {}, float("inf")),
    ],
)
def test_quota_of_cgroups(memberships, files, limit, tmp_path):
    """Of both versions, and the least of a group and all above it."""
    assert cores.quota(*cgroup(tmp_path, memberships, files)) == limit


def test_no_cgroups_no_quota(tmp_path):
    """On a system without them."""
    assert cores.quota(tmp_path / "none", tmp_path / "nowhere") == float("inf")


@pytest.mark.parametrize(
    ("affinity", "limit", "whole", "load", "usable", "free"),
    [
        (2, float("inf"), 2, 0.2, 2, 2),
        (2, float("inf"), 2, 0.9, 2, 1),
        (2, float("inf"), 2, 9.0, 2, 1),
        (4, float("inf"), 64, 30.0, 4, 4),
        (64, float("inf"), 64, 30.4, 64, 34),
        (16, 1.5, 16, 0.0, 1, 1),
        (16, 0.5, 16, 0.0, 1, 1),
        (16, 6.0, 16, 12.0, 6, 4),
    ],
)
def test_cores_that_are_usable_and_free(affinity, limit, whole, load, usable, free, monkeypatch):
    """Affinity and quota bound what is usable; of the whole machine the load is taken off; one is left always."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    monkeypatch.setattr(os, "cpu_count", lambda: whole)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(cores, "quota", lambda: limit)
    assert (cores.usable_cores(), cores.free_cores()) == (usable, free)
    assert parallel.default_workers() == min(8, usable)
