"""What scripts/bench_step and scripts/gpu_check share: workloads of real size on pixels of noise, timed in turns.

The three steps that are compared start from one network, see the same batches and draw the same episodes. The plain
and the BDW step are the engine's own; the double-backward step is built on `curate.training.reference`. Prints nothing.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from curate.config.defaults import resolve
from curate.config.schema import RunConfig, from_options
from curate.data.augment import Augment
from curate.data.decode import Pixels
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.methods import METHODS
from curate.methods.base import MethodInputs
from curate.models.networks import build
from curate.pretexts import PRETEXTS
from curate.rng import generator
from curate.training import engine, precision, reference, signal

#: Different batches that the timed steps go round.
BATCHES = 4
#: A plain step is one forward and two forwards' worth of backward; so is the meta-pass an image; the tangent on
#: stored primals is two (method section 2). In units of one source forward.
PLAIN, META, TANGENT = 3, 3, 2
#: Target images over source images where signals are compared.
ASKED = 0.8


@dataclass(frozen=True)
class Workload:
    """The shape of a step: ``batch`` store images in four rotations, and an episode of the target.

    Args:
        network: resnet18, resnet34 or small.
        crop: side of the images in pixels.
        batch: store images a step.
        ways, shots, queries: of the prototypical episode; queries a way.
    """

    network: str
    crop: int
    batch: int
    ways: int
    shots: int
    queries: int

    @property
    def r(self) -> float:
        """Target images over source images (rotations counted) of a step."""
        return self.ways * (self.shots + self.queries) / (4 * self.batch)

    @property
    def floor(self) -> float:
        """Multiplications of a BDW step over those of a plain one, with a tangent that reuses the stored primal."""
        return (PLAIN + META * self.r + TANGENT) / PLAIN


Seconds = dict[str, list[float]]
Steps = Callable[[engine.Setup, engine.State, list[Pixels]], Any]


def open_setup(workload: Workload, device: torch.device, arithmetic: str = "float32") -> engine.Setup:
    """The engine's setup for a workload, with a prototypical meta-loss on twice as many classes as an episode has."""
    config = configuration(workload)
    augment = Augment.of(config.images)
    pretext = PRETEXTS["rotation"](augment, config.network)
    target = noise_target(workload, config, device)
    meta_loss = META_LOSSES["prototypical"](target, config.meta, augment, pretext, config.seed)
    network = build(config.network, config.images, generator(config.seed, "network")).to(device)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)
    precision.use(arithmetic)
    return engine.Setup(config, network, pretext, meta_loss, device, torch.bfloat16 if arithmetic == "bf16" else None)


def signal_setup(workload: Workload, device: torch.device, name: str, norm: str = "batch") -> engine.Setup:
    """The engine's setup for a workload by a signal, on a target batch of `ASKED` images a store image."""
    asked = {"meta_loss": "self-supervised", "target_batch": round(ASKED * workload.batch)}
    config = configuration(workload, **asked, signal=name, norm=norm, warmup=0)
    augment = Augment.of(config.images)
    pretext = PRETEXTS["rotation"](augment, config.network)
    meta_loss = META_LOSSES["self-supervised"](
        noise_target(workload, config, device), config.meta, augment, pretext, config.seed
    )
    network = build(config.network, config.images, generator(config.seed, "network")).to(device)
    return engine.Setup(config, network, pretext, meta_loss, device)


def time_signals(workload: Workload, device: torch.device, kinds: dict[str, tuple[str, str]], rounds: int) -> Seconds:
    """Seconds a step of each kind in each round, after one round of warm-up, all in turns.

    Args:
        kinds: name -> a signal or "plain", and the norm of the network.
    """
    runs = {}
    for name, (kind, norm) in kinds.items():
        setup = signal_setup(workload, device, "exact" if kind == "plain" else kind, norm)
        runs[name] = setup, begin(setup, "uniform" if kind == "plain" else "bdw")
    batches, seconds = noise_batches(next(iter(runs.values()))[0]), {name: list[float]() for name in kinds}
    for turn in range(rounds + 2):  # a signal knows nothing at its first step
        for name, (setup, state) in runs.items():
            _wait(device)
            started = time.perf_counter()
            engine.train_epoch(setup, state, 1, [batches[turn % BATCHES]])
            _wait(device)
            seconds[name].append(time.perf_counter() - started)
    return {name: values[2:] for name, values in seconds.items()}


def configuration(workload: Workload, **changes: Any) -> RunConfig:
    """BDW by rotation as `curate run` has it, with the workload's sizes."""
    config = from_options(
        {
            **asdict(workload),
            "store": "noise",
            "target": "noise",
            "size": workload.crop * 9 // 8,
            "mean": (0.5,) * 3,
            "deviation": (0.25,) * 3,
            "lr": 0.01,
            "meta_loss": "prototypical",
            **changes,
        }
    )
    return resolve(config, labelled=True)


def noise_target(workload: Workload, config: RunConfig, device: torch.device) -> TargetImages:
    """Just as many images a class as an episode takes."""
    labels = torch.arange(2 * workload.ways).repeat_interleave(workload.shots + workload.queries)
    return TargetImages(_noise(len(labels), config, "target").to(device), labels)


