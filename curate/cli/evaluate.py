"""curate evaluate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from curate.cli.options import (
    COUNT,
    EPOCHS,
    PROCESSES,
    SEED,
    OutPath,
    Whole,
    given,
    json_option,
    print_result,
    remark,
    run_argument,
    talk,
)
from curate.errors import Misuse

TAP_HELP = (
    "Where the features are read, comma separated: pool, layer2, layer2:4x4 (averaged to 4x4), pixels [default: pool]."
)
LABELS_HELP = "Labels of each class to train on, such as 5,all; few show differences."
#: Options that only --against knows; it takes --epochs and --out, too.
_AGAINST = ("against", "seeds", "domain", "processes", "allow_pipe")


@click.command()
@run_argument
@click.option("--target", required=True, metavar="FOLDER|URL", help="A labelled target with train/, val/ and test/.")
@click.option(
    "--protocol",
    type=click.Choice(["logistic", "finetune"]),
    default="logistic",
    show_default=True,
    metavar="PROTOCOL",
    help="logistic (regression on frozen features), or finetune (the whole network).",
)
@click.option("--tap", metavar="TAPS", help=TAP_HELP)
@click.option("--labels-per-class", metavar="COUNTS", help=LABELS_HELP)
@click.option(
    "--epoch",
    type=Whole(0, 2**15 - 1),
    help="Score this one alone; 0: untrained [default: the best by val].",
)
@click.option("--draws", type=PROCESSES, help="Draws of few labels, averaged [default: 5].")
@click.option("--patience", type=COUNT, help="Stop looking after so many epochs without a better one.")
@click.option(
    "--standardise", is_flag=True, default=None, help="Scale each feature to mean 0 and deviation 1 over train."
)
@click.option(
    "--solver",
    type=click.Choice(["auto", "sklearn", "torch"]),
    help="Solver of the logistic regression; auto: torch, on the device, where it is large [default: auto].",
)
@click.option("--grid", type=click.Choice(["paper", "small"]), help="Fine-tuning: settings tried [default: small].")
@click.option("--epochs", type=EPOCHS, help="Epochs of a fine-tuning setting, or against others.")
@click.option("--halving", is_flag=True, default=None, help="Fine-tuning: drop half the settings, and half again.")
@click.option("--out", type=OutPath(), help="Fine-tuning, against: its folder [default: in RUN/evaluations].")
@click.option("--against", metavar="A,B", help="As `curate compare-baselines`: raw,random,nn,oracle.")
@click.option("--seeds", type=PROCESSES, help="Against: trainings of each [default: 3].")
@click.option("--domain", help="Against oracle: the target's own domain in the store [default: as RUN was told].")
@click.option("--processes", type=PROCESSES, help="Against: trainings at a time [default: 1].")
@click.option("--allow-pipe", is_flag=True, default=None, help="Against: let RUN's store be what pipe:COMMAND makes.")
@click.option("--seed", type=SEED, help="Fine-tuning: seed [default: 0].")
@click.option("--device", default="auto", show_default=True, help="Device.")
@json_option
def evaluate(run: Path | str, target: str, protocol: str, as_json: bool, **options: Any) -> None:
    """Score the features of a run or a pre-training on a labelled target.

    The network of every epoch is scored by val, and the best of them by test; with few labels the last one.

    \b
    Example:
      curate evaluate net --target target
      curate evaluate net --target target --labels-per-class 1,5,10,all
      curate evaluate net --target target --protocol finetune --grid small
    """
    comparing = {name: options.pop(name) for name in _AGAINST}
    asked = given(options)
    if "tap" in asked:
        asked["tap"] = words_of(asked["tap"]) or None
    if "labels_per_class" in asked:
        asked["labels_per_class"] = counts_of(asked["labels_per_class"])
    if comparing["against"] is not None:
        _against(run, target, protocol, asked, comparing, as_json)
        return
    refuse({name: value for name, value in comparing.items() if value is not None}, "only with --against")
    from curate import api
    from curate.progress import epoch_bar

    with epoch_bar("fine-tuning" if protocol == "finetune" else "logistic") as tell:
        found = api.evaluate(
            run,
            target,
            protocol="finetune" if protocol == "finetune" else "logistic",
            progress=tell if protocol == "finetune" else saying_why(tell),
            warn=lambda text: talk(f"warning: {text}"),
            **given(asked),
        )
    print_score(found, as_json)


def saying_why(tell: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    """As ``tell``, which shows the epochs that are scored; where there are several it is said once why, and what else
    could be."""

    def told(what: str, done: int, total: int) -> None:
        if done == 1 and total > 1:
            remark(f"each of {total} epochs is scored by val, for the best; --epoch N scores one alone")
        tell(what, done, total)

    return told


def words_of(text: str | None) -> list[str]:
    """'pool, layer2' -> ['pool', 'layer2']."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def counts_of(text: str) -> list[int | None]:
    """'1,5,all' -> [1, 5, None].

    Raises:
        Misuse: a count is no whole number from 1 on.
    """
    counts: list[int | None] = []
    for word in words_of(text) or [""]:
        if word != "all" and not (word.isascii() and word.isdigit() and 0 < int(word) < 10**9):
            raise Misuse(f"--labels-per-class {word}: expected whole numbers from 1 on, or all, comma separated")
        counts.append(None if word == "all" else int(word))
    return counts


