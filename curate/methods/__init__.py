"""The methods by name."""

from __future__ import annotations

from collections.abc import Callable

from curate.methods.base import Given, Method
from curate.methods.bdw import Bdw
from curate.methods.dw import Dw
from curate.methods.l2rw import L2rw
from curate.methods.nn import Nn
from curate.methods.oracle import Oracle
from curate.methods.uniform import Uniform

METHODS: dict[str, Callable[[Given], Method]] = {
    "bdw": Bdw,
    "dw": Dw,
    "l2rw": L2rw,
    "nn": Nn,
    "oracle": Oracle,
    "uniform": Uniform,
}
