"""The defaults that depend on pretext, method or target, and what a configuration may not be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from curate.config import intervals
from curate.config.catalogue import (
    META_LOSSES,
    METHODS,
    NETWORKS,
    PAPER_PRIOR,
    PAPER_SHARE,
    PRETEXTS,
    SELECTORS,
    SIGNALS,
    MethodSpec,
    Options,
    PretextSpec,
    method_spec,
    parse_encoder,
)
from curate.config.resolved import ResolvedConfig, ResolvedTrain, settled, unsettled
from curate.config.schema import GROUPS, PAPER, RunConfig, TrainConfig, flag
from curate.config.share import parse_share
from curate.errors import Misuse

#: Built-in methods that compute no meta-loss.
TARGET_BLIND = ("nn", "oracle", "uniform")


def inapplicable(method: str) -> dict[str, tuple[Any, str]]:
    """The options that say nothing to a method, each with the only value it may have and the reason.

    >>> inapplicable("dw")["meta_momentum"]
    (0.0, "the paper's DW has none")
    """
    spec = method_spec(method)
    groups = spec.inapplicable
    if "prior" not in spec.inputs:
        groups = (*groups, (PAPER_PRIOR, "it has no beliefs to begin with"))
    if "look-alikes" not in spec.inputs:
        groups = (*groups, (PAPER_SHARE, "its images have no beliefs to share"))
    return _flat(groups)


def _flat(groups: Iterable[tuple[Options, str]]) -> dict[str, tuple[Any, str]]:
    return {name: (value, reason) for options, reason in groups for name, value in options.items()}


def applicable(method: str, options: dict[str, Any]) -> dict[str, Any]:
    """``options`` without those that say nothing to a method: what one set of options means for each of several."""
    return {name: value for name, value in options.items() if name not in inapplicable(method)}


def paper(method: str) -> dict[str, Any]:
    """Paper mode of a method: `PAPER`, with what the paper leaves open for dw as everywhere here."""
    return applicable(method, PAPER | dict(method_spec(method).defaults) | dict(PAPER_PRIOR))


#: How weights move and who is dropped, where neither signal nor method says otherwise.
_COMMON: dict[str, Any] = {
    **{"eta_scale": "history", "eta": 1.0, "contrast": "none", "meta_average": 0.0, "warmup": 0},
    **{"lam": 0.25, "prior": "uniform"},
}
#: Where one of these is given, what images and network are like was thought about: the usual ones would not go with it.
_SHAPE = ("size", "crop", "network", "norm", "stem_stride", "width")


def usual(given: dict[str, Any]) -> dict[str, Any]:
    """What `curate run` takes for the options that were not given, but in paper mode: the road that is best for an
    unknown store (docs/when-it-pays.md). Nothing for a selector, which trains nothing.

    >>> usual({"method": "bdw"})["prior"], usual({"size": 96}).get("crop"), usual({"method": "classifier"})
    ('classifier', None, {})
    """
    method = given.get("method", "bdw")
    if method in SELECTORS or method not in METHODS:
        return {}
    name = given.get("pretext", RunConfig.pretext)
    found = dict(PRETEXTS.spec(name).usual) if name in PRETEXTS else {}
    if any(name in given for name in _SHAPE):
        found = {name: value for name, value in found.items() if name not in _SHAPE}
    own = SIGNALS.spec(given["signal"]).defaults if given.get("signal") in SIGNALS else {}
    found |= {name: value for name, value in METHODS.spec(method).usual.items() if name not in own}
    return {name: value for name, value in found.items() if name not in given}


def by_pretext(name: str) -> dict[str, Any]:
    """The default of an option for each pretext that has one of its own.

    >>> by_pretext("size")
    {'rotation': 72, 'reconstruction': 28, 'simclr': 72}
    """
    found = {pretext: _defaults(PRETEXTS.spec(pretext)) for pretext in PRETEXTS}
    return {pretext: options[name] for pretext, options in found.items() if name in options}


def usual_by_pretext(name: str, default: Any) -> dict[str, Any]:
    """What `curate run` takes for an option where nothing is said, for each pretext; nothing where it says nothing.

    Args:
        default: the option's own.

    >>> usual_by_pretext("epochs", None), usual_by_pretext("momentum", None)["rotation"]
    ({'rotation': 10, 'reconstruction': 100, 'simclr': 10}, 0.9)
    """
    found = {pretext: _defaults(PRETEXTS.spec(pretext)) | usual({"pretext": pretext}) for pretext in PRETEXTS}
    values = {pretext: options.get(name, default) for pretext, options in found.items()}
    return {pretext: value for pretext, value in values.items() if value not in (None, "")}


def resolve(config: RunConfig, labelled: bool) -> ResolvedConfig:
    """Fill in every default that depends on the pretext, the method or the target, and check the whole.

    Args:
        config: as given by the user.
        labelled: whether the target's images have labels.

    Raises:
        Misuse: a value out of its range or two that exclude each other, with what to do.
    """
    filled = _filled(config, labelled)
    if missing := unsettled(filled):  # of a pretext from outside: ours have them all
        options = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise Misuse(f"{options}: no default for --pretext {config.pretext}; give it, or let the pretext have it")
    resolved = settled(filled)
    check(resolved, labelled)
    return resolved


def _filled(config: RunConfig, labelled: bool) -> RunConfig:
    pretext, method = PRETEXTS.spec(config.pretext), method_spec(config.method)
    _refuse_inapplicable(config)
    config = _fill(config, _defaults(pretext))
    if pretext.statistics is not None:
        mean, deviation = ((value,) * config.images.channels for value in pretext.statistics)
        config = _fill(config, {"mean": mean, "deviation": deviation})
    crop = config.images.crop or 0
    config = _fill(
        config,
        {
            "network": "small" if crop <= 32 else "resnet18",
            # What is never computed keeps the name it had, and with it such a run keeps its id.
            "meta_loss": "prototypical" if labelled and config.method in TARGET_BLIND else "self-supervised",
            "queries": config.meta.shots,
            "lr_drops": _default_drops(config.train),
        },
    )
    return _fill_belief(config, method)


def refuse_impossible(config: RunConfig) -> None:
    """Check a configuration as far as it goes without opening store or target.

    Raises:
        Misuse: as `resolve`, whether or not the target has labels, which takes its reading to know.
    """
    try:
        resolve(config, labelled=True)
    except Misuse as first:
        try:
            resolve(config, labelled=False)
        except Misuse:
            raise first from None


def _defaults(pretext: PretextSpec) -> dict[str, Any]:
    return {**({"network": pretext.network} if pretext.network else {}), **pretext.defaults}


def _fill_belief(config: RunConfig, method: MethodSpec) -> RunConfig:
    """The defaults of how weights move and who is dropped, by method; what says nothing to it at its only value."""
    fixed = {name: value for name, (value, _) in inapplicable(config.method).items()}
    signal = SIGNALS.spec(config.belief.signal).defaults
    own = {**_COMMON, **signal, **method.defaults, **fixed}
    own.setdefault("reference", "target" if _compares(config.meta.meta_loss) else "none")
    if "warmup" not in fixed:  # of a single epoch nothing would be left
        own["warmup"] = min(own["warmup"], max(0, (config.train.epochs or 1) - 1))
    if (config.belief.eta_scale or own["eta_scale"]) == "raw" and "eta" not in fixed:
        own["eta"] = 10.0
    return _fill(config, {name: own[name] for name in (*_COMMON, "reference")})


def _compares(meta_loss: str | None) -> bool:
    """Whether the meta-loss is the pretext's own, so that a store image can be compared with a target image."""
    return meta_loss in META_LOSSES and META_LOSSES.spec(str(meta_loss)).is_pretext


