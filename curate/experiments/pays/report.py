"""pays.json for people: tables, the map of gains, and accuracy over seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.experiments.pays import presets
from curate.experiments.text_tables import Sheet, grid, markdown, number
from curate.stats.gains import Curve, Gain, accuracy_over_seconds, gain_map
from shards.io.atomic import write_bytes

Record = Mapping[str, Any]
Line = Mapping[str, Any]


def write(out: Path, record: Record) -> None:
    """Write ``pays.md``, ``map.png`` and ``curves.png`` beside pays.json."""
    write_bytes(out / "pays.md", page(record).encode())
    gains = dict(_gains(record))
    if gains:
        gain_map(out / "map.png", gains, f"Points more than the raw store, {record['steps']} steps of each")
    panels = curves(record)
    if panels:
        accuracy_over_seconds(out / "curves.png", panels, "test accuracy [%]")


def page(record: Record) -> str:
    """All tables."""
    counts = "; ".join(
        f"share {share} %: {sum(store.values()):,} images ({', '.join(f'{n} {c:,}' for n, c in store.items())})"
        for share, store in record["stores"].items()
    )
    opening = (
        f"Stores: {counts}. Plain training for {record['steps']} steps on what each selector keeps, scored by logistic "
        "regression on a target whose images share no group (track, writer) with those in the store. Accuracy in per "
        "cent: mean ± standard error over the seeds; differences are taken image by image and seed by seed, ± half "
        "their 95 % interval, bold where it leaves 0 out. Seconds are those of one core: features of the store, the "
        "choice, one training."
    )
    sheets = [sheet for share in record["stores"] for sheet in _of_share(record, float(share))]
    return markdown("When does curation pay?", [opening], sheets)


def overview(record: Record, labels: str = "5") -> str:
    """The study in one table, for docs/when-it-pays.md: a line a store, target and pretext, with what the choice of the
    classifier on three untrained networks' features gave among what it is held against."""
    several = len(record["stores"]) > 1
    shown = ("pixels", "untrained", "raw", "random", "classifier-3", "in-domain")
    header = (
        "share, target, pretext, tap" if several else "target, pretext, tap",
        *shown,
        "classifier-3 less raw",
        "kept, purity",
    )
    rows = []
    for line in record["verdicts"]:
        own = line["tap"] == presets.TAPS[line["pretext"]][0]
        if line["selector"] != "classifier-3" or not own or line["labels"] != labels:
            continue
        same = {
            cell["selector"]: cell
            for cell in record["cells"]
            if all(cell[name] == line[name] for name in ("share", "target", "pretext", "labels"))
            and cell["budget"] == "equal-steps"
            and cell["steps"] in (0, record["steps"])
            and cell["tap"] in (line["tap"], "pixels:9x9")
        }
        means = (_shown(same.get(name), None) for name in shown)
        chosen, less = same["classifier-3"], line["less raw"]
        gain = f"{less['mean']:+.1f} ± {less['half_width']:.1f}"
        gain = gain if less["verdict"] == "not told apart" else f"**{gain}**"
        kept = f"{chosen['kept']:,.0f}, {chosen['purity']:.2f}"
        share = f"{line['share']:g} %, " if several else ""
        rows.append((f"{share}{line['target']}, {line['pretext']}, {line['tap']}", *means, gain, kept))
    return grid(header, rows) + "\n"


def advice_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What `scripts/pays_advice` recorded, a line a target: the advice, and the study's own gains of the choice."""
    header = (
        "target",
        "advice",
        "expected gain",
        "kept, estimated purity",
        "the study: less raw, less random",
        "judged",
    )
    rows = []
    for name, one in found.items():
        ends = "-" if one["interval"] is None else f"{one['interval'][0]:+.1f} to {one['interval'][1]:+.1f}"
        gain = "-" if one["expected_gain"] is None else f"{one['expected_gain']:+.1f} ({ends})"
        gains = "; ".join(
            f"{pretext} {pair['raw']['mean']:+.1f} ± {pair['raw']['half_width']:.1f}, "
            f"{pair['random']['mean']:+.1f} ± {pair['random']['half_width']:.1f}"
            for pretext, pair in one.get("study", {}).items()
        )
        kept = f"{one['kept']:,}, {number(one['purity'])}"
        rows.append((name, one["verdict"], gain, kept, gains or "-", one["judged"]))
    return grid(header, rows) + "\n"


def _of_share(record: Record, share: float) -> Iterator[Sheet]:
    cells = [cell for cell in record["cells"] if cell["share"] == share]
    for pretext in dict.fromkeys(cell["pretext"] for cell in cells):
        for labels in dict.fromkeys(cell["labels"] for cell in cells):
            yield _accuracies(record, share, pretext, labels)
    yield _choices(record, share)
    yield _costs(cells, share)


