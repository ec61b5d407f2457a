"""BetaDataWeighter: every image has a Beta(a, b) belief about its weight, moved through one draw an epoch.

`log a` and `log b` descend the signal by the implicit gradient of the draw (docs/method.md section 2). With momentum on
them (section 9) a row coasts on its last velocity until it is seen again; that is computed when the row is read
(`coast`), never by a pass over all rows a step. Where images share beliefs, these are an image's own part, and what its
look-alikes believe together (`curate.methods.shared_part`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from curate.config.resolved import ResolvedPrune
from curate.ledger import pruner
from curate.methods import beta
from curate.methods.base import LookAlikes, MethodInputs, Summary, on_host
from curate.methods.shared_part import OWN, SHARED, SharedPart, shared_part
from curate.rng import generator
from curate.types import Mask, Prior

#: Rows whose weights are drawn in one go; part of what a seed means, so never changed.
DRAWN_AT_ONCE = 1 << 16


class Bdw:
    """State of one row an example: log a, log b (where they are shared, its own part of them), their velocities and
    last step where there is momentum, and the epoch's draw with its two slopes.

    Args:
        given: rows, seed, device; of the belief: eta, momentum, expected gradient.
        dtype: of the state; the arithmetic of the Beta is float64 in any case.
    """

    learns = looks_ahead = prunes = True
    admitted: Mask | None = None

    def __init__(self, given: MethodInputs, dtype: torch.dtype = torch.float32) -> None:
        config, n, device = given.belief, given.n, given.device
        self.config, self.eta, self.seed = config, config.rate, given.seed
        # a and b side by side, so that a step touches both in one gather and one scatter.
        self.logs, self.slopes = (torch.zeros((n, 2), dtype=dtype, device=device) for _ in range(2))
        coasting = n if config.meta_momentum else 0
        self.velocity = torch.zeros((coasting, 2), dtype=dtype, device=device)
        self.last = torch.full((coasting,), -1, dtype=torch.int32, device=device)
        self.weight = torch.zeros(n, dtype=dtype, device=device)
        self.log_a, self.log_b = self.logs.unbind(1)
        self.by_log_a, self.by_log_b = self.slopes.unbind(1)
        self.shared: SharedPart | None = None

    def share(self, among: LookAlikes) -> None:
        """Let look-alikes believe together; nothing is shared yet."""
        self.shared = shared_part(among, self.logs)

    def begin_from(self, prior: Prior, rule: ResolvedPrune) -> Summary:
        """Betas of the prior's strength, its cut at the rule's boundary."""
        strength = self.config.prior_strength
        a, b = beta.prior(prior, strength, pruner.boundary_mean(rule.lam, rule.rho, strength))
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        return Summary((wide_a / (wide_a + wide_b)).astype(np.float32), a, b)

    def take_up(self, weights: Summary) -> None:
        """log a and log b of the ledger's a and b."""
        both = np.stack([weights.a, weights.b], 1).astype(np.float64)  # type: ignore[list-item]  # beliefs have both
        self.logs.copy_(torch.from_numpy(np.log(both)))

    def begin_epoch(self, rows: Tensor, visit: Tensor, epoch: int) -> None:
        """Bring each row to the step of its visit and draw its weight, in row order, keyed by the epoch.

        What look-alikes learn in the course of an epoch enters the draw of the next.
        """
        if self.config.meta_momentum:
            self._coast(rows, visit)
        draws = generator(self.seed, "beta", epoch)
        # In parts, so that the float64 of a draw takes no memory that grows with the store.
        for part in torch.split(rows, DRAWN_AT_ONCE):
            log_a, log_b = self._believed(part).unbind(1)
            drawn = beta.draw(log_a, log_b, draws)
            slopes = (drawn.by_log_a, drawn.by_log_b)
            if self.config.expected_gradient:
                slopes = beta.expected_gradients(log_a, log_b)
            self.weight[part] = drawn.weight.to(self.weight)
            self.slopes[part] = torch.stack(slopes, 1).to(self.slopes)

    def weights(self, rows: Tensor) -> Tensor:
        """The epoch's draw of each row."""
        return self.weight[rows]

    def update(self, rows: Tensor, signal: Tensor, step: int) -> None:
        """log a -= eta * signal * dw/dlog a, the same for b; clamped. With momentum, the velocity moves first; with
        look-alikes, the own part moves by `OWN` of that, and they are taught `SHARED` of it."""
        move = signal.to(self.slopes.dtype)[:, None] * self.slopes[rows]
        if self.config.meta_momentum:
            move += self.config.meta_momentum * self.velocity[rows]
            self.velocity[rows] = move
            self.last[rows] = step
        if self.shared is not None:
            self.shared.teach(rows, -self.eta * SHARED * move)
            move *= OWN
        self.logs[rows] = (self.logs[rows] - self.eta * move).clamp_(beta.LOWEST, beta.HIGHEST)

    def end_epoch(self, rows: Tensor, step: int) -> None:
        """Coast ``rows`` to ``step``."""
        if self.config.meta_momentum:
            self._coast(rows, torch.full_like(rows, step))

    def summary(self, rows: npt.NDArray[np.int64]) -> Summary:
        """a, b and their mean, widened to float64 before the exponential."""
        at = torch.from_numpy(rows).to(self.log_a.device)
        log_a, log_b = self._believed(at).double().unbind(1)
        return Summary(on_host(beta.mean(log_a, log_b)), on_host(log_a.exp()), on_host(log_b.exp()))

    def state(self) -> dict[str, Tensor]:
        """log a, log b, and what momentum needs and look-alikes share."""
        columns = {"log_a": self.log_a, "log_b": self.log_b}
        if self.config.meta_momentum:
            columns |= {"velocity_a": self.velocity[:, 0], "velocity_b": self.velocity[:, 1], "last": self.last}
        if self.shared is not None:
            columns |= {"shared_a": self.shared.logs[:, 0], "shared_b": self.shared.logs[:, 1]}
        return {name: column.contiguous() for name, column in columns.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take up a checkpoint's tensors."""
        self.logs.copy_(torch.stack([state["log_a"], state["log_b"]], 1))
        if self.config.meta_momentum:
            self.velocity.copy_(torch.stack([state["velocity_a"], state["velocity_b"]], 1))
            self.last.copy_(state["last"])
        if self.shared is not None:
            self.shared.logs.copy_(torch.stack([state["shared_a"], state["shared_b"]], 1))

    def _believed(self, rows: Tensor) -> Tensor:
        """log a and log b of ``rows``: shape (k, 2)."""
        own = self.logs[rows]
        return own if self.shared is None else (own + self.shared.of(rows)).clamp_(beta.LOWEST, beta.HIGHEST)

    def _coast(self, rows: Tensor, step: Tensor) -> None:
        idle = (step - 1 - self.last[rows]).double()[:, None]
        x, v = coast(self.logs[rows], self.velocity[rows], idle, self.eta, self.config.meta_momentum)
        self.logs[rows], self.velocity[rows] = x.to(self.logs.dtype), v.to(self.velocity.dtype)
        self.last[rows] = (step - 1).to(self.last.dtype)


def coast(x: Tensor, velocity: Tensor, idle: Tensor, eta: float, momentum: float) -> tuple[Tensor, Tensor]:
    """Where momentum carries a row in ``idle`` steps without a gradient: the closed form of ``idle`` dense steps.

    x = clamp(x - eta v M (1 - M^j) / (1 - M)), v = M^j v. A coasting row keeps its direction, so one clamp at the
    end equals a clamp at every step; the clamp leaves v alone.

    Args:
        x, velocity: of one shape, a row an example.
        idle: float64, j >= 0, of a shape that broadcasts to theirs.
    """
    decay = momentum**idle
    distance = velocity.double() * momentum * (1 - decay) / (1 - momentum)
    return (x.double() - eta * distance).clamp(beta.LOWEST, beta.HIGHEST), velocity.double() * decay
