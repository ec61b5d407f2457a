"""From what is known of a run to the text of its page: names and numbers go through a template that escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata, resources
from typing import Any

from curate.errors import CurateError
from curate.ledger import facts
from curate.reporting import charts, words
from curate.reporting.commands import commands
from curate.reporting.content import Content
from curate.reporting.reading import Judged, Reading
from shards.errors import without_secrets

#: By which a report is known, so that no other file is written over.
MARK = '<meta name="generator" content="curate report'
TEMPLATE = "page.html.j2"
#: Epochs in the table; of more, the first and the last.
MOST_EPOCHS = 100


def render(content: Content, numbers: dict[str, Any]) -> str:
    """The page, whole.

    Args:
        numbers: as `curate.reporting.report.Report` has them.

    Raises:
        CurateError: Jinja2 is missing.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as cause:
        raise CurateError("reports need Jinja2; pip install 'curate-bdw[report]'") from cause
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"plain": plain, "count": "{:,}".format, "share": share}
    reading, judged = content.reading, content.reading.judged
    drawings = {} if judged is None else _drawings(reading, judged)
    text = resources.files(__package__).joinpath(TEMPLATE).read_text("utf-8")
    return environment.from_string(text).render(
        content=content,
        numbers=numbers,
        reading=reading,
        judged=judged,
        version=metadata.version("curate-bdw"),
        name=reading.path.resolve().name,
        title=words.title(reading.method),
        measure=words.measure(reading),
        rule=None if judged is None else words.rule(reading, judged),
        facts=[] if judged is None else facts.explained(judged.facts),
        drawings={name: Markup(drawing) for name, drawing in drawings.items()},
        epochs=_epochs(reading),
        stages=_stages(reading.seconds),
        commands=commands(reading, content.target),
        options=sorted(reading.options.items()),
    )


def plain(text: object) -> str:
    """A name with what no eye can see, or what turns letters round, written out; and without a URL's user and query, as
    a report is made to be passed on.

    >>> plain("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in without_secrets(str(text)))


def share(value: float | None) -> str:
    """A share in per cent; the smallest do not become none, nor the largest all.

    >>> share(0.25), share(0.00001), share(0.99999), share(0.0), share(None)
    ('25.0%', '<0.1%', '>99.9%', '0%', '-')
    """
    if value is None:
        return "-"
    if value in (0.0, 1.0):
        return f"{value:.0%}"
    return "<0.1%" if value < 0.0005 else ">99.9%" if value >= 0.9995 else f"{value:.1%}"


def _drawings(reading: Reading, judged: Judged) -> dict[str, str]:
    """Inline SVG by name."""
    mean, beliefs = judged.beliefs.mean, judged.beliefs
    parts = [mean[mask & judged.decodes] for mask in (judged.kept, ~judged.kept)]
    cut = judged.stamp.lam if judged.cut else None
    found = {"weights": charts.histogram(parts[0], parts[1], cut, words.measure(reading))}
    decodes = judged.decodes
    if beliefs.a is not None and beliefs.b is not None and decodes.any():
        found["beliefs"] = charts.density(beliefs.a[decodes], beliefs.b[decodes], cut, judged.stamp.rho)
    if len(reading.epochs) > 1:
        judged_first = max(1, reading.epochs[0].live)
        found["epochs"] = charts.over_epochs(
            [epoch.number for epoch in reading.epochs], [epoch.kept / judged_first for epoch in reading.epochs]
        )
    return found


def _epochs(reading: Reading) -> list[dict[str, Any]]:
    """A row an epoch: what the ledger says, and the metrics beside it; of many, the first and the last."""
    lines = {line["epoch"]: line for line in reading.metrics}
    seen = {epoch.number: epoch for epoch in reading.epochs}
    numbers: Sequence[int] = sorted(lines.keys() | seen.keys())
    if len(numbers) > MOST_EPOCHS:
        numbers = [*numbers[: MOST_EPOCHS // 2], *numbers[-MOST_EPOCHS // 2 :]]
    return [
        {
            "number": number,
            "ledger": seen.get(number),
            "loss": lines.get(number, {}).get("pretext_loss"),
            "meta_loss": lines.get(number, {}).get("meta_loss"),
            "seconds": sum(lines.get(number, {}).get("seconds", {}).values()),
        }
        for number in numbers
    ]


def _stages(seconds: dict[str, float]) -> list[tuple[str, float, float]]:
    """Name for people, seconds, and the length of a bar in per cent, the longest first."""
    longest = max(seconds.values(), default=0.0) or 1.0
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return [(words.STAGES.get(stage, stage), value, round(100 * value / longest, 2)) for stage, value in ordered]