def _accuracies(record: Record, share: float, pretext: str, labels: str) -> Sheet:
    """A row a selector, a column a target, at equal steps and the pretext's own tap."""
    tap = presets.TAPS[pretext][0]
    cells = [
        cell
        for cell in record["cells"]
        if cell["budget"] == "equal-steps"
        and cell["steps"] in (0, record["steps"])
        and (cell["share"], cell["pretext"], cell["labels"]) == (share, pretext, labels)
        and cell["tap"] in (tap, "pixels:9x9")
    ]
    less = {
        (line["selector"], line["target"]): line.get("less raw")
        for line in record["verdicts"]
        if (line["share"], line["pretext"], line["tap"], line["labels"]) == (share, pretext, tap, labels)
    }
    by_place = {(cell["selector"], cell["target"]): cell for cell in cells}
    selectors, targets = (list(dict.fromkeys(key[side] for key in by_place)) for side in (0, 1))
    rows = [
        (name, *(_shown(by_place.get((name, target)), less.get((name, target))) for target in targets))
        for name in _ordered(selectors)
    ]
    counted = "all labels" if labels == "all" else f"{labels} labels a class"
    title = f"{pretext}, {tap}, {counted}, share {share:g} %"
    return Sheet(title, ("selector", *targets), tuple(rows), ("In brackets: less raw.",))


def _shown(cell: Line | None, less: Line | None) -> str:
    if cell is None:
        return "-"
    text = number(cell["mean"], 1) + ("" if cell["se"] is None else f" ± {cell['se']:.1f}")
    if less is None:
        return text
    half = "" if less["half_width"] is None else f" ± {less['half_width']:.1f}"
    gain = f"{less['mean']:+.1f}{half}"
    return f"{text} ({f'**{gain}**' if less['verdict'] != 'not told apart' else gain})"


def _choices(record: Record, share: float) -> Sheet:
    """Who is kept by whom."""
    rows = []
    for one in (one for one in record["selected"] if float(one["share"]) == share):
        facts = one["facts"]
        rows.append(
            (
                one["choice"],
                number(one["auroc"], 3),
                number(one["precision"], 2),
                number(one["kept"], 0),
                number(one["purity"], 2),
                number(facts.get("pi"), 0),
                number(facts.get("purity"), 2),
                number(one["seconds"], 1),
            )
        )
    header = ("choice", "AUROC", "precision", "kept", "purity", "estimated pi", "estimated purity", "seconds")
    note = "Precision: of as many as are inside, at the top. Seconds: without the features."
    return Sheet(f"Who is kept, share {share:g} %", header, tuple(rows), (note,))


def _costs(cells: Sequence[Line], share: float) -> Sheet:
    """What the raw store's seconds buy."""
    rows = []
    for cell in cells:
        if cell["budget"] == "equal-seconds" and cell["tap"] == presets.TAPS[cell["pretext"]][0]:
            name = f"{cell['target']}, {cell['pretext']}, {cell['labels']} labels"
            steps, seconds = number(cell["steps"], 0), number(cell["seconds"], 1)
            rows.append((name, number(cell["limit"], 1), cell["selector"], steps, seconds, number(cell["mean"], 1)))
    header = ("target", "at most s", "selector", "steps", "seconds", "accuracy")
    return Sheet(f"At equal seconds, share {share:g} %", header, tuple(rows))


def _gains(record: Record) -> Iterator[tuple[tuple[str, str], Gain]]:
    """Selector by target and pretext: gains over raw, all labels, the pretext's own tap."""
    lines = record["verdicts"]
    for selector in _ordered(list(dict.fromkeys(line["selector"] for line in lines))):
        for line in lines:
            own = line["tap"] == presets.TAPS[line["pretext"]][0] and line["labels"] == "all"
            if own and line["selector"] == selector and "less raw" in line:
                share = "" if len(record["stores"]) == 1 else f" {line['share']:g} %"
                gain = Gain(line["less raw"]["mean"], line["less raw"]["verdict"] != "not told apart")
                yield (f"{line['target']}, {line['pretext']}{share}", selector), gain


def curves(record: Record) -> dict[str, list[Curve]]:
    """By target: selectors with trainings of several lengths."""
    panels: dict[str, list[Curve]] = {}
    points: dict[tuple[str, str, str], list[Line]] = {}
    for cell in record["cells"]:
        own = cell["tap"] == presets.TAPS[cell["pretext"]][0] and cell["labels"] == "all" and cell["steps"]
        if own and cell["budget"] == "equal-steps":
            share = "" if len(record["stores"]) == 1 else f", {cell['share']:g} %"
            points.setdefault((f"{cell['target']}{share}", cell["pretext"], cell["selector"]), []).append(cell)
    for (target, pretext, selector), held in points.items():
        if len(held) > 1:
            held.sort(key=lambda cell: cell["seconds"])
            means, errors = [cell["mean"] for cell in held], [cell["se"] or 0.0 for cell in held]
            curve = Curve(selector, [cell["seconds"] for cell in held], means, errors)
            panels.setdefault(f"{target}, {pretext}", []).append(curve)
    return panels


def _ordered(selectors: Sequence[str]) -> list[str]:
    """What is not trained first, then the scale's order."""
    known = ("pixels", "untrained", *presets.SELECTORS)
    return sorted(selectors, key=lambda name: known.index(name) if name in known else len(known))
