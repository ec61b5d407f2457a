"""A batch spread over ranks: each reads and decodes its own part, and is told which images of the others' decode.

So all ranks count the images that came, and note those that do not decode, as one process would.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from curate import ranks
from curate.data.decode import Pixels
from curate.ranks import Part
from curate.types import Ints


def spread(cuts: Iterable[Ints], parts: Iterator[Pixels]) -> Iterator[Pixels]:
    """The batches of which this rank has read its parts.

    Where a rank would have less than `ranks.FEWEST` images, in the last batch of an epoch or because hardly one
    decodes, each gets all of them.

    Args:
        cuts: the rows of each whole batch, the same on every rank.
        parts: what this rank read of each: the rows at `ranks.span`.

    Raises:
        LostRank: another rank has ended.
    """
    for cut, part in zip(cuts, parts, strict=True):
        codes = ranks.add_up(_codes(cut, part))
        decodes = (codes == 0).numpy()
        counts = [int(decodes[ranks.span(len(cut), number)].sum()) for number in range(ranks.world())]
        first, whole = sum(counts[: ranks.rank()]), sum(counts)
        pixels, place = part.pixels, Part(first, len(part.pixels), whole)
        if min(counts) < ranks.FEWEST:
            pixels, place = ranks.put_together(pixels, counts), Part(0, whole, whole, ranks.world())
        bad = tuple(zip(cut[~decodes].tolist(), codes.numpy()[~decodes].tolist()))
        yield Pixels(torch.from_numpy(cut[decodes]), pixels, bad, place)


def _codes(cut: Ints, part: Pixels) -> torch.Tensor:
    """For each row of the batch what is wrong with its image, as far as this rank knows; 0 for nothing."""
    own = dict(part.bad)
    return torch.from_numpy(np.array([own.get(row, 0) for row in cut.tolist()], np.uint8))
