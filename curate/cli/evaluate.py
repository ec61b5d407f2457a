"""curate evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from curate.cli.options import COUNT, EPOCHS, PROCESSES, SEED, OutPath, given, json_option, print_result, talk
from curate.errors import Misuse

if TYPE_CHECKING:
    from curate.evaluation.evaluate import Protocol
    from curate.evaluation.readings import Reading

#: Options that only fine-tuning knows.
_FINETUNE = {"grid": "--grid", "epochs": "--epochs", "halving": "--halving", "out": "--out", "seed": "--seed"}
#: Options of logistic regression, idle where fine-tuning is told its --epoch.
_LOGISTIC = {"tap": "--tap", "patience": "--patience", "standardise": "--standardise", "solver": "--solver"}
#: Options that read one network in several ways.
_READ = {"labels_per_class": "--labels-per-class", "draws": "--draws"}
TAP_HELP = (
    "Stages whose outputs are the features, comma separated: layer2, pool, layer2:4x4 (averaged to 4x4), pixels "
    "(the image itself) [default: pool]."
)
LABELS_HELP = (
    "Train on so many labels of each class, comma separated; all: every label, by val. Few labels show differences."
)
#: Options that only --against knows; it takes --epochs and --out, too.
_AGAINST = {"seeds": "--seeds", "domain": "--domain", "processes": "--processes", "allow_pipe": "--allow-pipe"}


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--target", required=True, metavar="FOLDER", help="A labelled target with train/, val/ and test/.")
@click.option(
    "--protocol",
    type=click.Choice(["logistic", "finetune"]),
    default="logistic",
    show_default=True,
    help="Logistic regression on frozen features, or training the whole network on.",
)
@click.option("--tap", metavar="TAPS", help=TAP_HELP)
@click.option("--labels-per-class", metavar="COUNTS", help=LABELS_HELP)
@click.option("--draws", type=PROCESSES, help="Draws of few labels, averaged [default: 5].")
@click.option(
    "--epoch",
    type=click.IntRange(0, 2**15 - 1),
    help="Only this epoch; 0: untrained [default: the best by val; with few labels the last].",
)
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
@click.option(
    "--out", type=OutPath(path_type=Path), help="Fine-tuning, against: its folder [default: in RUN/evaluations]."
)
@click.option("--against", metavar="A,B", help="As `curate compare-baselines`: raw,random,nn,oracle.")
@click.option("--seeds", type=PROCESSES, help="Against: trainings of each [default: 3].")
@click.option("--domain", help="Against oracle: the target's own domain in the store [default: as RUN was told].")
@click.option("--processes", type=PROCESSES, help="Against: trainings at a time [default: 1].")
@click.option("--allow-pipe", is_flag=True, default=None, help="Against: let RUN's store be what pipe:COMMAND makes.")
@click.option("--seed", type=SEED, help="Fine-tuning: seed [default: 0].")
@click.option("--device", default="auto", show_default=True, help="Device.")
@json_option
def evaluate(run: Path, target: str, protocol: str, as_json: bool, **options: Any) -> None:
    """Score the features of a run or a pre-training on a labelled target.

    \b
    Example:
      curate evaluate net --target target
      curate evaluate net --target target --tap layer2 --json
      curate evaluate net --target target --tap pool,layer2:4x4,pixels:9x9 --labels-per-class 1,5,10,all
      curate evaluate net --target target --protocol finetune --grid small
    """
    from curate.evaluation.evaluate import Protocol

    tuning = {name: options.pop(name) for name in _FINETUNE}
    comparing = {name: options.pop(name) for name in ("against", *_AGAINST)}
    reading = {name: options.pop(name) for name in _READ}
    taps = words_of(options["tap"])
    _refuse_idle(protocol, options | reading, tuning, comparing)
    several = reading["labels_per_class"] is not None or len(taps) > 1
    if several and (protocol == "finetune" or comparing["against"] is not None):
        raise Misuse("--tap, --labels-per-class: several are for logistic regression alone; see compare-baselines")
    how = Protocol(**given(options | {"tap": taps[0] if taps else None}))
    if comparing["against"] is not None:
        _against(run, target, how, tuning | comparing, as_json)
    elif protocol == "finetune":
        _finetune(run, target, how, tuning, as_json)
    elif several:
        _read(run, target, how, readings(taps, reading["labels_per_class"]), reading["draws"], as_json)
    else:
        _logistic(run, target, how, as_json)


def words_of(text: str | None) -> list[str]:
    """'pool, layer2' -> ['pool', 'layer2']."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def readings(taps: list[str], labels: str | None) -> list[Reading]:
    """Each tap with each count of labels, "all" for all of them.

    Raises:
        Misuse: a count is no whole number from 1 on.
    """
    from curate.evaluation.readings import Reading

    counts: list[int | None] = []
    for word in words_of(labels or "all"):
        if word != "all" and not (word.isascii() and word.isdigit() and 0 < int(word) < 10**9):
            raise Misuse(f"--labels-per-class {word}: expected whole numbers from 1 on, or all, comma separated")
        counts.append(None if word == "all" else int(word))
    return [Reading(tap, count) for tap in taps or ["pool"] for count in counts]


