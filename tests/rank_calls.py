"""Every call of `curate.ranks`, as each of three ranks makes it: what runs in the processes of `test_ranks.py`."""

from __future__ import annotations

from dataclasses import astuple

import torch
from torch.autograd import forward_ad

from curate import ranks
from curate.training import lookahead

#: Rows that each rank brings.
COUNTS = [1, 0, 2]


def all_calls() -> dict:
    number = ranks.rank()
    own = torch.tensor([1.0, 2.0]) * (number + 1)
    x = torch.tensor(number + 1.0, requires_grad=True)
    y = ranks.summed(x).square()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    (twice,) = torch.autograd.grad(gradient, x)
    lookahead._load_decompositions()  # or torch warns
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.tensor(number + 1.0))
        tangent = forward_ad.unpack_dual(ranks.summed(dual).square()).tangent
    values, further = ranks.added({"a": torch.full((2, 1), number + 1.0)}, torch.tensor(float(number)))
    part = ranks.part(10)
    with ranks.alone():
        alone = ranks.world(), astuple(ranks.part(10))
    rows = torch.full((part.count,), float(number))
    return {
        "rank": (ranks.world(), number, ranks.is_first()),
        "spans": [(ranks.span(10, each).start, ranks.span(10, each).stop) for each in range(3)],
        "part": astuple(part),
        "small": astuple(ranks.part(5)),
        "alone": alone,
        "summed": ranks.summed(own).tolist(),
        "gradient": gradient.item(),
        "tangent": float(tangent),
        "twice": float(twice),
        "added": (values["a"].flatten().tolist(), float(further)),
        "stacked": ranks.stacked(torch.full((2,), float(number))).tolist(),
        "gathered": part.gathered(rows).tolist(),
        "across": part.gathered(rows.expand(2, -1), dim=1).tolist(),
        "put together": ranks.put_together(torch.full((COUNTS[number], 1), number), COUNTS).tolist(),
        "told": (ranks.told(b"from the first" if number == 0 else None), ranks.told(b"" if number == 0 else None)),
        "everywhere": (ranks.everywhere(True), ranks.everywhere(number != 1)),
        "common": (ranks.is_common(7), ranks.is_common(number)),
    }