def check(config: ResolvedConfig, labelled: bool) -> None:
    """Check a resolved configuration: ranges, and options that exclude each other or that the method cannot use.

    Raises:
        Misuse: one line that names the option, its value and what to do.
    """
    _check_values(config)
    for meant, refusal in _combinations(config, labelled):
        if not meant:
            raise Misuse(refusal)


def _check_values(config: ResolvedConfig) -> None:
    groups = [(config, RunConfig), *((getattr(config, name), kind) for name, kind in GROUPS.items())]
    for group, kind in groups:
        for item in fields(kind):
            choices, value = item.metadata.get("choices"), getattr(group, item.name)
            if choices and value is not None and value not in choices:
                raise Misuse(f"--{item.name.replace('_', '-')} {value}: unknown; known: {', '.join(choices)}")
    for name, value, holds, rule in _ranges(config):
        if not holds:
            raise Misuse(f"--{name.replace('_', '-')} {value}: must be {rule}")


def _combinations(config: ResolvedConfig, labelled: bool) -> list[tuple[bool, str]]:
    """Whether each combination can be meant, and what to say where it can't."""
    pretext, network, near = PRETEXTS.spec(config.pretext), NETWORKS.spec(config.network.network), config.neighbours
    method, features = method_spec(config.method), near.nn_space == "features"
    named, meta_loss = config.network.network, config.meta.meta_loss
    return [
        *_contrast(config),
        *_prior(config),
        *_signal(config),
        *_share(config),
        *_schedule(config.train),
        *_devices(config),
        (
            network.pretext in (None, config.pretext),
            f"--network {named} is for --pretext {network.pretext}; {config.pretext} needs a ResNet",
        ),
        (
            pretext.network in (None, named),
            f"--pretext {config.pretext} trains {_name_of(pretext.network)}, not {named}; "
            f"give --network {pretext.network}",
        ),
        (
            labelled or not META_LOSSES.spec(meta_loss).needs_labels,
            f"--meta-loss {meta_loss} needs labels (.cls members) in the target; give self-supervised",
        ),
        (
            config.belief.reference != "target" or _compares(meta_loss),
            "--reference target needs --meta-loss self-supervised: the two losses are compared",
        ),
        (
            bool(config.target) or not method.needs_target,
            f"--method {config.method} needs a --target to weigh images by",
        ),
        (
            bool(config.domain) or "domain" not in method.inputs,
            f"--method {config.method} needs --domain: the target's own, as domains.parquet beside the shards names it",
        ),
        (bool(near.nn_features) or not features, "--nn-space features needs --nn-features: the network's weights"),
        (features or not near.nn_features, "--nn-features is for --nn-space features; pixels need no network"),
        (
            config.method not in SELECTORS or SELECTORS.spec(config.method).has_own_rule or config.selection.keep > 0,
            f"--method {config.method} needs --keep: how many images, or which share",
        ),
        (
            config.selection.nets == 3 or parse_encoder(config.selection.encoder)[0] == "untrained",
            f"--nets {config.selection.nets}: is for --encoder untrained; leave it out",
        ),
        (features or near.nn_tap == "pool", "--nn-tap is for --nn-space features; pixels need no network"),
    ]


