"""What ranks tell one another, and that one process by itself tells nobody anything."""

from __future__ import annotations

import pytest
import ranks_scene
import torch
from rank_calls import all_calls
from torch import distributed

from curate import ranks
from curate.errors import LostRank
from curate.ranks import Part


class TestByItself:
    """One process is a job of one rank."""

    def test_it_is_the_first_of_one(self):
        assert (ranks.world(), ranks.rank(), ranks.is_first(), ranks.here()) == (1, 0, True, 1)

    def test_sums_are_what_it_has(self):
        x = torch.arange(3.0)
        values = {"x": x}
        assert ranks.summed(x) is x
        assert ranks.added(values, x) == (values, x)
        assert ranks.one_part(x) is x
        assert ranks.add_up(x) is x
        assert ranks.everywhere(True)
        assert not ranks.everywhere(False)

    def test_a_batch_is_its_own(self):
        part = ranks.part(5)
        assert part == Part(0, 5, 5)
        assert (part.own, part.share, part.is_spread) == (slice(0, 5), 1.0, False)
        x = torch.zeros(5)
        assert part.gathered(x) is part.weighed(x) is x


def test_nccl_is_for_cuda(monkeypatch):
    """No GPU is needed to see what is asked for: gloo stays for what lies in main memory."""
    asked = []
    monkeypatch.setattr(distributed, "init_process_group", lambda backend, **rest: asked.append(backend))
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: None)
    for device in ("cuda", "cpu"):
        with ranks.together(device, "file:///nowhere", 0, 2):
            pass
    assert asked == ["cpu:gloo,cuda:nccl", "gloo"]


def test_a_connection_that_is_gone_is_a_lost_rank(monkeypatch):
    def gone(*_):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")

    monkeypatch.setattr(ranks, "world", lambda: 2)
    monkeypatch.setattr(distributed, "all_reduce", gone)
    with pytest.raises(LostRank, match="another process of this job has ended; the same command goes on"):
        ranks.add_up(torch.zeros(1))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return ranks_scene.on_each(3, tmp_path_factory.mktemp("ranks"), all_calls)


@pytest.mark.slow
def test_three_ranks(three):
    """Every rank gets the same; the numbers are written out by hand."""
    for number, found in enumerate(three):
        assert found["rank"] == (3, number, number == 0)
        assert found["spans"] == [(0, 3), (3, 6), (6, 10)]
        assert found["part"] == (*((0, 3), (3, 3), (6, 4))[number], 10, 1)
        assert found["small"] == (0, 5, 5, 3)
        assert found["alone"] == (1, (0, 10, 10, 1))
        assert found["summed"] == [6.0, 12.0]  # 1 + 2 + 3 times (1, 2)
        # y = (sum x)^2 a rank, three of them: dy/dx = 3 * 2 * 6; the tangents 1 + 2 + 3 at a slope of 2 * 6
        assert found["gradient"] == 36.0
        assert found["tangent"] == 72.0
        assert found["twice"] == 18.0  # the second derivative by one rank's x: 3 ranks sum 2, three times
        assert found["added"] == ([6.0, 6.0], 3.0)  # 1 + 2 + 3 each, and 0 + 1 + 2
        assert found["stacked"] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        assert found["gathered"] == [0.0] * 3 + [1.0] * 3 + [2.0] * 4
        assert found["across"] == [[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]] * 2
        assert found["put together"] == [[0], [2], [2]]
        assert found["told"] == (b"from the first", b"")
        assert found["everywhere"] == (True, False)
        assert found["common"] == (True, False)