def refuse(options: dict[str, Any], why: str) -> None:
    """Refuse these options, if there are any.

    Raises:
        Misuse: they are named, with the reason.
    """
    if options:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise Misuse(f"{named}: {why}; add it, or leave them out")


def print_score(found: Any, as_json: bool) -> None:
    """Whatever an evaluation returns, for people or as JSON."""
    if isinstance(found, list):
        record = [
            {
                **{"tap": one.reading.tap, "labels_per_class": one.reading.labels, "epoch": one.epoch},
                **{"test_accuracy": one.accuracy, "deviation_over_draws": one.deviation},
            }
            for one in found
        ]
        lines = [
            f"{one.accuracy:7.2%}{'' if one.deviation is None else f' +- {one.deviation:.2%}':<11}"
            f" {one.reading.name}, epoch {one.epoch}"
            for one in found
        ]
        print_result({"readings": record}, as_json, "\n".join(lines))
        return
    text = f"test {found.test_accuracy:.2%}, val {found.val_accuracy:.2%}"
    if hasattr(found, "cell"):
        text += f": {found.cell.name}, {found.epochs} epochs, from epoch {found.epoch}, {found.seconds:.0f} s"
        print_result(found, as_json, f"{text}\nsearch {found.folder}")
        return
    for split, reasons in found.left_out.items():
        talk(f"target {split}: left out {', '.join(f'{n} {reason}' for reason, n in reasons.items())}")
    among = f", the best of {len(found.val_by_epoch)} by val" if len(found.val_by_epoch) > 1 else ""
    text += f" at epoch {found.epoch}{among} ({found.features} features at {found.tap}, {found.classes} classes)"
    print_result(found, as_json, text)


def _against(
    run: Path | str, target: str, protocol: str, asked: dict[str, Any], comparing: dict[str, Any], as_json: bool
) -> None:
    """As compare-baselines, at one tap and with all labels."""
    if protocol == "finetune":
        raise Misuse("--protocol finetune: not with --against, which scores by logistic regression; leave it out")
    idle = [name for name in ("grid", "halving", "seed", "labels_per_class", "draws") if asked.get(name) is not None]
    if idle:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
        raise Misuse(f"{named}: not with --against; leave them out")
    if len(asked.get("tap") or []) > 1:
        raise Misuse("--tap, --labels-per-class: several are for logistic regression alone; see compare-baselines")
    from curate import api
    from curate.experiments.baselines.report import page

    talk("note: `curate compare-baselines` does this now, at several taps and with few labels")
    shared = ("epoch", "epochs", "patience", "solver", "device", "out")
    found = api.compare_baselines(
        run,
        target,
        sets=words_of(comparing.pop("against")),
        labels_per_class=[None],
        tap=(asked.get("tap") or ["pool"])[0],
        standardise="standardise" in asked,
        **{name: asked[name] for name in shared if name in asked},
        **given(comparing),
    )
    print_result(found, as_json, page(found).rstrip())
