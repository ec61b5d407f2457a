"""The loop over the steps of an epoch: plain SGD on the store, and beside it the exact meta-gradient of the target.

Owns theta, its velocity and the signal. What is trained on comes as batches of pixels; what is judged, written and
kept is decided elsewhere. A step is pure functions on parameters, and nothing in it waits for the device.

Over several ranks each passes its part of a batch through the network. Three sums put a step together (`curate.ranks`):
the weighted gradient, u, and the signal of the batch's images; so every rank holds the same parameters and beliefs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from curate import ranks
from curate.config.catalogue import SIGNALS
from curate.config.resolved import ResolvedConfig
from curate.data.decode import Pixels
from curate.errors import Misuse, NonFinite
from curate.metalosses.base import ImageLosses, MetaLoss
from curate.methods.base import Method
from curate.models.networks import Network, Parameters, autocast, functional, without_state
from curate.pretexts.base import Pretext
from curate.rng import generator_of_part
from curate.training import evaluators, ghost_products, lookahead, signal
from curate.training.signals import Running, SignalInputs, StepSignal

#: Steps between two looks at the device: for the latch of a non-finite loss and for the progress line.
LOOK_EVERY = 50
#: Steps over which the rate of a cosine rises, or a tenth of all where these are few.
RISE = 20
#: A batch with fewer images is passed over: batch norm needs two.
FEWEST = ranks.FEWEST


@dataclass(frozen=True)
class Setup:
    """What stays the same for a run.

    Args:
        config: resolved.
        network: owns the running statistics of batch norm; its parameters are the starting theta.
        pretext: the store's task.
        meta_loss: the target's loss; None for a method that does not learn.
        device: where everything runs.
        autocast: dtype of the plain and the meta forward under autocast; None for float32.
    """

    config: ResolvedConfig
    network: nn.Module
    pretext: Pretext
    meta_loss: MetaLoss | None
    device: torch.device
    autocast: torch.dtype | None = None
    bare: nn.Module = field(init=False)
    #: What says how much an image helps; None for the meta-gradient itself.
    step_signal: StepSignal | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bare", without_state(self.network))
        object.__setattr__(self, "step_signal", _step_signal(self))

    @property
    def meta_network(self) -> nn.Module:
        """The module of the meta-forward: without running statistics, unless they are to move."""
        return self.network if self.config.meta.meta_updates_bn else self.bare


@dataclass
class State:
    """What a step changes, and a checkpoint holds.

    `running` is what another signal than the meta-gradient carries from step to step. `evaluator` is chosen at the
    first step that needs one, and again where the setup is another (its arithmetic, say); one that is put there by hand
    stays.
    """

    theta: Parameters
    velocity: Parameters
    method: Method
    signal: signal.Signal
    step: int = 0
    running: Running = field(default_factory=dict)
    evaluator: evaluators.Evaluator | None = None
    chosen_for: Setup | None = None


@dataclass
class Totals:
    """Sums over an epoch, on the device.

    `first_bad` is the latch: the first step with a non-finite loss, -1 while there is none. `cpu_seconds` is what the
    epoch took of this thread's processor time, in which waiting does not count; `seconds` went by, by what for. What a
    step adds waits in ``pending`` until somebody looks; with it, whether it took a target batch and whether a signal.
    """

    sums: Tensor
    first_bad: Tensor
    zero: Tensor
    one: Tensor
    steps: int = 0
    images: int = 0
    cpu_seconds: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: {"load": 0.0, "step": 0.0})
    pending: list[tuple[int, tuple[Tensor, ...]]] = field(default_factory=list)

    @classmethod
    def fresh(cls, device: torch.device) -> Totals:
        """Sums of no steps."""
        sums = torch.zeros(7, dtype=torch.float64, device=device)
        zero, one = torch.tensor([0.0, 1.0], device=device)
        return cls(sums, torch.full((), -1, dtype=torch.int64, device=device), zero, one)

    def add(
        self, step: int, k: int, loss: Tensor, meta: Tensor | None, refined: signal.Refined | None, weight: Tensor
    ) -> None:
        """Count one step, with neither meta-loss nor signal where there was none; never waits for the device."""
        self.steps, self.images = self.steps + 1, self.images + k
        asked, judged = (self.zero if part is None else self.one for part in (meta, refined))
        meta = self.zero if meta is None else meta.detach()
        square, odd = (self.zero, self.zero) if refined is None else (refined.mean_square, refined.nonfinite)
        self.pending.append((step, (loss.detach(), meta, square, odd, weight, asked, judged)))

    def fold(self) -> None:
        """Sum up what is pending; never waits for the device."""
        if not self.pending:
            return
        steps = torch.tensor([step for step, _ in self.pending], device=self.sums.device)
        columns = [torch.stack(column).double() for column in zip(*(parts for _, parts in self.pending))]
        self.sums += torch.stack(columns).sum(1)
        bad = torch.where(torch.isfinite(columns[0]), torch.iinfo(torch.int64).max, steps).min()
        found = (self.first_bad < 0) & (bad < torch.iinfo(torch.int64).max)
        self.first_bad = torch.where(found, bad, self.first_bad)
        self.pending.clear()

    def numbers(self) -> dict[str, float]:
        """Means over the steps so far. Waits for the device."""
        self.fold()
        loss, meta, square, odd, weight, asked, judged = self.sums.tolist()
        steps = max(1, self.steps)
        return {
            "pretext_loss": loss / steps,
            "meta_loss": meta / max(1, asked),
            "meta_gradient_rms": (square / max(1, judged)) ** 0.5,
            "nonfinite_rows": odd,
            "mean_weight": weight / steps,
        }


Progress = Callable[[int, dict[str, float]], None]
Step = Callable[[Setup, State, int, float, Pixels, Totals], None]


def begin(setup: Setup, method: Method) -> State:
    """The state before the first step: theta from the network, no velocity."""
    theta = {name: x.detach().clone().requires_grad_() for name, x in setup.network.named_parameters()}
    velocity = {name: torch.zeros_like(x) for name, x in theta.items()}
    return State(theta, velocity, method, signal.Signal.fresh(setup.device))


def learning_rate(config: ResolvedConfig, epoch: int, step: int = 0) -> float:
    """The rate at a step (from 0) of an epoch (from 1), by the schedule: divided by 10 after each epoch or step in
    ``lr_drops``; or half a cosine to 0 over all steps, after a rise over the first ones."""
    train = config.train
    if train.schedule == "cosine":
        assert train.steps is not None
        rise = min(RISE, max(1, train.steps // 10))
        return float(train.lr * min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * step / train.steps)))
    done = epoch - 1 if train.schedule == "epoch" else step
    return float(train.lr * 0.1 ** sum(done >= drop for drop in train.lr_drops))


def train_epoch(
    setup: Setup,
    state: State,
    epoch: int,
    batches: Iterable[Pixels],
    progress: Progress | None = None,
    totals: Totals | None = None,
) -> tuple[Totals, dict[str, float]]:
    """One pass over ``batches``, one step each; a batch with fewer than 2 images is passed over.

    Args:
        setup: the run's constants.
        state: changed in place.
        epoch: from 1.
        batches: pixels on the device, in the epoch's order.
        progress: called after each step with the images done and, now and then, the running means.
        totals: of the part of the epoch that is done; None where it begins.

    Returns:
        The totals, and the seconds spent waiting for data ("load") and computing ("step").

    Raises:
        NonFinite: the loss or the parameters are no longer numbers; the message names the step.
    """
    totals = Totals.fresh(setup.device) if totals is None else totals
    seconds = totals.seconds
    learning = setup.meta_loss is not None and state.method.learns and epoch > setup.config.belief.warmup
    setup.network.train()
    setup.bare.train()
    step = _learning_step(setup, state) if learning else _plain_step
    clock, busy = time.perf_counter(), time.thread_time() - totals.cpu_seconds
    lr = learning_rate(setup.config, epoch, state.step)
    for batch in batches:
        seconds["load"] += (now := time.perf_counter()) - clock
        lr = learning_rate(setup.config, epoch, state.step)
        if len(batch.rows) >= FEWEST:
            step(setup, state, epoch, lr, batch, totals)
        state.step += 1
        look = totals.steps % LOOK_EVERY == 1
        if look:
            _raise_if_latched(totals, epoch, lr)
        if progress is not None:
            progress(len(batch.rows), totals.numbers() if look else {})
        seconds["step"] += (clock := time.perf_counter()) - now
    _raise_if_latched(totals, epoch, lr)
    totals.cpu_seconds = time.thread_time() - busy  # once an epoch: on some systems a look takes as long as a step
    _raise_if_broken(state, epoch, lr)
    return totals, seconds


def meta_gradient(setup: Setup, state: State, batch: Pixels) -> Tensor:
    """h = dM/dw of one batch at the state's parameters and weights, shape (k,); the state is left as it was.

    What a step computes before the signal is refined: for measuring one arithmetic against another.
    """
    lr, theta, velocity = learning_rate(setup.config, 1, state.step), state.theta, state.velocity
    buffers = {name: x.clone() for name, x in setup.network.named_buffers()}
    source, weights = _source_pass(setup, state, 1, batch), state.method.weights(batch.rows.to(setup.device))
    _descend(setup, state, batch, source.gradient(_own(weights, batch)), source.losses, lr)
    target = _target_pass(setup, state, 1)
    u, _ = ranks.added(target.gradient(), target.loss)
    products = source.along(u)
    state.theta, state.velocity = theta, velocity
    for name, x in setup.network.named_buffers():
        x.copy_(buffers[name])
    return -lr / len(batch.rows) * batch.part.gathered(products)


def _learning_step(setup: Setup, state: State) -> Step:
    """The step of a method that learns: by the meta-gradient, every so many steps, or by another signal."""
    if setup.step_signal is not None:
        return _judged_step
    if not state.method.looks_ahead:
        return _reweighted_step
    return _look_ahead_step if setup.config.belief.meta_every == 1 else _now_and_then


def _plain_step(setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, totals: Totals) -> None:
    rows = batch.rows.to(setup.device, non_blocking=True)
    weights = state.method.weights(rows)
    losses = _losses(setup, state, epoch, batch)(_network(setup, setup.network, state.theta))
    own = _own(weights, batch)
    gradient = lookahead.gradient((own * losses).sum() / len(own), state.theta)
    loss = _descend(setup, state, batch, gradient, losses, lr)
    totals.add(state.step, len(weights), loss, None, None, weights.mean())


def _look_ahead_step(setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, totals: Totals) -> None:
    """The look-ahead step, the target's loss after it, and the products with the gradients before it."""
    rows = batch.rows.to(setup.device, non_blocking=True)
    source, weights = _source_pass(setup, state, epoch, batch), state.method.weights(rows)
    loss = _descend(setup, state, batch, source.gradient(_own(weights, batch)), source.losses, lr)
    learnt = _learn(setup, state, epoch, lr, batch, source)
    totals.add(state.step, len(rows), loss, *learnt, weights.mean())