def _name_of(network: str | None) -> str:
    return NETWORKS.spec(network).title if network else "any network"


def _contrast(config: ResolvedConfig) -> list[tuple[bool, str]]:
    """What only two views of an image have, and what only the small network has."""
    images, network = config.images, config.network
    options: dict[str, Any] = {"augment-strength": images.augment_strength, "projection": network.projection}
    options["temperature"] = network.temperature
    stride, named = network.stem_stride, network.network
    return [
        *(
            (config.pretext == "simclr" or value is None, f"--{name} {value}: for --pretext simclr; leave it out")
            for name, value in options.items()
        ),
        (
            stride == 1 or named == "small",
            f"--stem-stride {stride}: of --network small; {named} has its own; leave it out",
        ),
    ]


def _prior(config: ResolvedConfig) -> list[tuple[bool, str]]:
    """Features are looked at by a selector, and where the prior is a selector's."""
    belief, chosen = config.belief, config.selection
    looks = config.method in SELECTORS or belief.prior in SELECTORS or parse_share(belief.share) is not None
    idle = {"encoder": chosen.encoder == "untrained", "nets": chosen.nets == 3, "features": not chosen.features}
    return [
        *(
            (
                looks or at_default,
                f"--{name} {getattr(chosen, name)}: says nothing to --method {config.method} by itself; "
                "add --prior classifier or --share, or leave it out",
            )
            for name, at_default in idle.items()
        ),
        (
            belief.prior not in SELECTORS or SELECTORS.spec(belief.prior).gives_prior,
            f"--prior {belief.prior}: its score is no probability; give uniform, classifier, or a file",
        ),
        (
            belief.prior != "uniform" or belief.prior_strength == PAPER_PRIOR["prior_strength"],
            f"--prior-strength {belief.prior_strength:g}: of a prior that is not uniform; leave it out",
        ),
    ]


