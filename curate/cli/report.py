"""curate report."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.options import OutPath, json_option, print_result, run_argument


@click.command()
@run_argument
@click.option("--out", type=OutPath(), help="The page, an HTML file [default: report.html in RUN].")
@click.option("--target", metavar="TARGET", help="Look for copies of its images among the kept [default: the run's].")
@json_option
def report(run: Path | str, out: Path | str | None, target: str | None, as_json: bool) -> None:
    """Show a run on one page: what was kept and why, pictures, costs, verdicts, and what to do next.

    The page is one file that needs nothing else: it can be mailed, and opens in any browser, a phone's too. A run
    that is not finished is shown as far as it has come.

    \b
    Example:
      curate report run
      curate report run --target target --out run.html
    """
    from curate import api

    made = api.report(run, out=out, target=target)
    print_result({"path": str(made.path), **made.numbers}, as_json, str(made.path))