def _now_and_then(setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, totals: Totals) -> None:
    """The look-ahead step where a target batch is due, plain steps in between: these judge nobody."""
    (_look_ahead_step if _is_due(setup, state) else _plain_step)(setup, state, epoch, lr, batch, totals)


def _judged_step(setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, totals: Totals) -> None:
    """A step of SGD, and what another signal than the meta-gradient says of its images. A target batch is asked after
    the step where one is due; between two of them the signal goes by those before."""
    assert setup.step_signal is not None
    rows = batch.rows.to(setup.device, non_blocking=True)
    weights = state.method.weights(rows)
    source = setup.step_signal.source(state.theta, _losses(setup, state, epoch, batch))
    loss = _descend(setup, state, batch, source.gradient(weights), source.losses, lr)
    target = None
    if _is_due(setup, state):
        target = setup.step_signal.target(state.theta, _target_losses(setup, state, epoch))
    h = setup.step_signal.judge(state.running, source, target, lr)
    refined = signal.refine(state.signal, h, setup.config.belief)
    state.method.update(rows, refined.signal, state.step)
    meta = None if target is None else target.loss
    totals.add(state.step, len(rows), loss, meta, refined, weights.mean())


def _is_due(setup: Setup, state: State) -> bool:
    return state.step % setup.config.belief.meta_every == 0