def _signal(config: ResolvedConfig) -> list[tuple[bool, str]]:
    """What a signal is compared with, and whose loss it takes on the target."""
    belief, meta_loss = config.belief, config.meta.meta_loss
    known = SIGNALS.spec(belief.signal).references
    return [
        (
            belief.reference in known,
            f"--reference {belief.reference}: not of --signal {belief.signal}; it knows {', '.join(known)}",
        ),
        (
            belief.signal == "exact" or _compares(meta_loss),
            f"--signal {belief.signal} needs --meta-loss self-supervised: it sets target images beside store images",
        ),
    ]


def _share(config: ResolvedConfig) -> list[tuple[bool, str]]:
    """What beliefs that are shared exclude, and what nothing but they can mean."""
    belief = config.belief
    alone = parse_share(belief.share) is None
    return [
        (
            alone or not belief.meta_momentum,
            f"--share {belief.share}: with --meta-momentum {belief.meta_momentum:g} an image coasts on its own visits "
            "alone; leave one of the two out",
        ),
        (
            not (alone and belief.returns),
            "--return: what is dropped is believed otherwise only where look-alikes teach it; add --share clusters:64",
        ),
    ]


def _schedule(train: ResolvedTrain) -> list[tuple[bool, str]]:
    """A rate that follows steps must know how many there are."""
    by_steps = train.schedule != "epoch"
    return [
        (
            not by_steps or train.steps is not None,
            f"--schedule {train.schedule}: needs to know how many steps there are; it is for `curate pretrain --steps`",
        ),
        (by_steps or train.steps is None, f"--steps {train.steps}: of a run's options it needs --schedule step"),
        (train.schedule != "cosine" or not train.lr_drops, "--lr-drops: a cosine has none; leave one of them out"),
    ]


def _devices(config: ResolvedConfig) -> list[tuple[bool, str]]:
    """What several processes that share every batch can train: all of ours but the other signals."""
    several, spreads = (
        f"--devices {config.machine.devices}",
        {
            f"--pretext {config.pretext}": PRETEXTS.spec(config.pretext).spreads,
            f"--meta-loss {config.meta.meta_loss}": META_LOSSES.spec(config.meta.meta_loss).spreads,
            f"--signal {config.belief.signal}": SIGNALS.spec(config.belief.signal).spreads,
        },
    )
    alone = config.machine.devices == 1
    return [
        (
            alone or config.method not in SELECTORS,
            f"{several}: --method {config.method} trains nothing; leave --devices out",
        ),
        *(
            (alone or able, f"{several}: {what} cannot share a batch among processes; leave one of the two out")
            for what, able in spreads.items()
        ),
    ]


def _refuse_inapplicable(config: RunConfig) -> None:
    """Refuse a value that would do nothing; the one that is no choice, and the default, pass."""
    given = {name: value for group in GROUPS for name, value in vars(getattr(config, group)).items()}
    idle = {f"--method {config.method}": inapplicable(config.method)}
    idle[f"--signal {config.belief.signal}"] = _flat(SIGNALS.spec(config.belief.signal).inapplicable)
    for whom, options in idle.items():
        for name, (value, reason) in options.items():
            if given[name] is not None and given[name] != value:
                raise Misuse(f"{flag(name)} {given[name]}: says nothing to {whom}: {reason}; leave it out")


