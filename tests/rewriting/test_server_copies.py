"""Which bytes a server copies: the parts of an upload are as large as they must be, and no byte is lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shards.io.storage.uploads import MIN_PART
from shards.rewriting.server_copies import pieces_of, runs_of, worth_copying
from shards.tar.header import BLOCK

SIZES = st.lists(st.integers(1, 4 * MIN_PART // BLOCK).map(lambda n: n * BLOCK), min_size=1, max_size=12)


@given(SIZES, st.data(), st.integers(0, 3 * MIN_PART // BLOCK).map(lambda n: n * BLOCK))
def test_pieces_are_the_runs_and_parts_are_large_enough(sizes: list[int], data: st.DataObject, before: int) -> None:
    gaps = [data.draw(st.sampled_from([0, 512, 10_240])) for _ in sizes]
    starts = np.cumsum(np.add(gaps, [0, *sizes[:-1]]))
    runs = runs_of(starts, np.array(sizes))
    assert runs.sizes.sum() == sum(sizes)
    assert runs.n_extents.sum() == len(sizes)
    assert (runs.starts[1:] > (runs.starts + runs.sizes)[:-1]).all()
    copied = np.flatnonzero([data.draw(st.booleans()) for _ in runs.starts])
    written, position = before, iter(list(zip(runs.starts.tolist(), runs.sizes.tolist())))
    at, end = 0, 0
    for piece in pieces_of(runs, copied, before):
        if at == end:
            at, size = next(position)
            end = at + size
        assert piece.offset == at
        assert piece.size > 0
        assert not piece.size % BLOCK
        at += piece.size
        assert at <= end
        if piece.copied:
            assert piece.size >= MIN_PART
            assert written == 0 or written >= MIN_PART  # a part of an upload, too
            written = 0
        else:
            written += piece.size
    assert at == end
    assert next(position, None) is None


def test_a_run_is_copied_where_that_costs_less() -> None:
    """Of ten images of 600 kB 10 headers are asked for; of 6,000 of 1 kB as many as the bytes would be quicker."""
    large = runs_of(np.arange(10) * 614_400, np.full(10, 614_400))
    small = runs_of(np.arange(6000) * 1024, np.full(6000, 1024))
    short = runs_of(np.arange(2) * 614_400, np.full(2, 614_400))
    assert [len(worth_copying(runs, runs.n_extents * 512)) for runs in (large, small, short)] == [1, 0, 0]