def _reweighted_step(setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, totals: Totals) -> None:
    """The weights of a batch from its own meta-gradient at w = 0, where the look-ahead is the parameters themselves;
    then the step with them (Ren et al. 2018)."""
    rows = batch.rows.to(setup.device, non_blocking=True)
    source = _source_pass(setup, state, epoch, batch)
    learnt = _learn(setup, state, epoch, lr, batch, source)
    weights = state.method.weights(rows)
    loss = _descend(setup, state, batch, source.gradient(_own(weights, batch)), source.losses, lr)
    totals.add(state.step, len(rows), loss, *learnt, weights.mean())


def _learn(
    setup: Setup, state: State, epoch: int, lr: float, batch: Pixels, source: evaluators.SourcePass
) -> tuple[Tensor, signal.Refined]:
    """One target batch at the state's parameters, and the method's update by it. Returns the meta-loss, a scalar on
    the device, and the signal."""
    rate = lr / len(batch.rows)
    products, meta = _products(setup, state, epoch, source, rate)
    h = -rate * batch.part.gathered(products)
    refined = signal.refine(state.signal, h, setup.config.belief)
    state.method.update(batch.rows.to(setup.device, non_blocking=True), refined.signal, state.step)
    return meta, refined


def _products(
    setup: Setup, state: State, epoch: int, source: evaluators.SourcePass, rate: float
) -> tuple[Tensor, Tensor]:
    """<u, grad L_i> for the images of this rank, u the gradient of a target batch's loss or its mean; and that loss.

    Over several ranks u is summed up, so it must be formed.
    """
    belief, target = setup.config.belief, _target_pass(setup, state, epoch)
    if not signal.needs_gradient(belief) and ranks.world() == 1:
        return source.along_target(target), target.loss
    u, loss = ranks.added(target.gradient(), target.loss)
    return source.along(signal.direction(state.signal, u, rate, belief)), loss