def _refuse_idle(protocol: str, options: dict[str, Any], tuning: dict[str, Any], comparing: dict[str, Any]) -> None:
    """Refuse options that would change nothing."""
    against, finetune, one_epoch = (
        comparing["against"] is not None,
        protocol == "finetune",
        options["epoch"] is not None,
    )
    if against and finetune:
        raise Misuse("--protocol finetune: not with --against, which scores by logistic regression; leave it out")
    if against:
        _refuse(tuning | {"epochs": None, "out": None}, _FINETUNE, "not with --against; leave them out")
    else:
        _refuse(comparing, _AGAINST, "only with --against; add it, or leave them out")
        if not finetune:
            _refuse(tuning, _FINETUNE, "only for --protocol finetune; add it, or leave them out")
    if options["labels_per_class"] is None:
        _refuse(options, {"draws": "--draws"}, "only with --labels-per-class; add it, or leave it out")
    elif not words_of(options["labels_per_class"]):
        raise Misuse("--labels-per-class: expected whole numbers from 1 on, or all, comma separated")
    if one_epoch and finetune:
        _refuse(options, _LOGISTIC, "idle where --epoch says which network is fine-tuned; leave them out")
    if one_epoch:
        _refuse(options, {"patience": "--patience"}, "not with --epoch, which leaves one to look at; give one of them")


def _refuse(options: dict[str, Any], flags: dict[str, str], why: str) -> None:
    named = [flag for name, flag in flags.items() if options.get(name) is not None]
    if named:
        raise Misuse(f"{', '.join(named)}: {why}")


def _logistic(run: Path, target: str, how: Protocol, as_json: bool) -> None:
    from curate.evaluation.evaluate import evaluate as score
    from curate.progress import epoch_bar

    with epoch_bar("logistic") as tell:
        found = score(run, target, how, tell)
    for split, reasons in found.left_out.items():
        talk(f"target {split}: left out {', '.join(f'{n} {reason}' for reason, n in reasons.items())}")
    text = f"test {found.test_accuracy:.2%}, val {found.val_accuracy:.2%} at epoch {found.epoch}"
    print_result(found, as_json, f"{text} ({found.features} features at {found.tap}, {found.classes} classes)")


def _read(run: Path, target: str, how: Protocol, asked: list[Reading], draws: int | None, as_json: bool) -> None:
    from curate.data.target import open_target
    from curate.evaluation.few_labels import DRAWS
    from curate.evaluation.readings import read
    from curate.evaluation.trained import open_trained

    found = read(open_trained(run, target, open_target(target), how.device), asked, how, draws or DRAWS)
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


def _finetune(run: Path, target: str, how: Protocol, tuning: dict[str, Any], as_json: bool) -> None:
    from curate.evaluation.evaluate import finetune
    from curate.evaluation.grid import GRIDS, shortened
    from curate.progress import epoch_bar

    grid = shortened(GRIDS[tuning["grid"] or "small"], tuning["epochs"], bool(tuning["halving"]))
    epoch = how if how.epoch is None else how.epoch
    with epoch_bar("fine-tuning") as tell:
        found = finetune(run, target, grid, tuning["out"], tuning["seed"] or 0, how.device, epoch, tell)
    text = f"test {found.test_accuracy:.2%}, val {found.val_accuracy:.2%}: {found.cell.name}, {found.epochs} epochs"
    print_result(found, as_json, f"{text}, from epoch {found.epoch}, {found.seconds:.0f} s\nsearch {found.folder}")


def _against(run: Path, target: str, how: Protocol, options: dict[str, Any], as_json: bool) -> None:
    from curate.experiments.baselines.against import Asked, against
    from curate.experiments.baselines.report import page

    talk("note: `curate compare-baselines` does this now, at several taps and with few labels")
    asked = Asked(
        tuple(words_of(options["against"])),
        seeds=options["seeds"] or 3,
        epochs=options["epochs"],
        domain=options["domain"],
        protocol=how,
        processes=options["processes"] or 1,
        allow_pipe=bool(options["allow_pipe"]),
    )
    found = against(run, target, asked, options["out"])
    print_result(found, as_json, page(found).rstrip())
