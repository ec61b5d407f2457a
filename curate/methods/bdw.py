"""BetaDataWeighter: every image has a Beta(a, b) belief about its weight, moved through one draw an epoch.

`log a` and `log b` descend the signal by the implicit gradient of the draw (METHOD.md section 2). With momentum on
them (section 9) a row coasts on its last velocity until it is seen again; that is computed when the row is read
(`coast`), never by a pass over all rows a step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate import beta
from curate.config import BeliefConfig
from curate.methods.base import Summary, on_host
from curate.randomness import generator

#: Rows whose weights are drawn in one go; part of what a seed means, so never changed.
DRAWN_AT_ONCE = 1 << 16


class Bdw:
    """State of one row an example: log a, log b, their velocities and last step where there is momentum,
    and the epoch's draw with its two slopes.

    Args:
        n: rows of the store.
        config: eta, momentum, expected gradient.
        seed: of the run.
        device: where the state lives.
        dtype: of the state; the arithmetic of the Beta is float64 in any case.
    """

    learns = True

    def __init__(
        self, n: int, config: BeliefConfig, seed: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        assert config.eta is not None
        self.config, self.eta, self.seed = config, config.eta, seed
        self.log_a, self.log_b = (torch.zeros(n, dtype=dtype, device=device) for _ in range(2))
        coasting = n if config.meta_momentum else 0
        self.velocity_a, self.velocity_b = (torch.zeros(coasting, dtype=dtype, device=device) for _ in range(2))
        self.last = torch.full((coasting,), -1, dtype=torch.int32, device=device)
        self.weight, self.by_log_a, self.by_log_b = (torch.zeros(n, dtype=dtype, device=device) for _ in range(3))

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Bring each row to the step of its visit and draw its weight, in row order, keyed by the epoch."""
        if self.config.meta_momentum:
            self._coast(rows, visit)
        draws = generator(self.seed, "beta", epoch)
        # In parts, so that the float64 of a draw takes no memory that grows with the store.
        for part in torch.split(rows, DRAWN_AT_ONCE):
            log_a, log_b = self.log_a[part], self.log_b[part]
            drawn = beta.draw(log_a, log_b, draws)
            slopes = (drawn.by_log_a, drawn.by_log_b)
            if self.config.expected_gradient:
                slopes = beta.expected_gradients(log_a, log_b)
            for table, values in ((self.weight, drawn.weight), (self.by_log_a, slopes[0]), (self.by_log_b, slopes[1])):
                table[part] = values.to(table)

    def weights(self, rows: Tensor) -> Tensor:
        """The epoch's draw of each row."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """log a -= eta * signal * dw/dlog a, the same for b; clamped. With momentum, the velocity moves first."""
        for logs, slopes, velocity in (
            (self.log_a, self.by_log_a, self.velocity_a),
            (self.log_b, self.by_log_b, self.velocity_b),
        ):
            move = signal.to(slopes.dtype) * slopes[rows]
            if self.config.meta_momentum:
                move = self.config.meta_momentum * velocity[rows] + move
                velocity[rows] = move
            logs[rows] = (logs[rows] - self.eta * move).clamp(beta.LOWEST, beta.HIGHEST)
        if self.config.meta_momentum:
            self.last[rows] = step

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Coast ``rows`` to ``step``."""
        if self.config.meta_momentum:
            self._coast(rows, torch.full_like(rows, step))

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """a, b and their mean, widened to float64 before the exponential."""
        at = torch.from_numpy(rows).to(self.log_a.device)
        log_a, log_b = self.log_a[at].double(), self.log_b[at].double()
        return Summary(on_host(beta.mean(log_a, log_b)), on_host(log_a.exp()), on_host(log_b.exp()))

    def state(self) -> dict[str, Tensor]:
        """log a, log b, and what momentum needs."""
        names = ["log_a", "log_b"] + (["velocity_a", "velocity_b", "last"] if self.config.meta_momentum else [])
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a checkpoint's tensors."""
        for name in self.state():
            getattr(self, name).copy_(state[name])

    def _coast(self, rows: Tensor, step: Tensor) -> None:
        idle = (step - 1 - self.last[rows]).double()
        for logs, velocity in ((self.log_a, self.velocity_a), (self.log_b, self.velocity_b)):
            x, v = coast(logs[rows], velocity[rows], idle, self.eta, self.config.meta_momentum)
            logs[rows], velocity[rows] = x.to(logs.dtype), v.to(velocity.dtype)
        self.last[rows] = (step - 1).to(self.last.dtype)


def coast(x: Tensor, velocity: Tensor, idle: Tensor, eta: float, momentum: float) -> tuple[Tensor, Tensor]:
    """Where momentum carries a row in ``idle`` steps without a gradient: the closed form of ``idle`` dense steps.

    x = clamp(x - eta v M (1 - M^j) / (1 - M)), v = M^j v. A coasting row keeps its direction, so one clamp at the
    end equals a clamp at every step; the clamp leaves v alone.

    Args:
        x, velocity: shape (m,).
        idle: shape (m,), float64, j >= 0.
    """
    decay = momentum**idle
    distance = velocity.double() * momentum * (1 - decay) / (1 - momentum)
    return (x.double() - eta * distance).clamp(beta.LOWEST, beta.HIGHEST), velocity.double() * decay