def _losses(setup: Setup, state: State, epoch: int, batch: Pixels) -> lookahead.Losses:
    """The pretext's losses of one view of the batch, as a function of a network."""
    part = batch.part
    draws = generator_of_part(setup.config.seed, "view", epoch, state.step, part.own, part.whole)
    view = setup.pretext.view(batch.pixels, draws)
    return partial(setup.pretext.losses, view=view)


def _target_losses(setup: Setup, state: State, epoch: int) -> lookahead.Losses:
    """The losses of a fresh target batch's images, as a function of a network."""
    assert setup.meta_loss is not None
    return partial(cast(ImageLosses, setup.meta_loss).losses, batch=setup.meta_loss.batch(epoch, state.step))


def _source_pass(setup: Setup, state: State, epoch: int, batch: Pixels) -> evaluators.SourcePass:
    """The forward over the batch; moves the running statistics once."""
    losses = _losses(setup, state, epoch, batch)
    if state.evaluator is None or (state.chosen_for is not None and state.chosen_for is not setup):
        state.evaluator, state.chosen_for = choose_evaluator(setup, state.theta, losses), setup
    return state.evaluator.source(state.theta, losses)


def _target_pass(setup: Setup, state: State, epoch: int) -> evaluators.TargetPass:
    """The meta-loss of a fresh target batch at the state's parameters."""
    assert setup.meta_loss is not None
    assert state.evaluator is not None
    loss = partial(setup.meta_loss.loss, batch=setup.meta_loss.batch(epoch, state.step))
    return state.evaluator.target(state.theta, loss)


def choose_evaluator(setup: Setup, theta: Parameters, losses: lookahead.Losses) -> evaluators.Evaluator:
    """The layers' tape where pretext and network allow it and a first batch confirms it, else the tangent."""
    if setup.autocast is None and not setup.pretext.couples and ghost_products.refusal(setup.network) is None:
        found = ghost_products.Taped(setup.network)
        if ranks.everywhere(evaluators.agree(found, setup.bare, theta, losses)):
            return found
    bind = partial(_network, setup, setup.network)
    return evaluators.Tangent(bind, partial(_network, setup, setup.meta_network), setup.bare)


def _step_signal(setup: Setup) -> StepSignal | None:
    """The signal of the configuration's name, but the meta-gradient.

    Raises:
        Misuse: pretext, meta-loss or network do not have what it takes.
    """
    name = setup.config.belief.signal
    if name == "exact" or setup.meta_loss is None:
        return None
    if not hasattr(setup.meta_loss, "losses"):
        raise Misuse(f"--signal {name}: the meta-loss tells no single image's loss; give --signal exact")
    bind = partial(_network, setup)
    inputs = SignalInputs(setup.config, setup.network, setup.meta_network, setup.bare, setup.pretext.couples, bind)
    found: StepSignal = SIGNALS[name](inputs)
    return found


def _own(weights: Tensor, batch: Pixels) -> Tensor:
    """The weights of this rank's images, so that the mean of their weighed losses is its part of that of the batch.

    Where batch norm joins the ranks, a backward pass mixes their losses, so these must be in one unit before it.
    """
    return batch.part.weighed(weights[batch.part.own])


def _descend(setup: Setup, state: State, batch: Pixels, gradient: Parameters, losses: Tensor, lr: float) -> Tensor:
    """The step of SGD by the gradient of the whole batch, of which this rank has its part; returns the mean of the
    batch's losses, a scalar on the device."""
    train = setup.config.train
    gradient, loss = ranks.added(gradient, batch.part.weighed(losses.mean()))
    state.theta, state.velocity = lookahead.sgd_step(
        state.theta, state.velocity, gradient, lr, train.momentum, train.weight_decay
    )
    return loss


def _network(setup: Setup, module: nn.Module, theta: Parameters) -> Network:
    return autocast(functional(module, theta), setup.autocast, setup.device)


def _raise_if_latched(totals: Totals, epoch: int, lr: float) -> None:
    totals.fold()
    step = int(totals.first_bad)
    if step >= 0:
        raise NonFinite(
            f"epoch {epoch}, step {step}: the training loss is not finite; the last checkpoint is intact; "
            f"start again in a new --out with a smaller --lr (now {lr:g})"
        )


def _raise_if_broken(state: State, epoch: int, lr: float) -> None:
    """The last step's gradient shows in no loss any more: look at the parameters themselves."""
    whole = torch.stack([torch.isfinite(x).all() for x in state.theta.values()]).all()
    if not bool(whole):
        raise NonFinite(
            f"epoch {epoch}, step {state.step - 1}: the parameters are not finite; the last checkpoint is intact; "
            f"start again in a new --out with a smaller --lr (now {lr:g})"
        )