def _ranges(config: ResolvedConfig) -> list[tuple[str, Any, bool, str]]:
    images, train, meta, belief, prune = config.images, config.train, config.meta, config.belief, config.prune
    # A weight of 0 is dropped by a lam of 0; no belief has any mass below it.
    some, rule = (
        (prune.lam >= 0, "in [0, 1)")
        if method_spec(config.method).defaults.get("lam") == 0
        else (prune.lam > 0, "between 0 and 1")
    )
    rows: list[tuple[str, Any, bool, str]] = [
        ("size", images.size, 4 <= images.size <= 4096, "in 4..4096"),
        ("crop", images.crop, 4 <= images.crop <= images.size, f"in 4..size ({images.size})"),
        ("meta_average", belief.meta_average, 0 <= belief.meta_average < 1, "in [0, 1)"),
        ("meta_momentum", belief.meta_momentum, 0 <= belief.meta_momentum < 1, "in [0, 1)"),
        ("meta_every", belief.meta_every, 1 <= belief.meta_every <= 2**20, f"in 1..{2**20}"),
        ("warmup", belief.warmup, 0 <= belief.warmup <= 32767, "in 0..32767"),
        ("prior_strength", belief.prior_strength, 0.1 <= belief.prior_strength <= 100, "in 0.1..100"),
        ("lam", prune.lam, some and prune.lam < 1, rule),
        ("rho", prune.rho, 0 < prune.rho < 1, "between 0 and 1"),
        ("seed", config.seed, 0 <= config.seed < 2**63, "in 0..2^63-1"),
    ]
    rows.append(("checkpoint_every", config.machine.checkpoint_every, _is_interval(config), intervals.EXPECTED))
    # Visits are counted in 16 bits.
    for name, low, high in (("epochs", 1, 32767), ("batch", 2, 2**20)):
        rows.append((name, getattr(train, name), low <= getattr(train, name) <= high, f"in {low}..{high}"))
    for name, fewest in (("ways", 2), ("shots", 1), ("queries", 1), ("target_batch", 2)):
        rows.append((name, getattr(meta, name), fewest <= getattr(meta, name) <= 2**20, f"in {fewest}..{2**20}"))
    for name in ("width", "hidden", "latent", "projection"):
        count = getattr(config.network, name)
        rows.append((name, count, count is None or 1 <= count <= 2**16, f"in 1..{2**16}"))
    heat = config.network.temperature
    rows.append(("temperature", heat, heat is None or 0.01 <= heat <= 100, "in 0.01..100"))
    rows.append(("stem_stride", config.network.stem_stride, 1 <= config.network.stem_stride <= 4, "in 1..4"))
    for name, value, low, high in (
        ("shard_size", config.output.shard_size, 1, 2**60),
        ("workers", config.machine.workers, 0, 1024),
        ("threads", config.machine.threads, 1, 1024),
        ("devices", config.machine.devices, 1, 4096),
        ("cache_bytes", config.machine.cache_bytes, 0, 2**60),
    ):
        rows.append((name, value, value is None or low <= value <= high, f"in {low}..{high}"))
    keep, nets = config.selection.keep, config.selection.nets
    whole = 1 <= keep <= 2**53 and keep == int(keep)
    rows.append(("keep", keep, 0 <= keep < 1 or whole, "a share below 1 or a whole number"))
    rows.append(("nets", nets, 1 <= nets <= 3, "1, 2 or 3"))
    for name, rate in (("lr", train.lr), ("eta", belief.eta), ("nn_beta", config.neighbours.nn_beta)):
        # Beyond float32 a rate is infinity, and 0 times it no number.
        rows.append((name, rate, rate is None or 0 < rate <= 1e30, "positive, at most 1e30"))
    drops = train.lr_drops
    last, unit = (32767, "epochs") if train.schedule == "epoch" else (2**60, "steps")
    rows.append(("lr_drops", drops, all(1 <= drop <= last for drop in drops), f"{unit} from 1 on"))
    for name in ("momentum", "weight_decay"):
        rows.append((name, getattr(train, name), 0 <= getattr(train, name) < 1, "in [0, 1)"))
    for name in ("mean", "deviation"):
        value = getattr(images, name)
        # The deviation is divided by.
        least, interval = (0.0, "[0, 1]") if name == "mean" else (1e-6, "[1e-6, 1]")
        fits = value is None or (len(value) == images.channels and all(least <= x <= 1 for x in value))
        rows.append((name, value, fits, f"{images.channels} numbers in {interval}, comma separated"))
    return rows


def _is_interval(config: RunConfig) -> bool:
    try:
        intervals.Interval.parse(config.machine.checkpoint_every)
    except Misuse:
        return False
    return True


def _fill(config: RunConfig, defaults: dict[str, Any]) -> RunConfig:
    """``config`` with these values in the options that are None."""
    for group, kind in GROUPS.items():
        now, names = getattr(config, group), {item.name for item in fields(kind)}
        missing = {k: v for k, v in defaults.items() if k in names and getattr(now, k) is None}
        if missing:
            config = replace(config, **{group: replace(now, **missing)})
    return config


def _default_drops(train: TrainConfig) -> tuple[int, ...]:
    """In what the schedule counts; a cosine has none."""
    if train.schedule == "cosine":
        return ()
    return paper_drops((train.epochs if train.schedule == "epoch" else train.steps) or 0)


def paper_drops(epochs: int) -> tuple[int, ...]:
    """The paper drops the rate after 15 and 25 of 35 epochs; other lengths keep these shares."""
    # Rounded in whole numbers: any count of epochs, for its range to be checked.
    return tuple(sorted({(epochs * share * 2 + 35) // 70 for share in (15, 25)} - {0, epochs}))