def noise_batches(setup: engine.Setup) -> list[Pixels]:
    """`BATCHES` batches of store images on the device."""
    size = int(setup.config.train.batch or 0)
    pixels = _noise(BATCHES * size, setup.config, "store").to(setup.device)
    rows = torch.arange(BATCHES * size)
    return [Pixels(*pair) for pair in zip(torch.split(rows, size), torch.split(pixels, size))]


def begin(setup: engine.Setup, method: str) -> engine.State:
    """A state at the start of an epoch in which every row is visited."""
    rows = torch.arange(BATCHES * int(setup.config.train.batch or 0), device=setup.device)
    state = engine.begin(
        setup, METHODS[method](MethodInputs(len(rows), setup.config.belief, setup.config.seed, setup.device))
    )
    state.method.begin_epoch(rows, torch.zeros_like(rows), 1)
    return state


def engine_steps(setup: engine.Setup, state: engine.State, batches: list[Pixels]) -> None:
    """The engine's own steps: plain or BDW, as the state's method learns or not."""
    engine.train_epoch(setup, state, 1, batches)


def double_backward_steps(setup: engine.Setup, state: engine.State, batches: list[Pixels]) -> Tensor:
    """The same as BDW steps, by differentiating through the look-ahead step; returns the last batch's dM/dw."""
    train, lr, h = setup.config.train, engine.learning_rate(setup.config, 1), torch.empty(0)
    setup.bare.train()
    for batch in batches:
        rows = batch.rows.to(setup.device)
        view = setup.pretext.view(batch.pixels, generator(setup.config.seed, "view", 1, state.step))
        assert setup.meta_loss is not None
        episode = setup.meta_loss.batch(1, state.step)
        with torch.autocast(setup.device.type, setup.autocast, enabled=setup.autocast is not None):
            h, ahead = reference.meta_gradient(
                setup.bare,
                state.theta,
                state.velocity,
                state.method.weights(rows),
                partial(setup.pretext.losses, view=view),
                partial(setup.meta_loss.loss, batch=episode),
                (lr, float(train.momentum or 0), float(train.weight_decay or 0)),
            )
        refined = signal.refine(state.signal, h, setup.config.belief).signal
        state.method.update(rows, refined, state.step)
        state.velocity = {name: (x.detach() - ahead[name]) / lr for name, x in state.theta.items()}
        state.theta = {name: x.requires_grad_() for name, x in ahead.items()}
        state.step += 1
    return h


#: Name of a step -> the method whose state it needs, and the step.
VARIANTS: Mapping[str, tuple[str, Steps]] = {
    "plain": ("uniform", engine_steps),
    "bdw": ("bdw", engine_steps),
    "double_backward": ("bdw", double_backward_steps),
}


def time_steps(setup: engine.Setup, rounds: int, block: int = 1) -> dict[str, list[float]]:
    """Seconds a step of each variant in each round, after one round of warm-up.

    A round times every variant once, one after the other, so that what else the machine does hits all alike.

    Args:
        setup: of the workload.
        rounds: how many.
        block: steps timed together: more than one where starting and waiting would show.
    """
    batches = noise_batches(setup)
    states = {name: begin(setup, method) for name, (method, _) in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(rounds + 1):
        timed = [batches[(turn * block + i) % BATCHES] for i in range(block)]
        for name, (_, steps) in VARIANTS.items():
            _wait(setup.device)
            started = time.perf_counter()
            steps(setup, states[name], timed)
            _wait(setup.device)
            seconds[name].append((time.perf_counter() - started) / block)
    return {name: values[1:] for name, values in seconds.items()}


def ratio(over: list[float], under: list[float]) -> tuple[float, tuple[float, float]]:
    """The ratio of the medians, and the quartiles of the ratios round by round.

    >>> ratio([2.0, 4.0, 6.0], [1.0, 2.0, 2.0])
    (2.0, (2.0, 3.0))
    """
    single = [a / b for a, b in zip(over, under)]
    low, _, high = statistics.quantiles(single, n=4) if len(single) > 1 else single * 3
    return statistics.median(over) / statistics.median(under), (low, high)


def peak_memory(workload: Workload, device: torch.device, arithmetic: str, variant: str) -> int:
    """The most bytes that two steps of a variant hold. On the CPU this is the whole process: call it in a fresh one."""
    setup = open_setup(workload, device, arithmetic)
    method, steps = VARIANTS[variant]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    steps(setup, begin(setup, method), noise_batches(setup)[:2])
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # Not getrusage: its high-water mark is inherited from the process that started this one.
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(lines["VmHWM"].split()[0]) * 1024


def conditions(device: torch.device) -> dict[str, Any]:
    """Where a figure comes from: device and versions."""
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else f"cpu, {torch.get_num_threads()} threads"
    return {"device": name, "versions": {"python": platform.python_version(), "torch": torch.__version__}}


def _noise(n: int, config: RunConfig, purpose: str) -> Tensor:
    side = int(config.images.size or 0)
    g = generator(config.seed, f"noise {purpose}")
    return torch.randint(256, (n, 3, side, side), generator=g, dtype=torch.uint8)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
