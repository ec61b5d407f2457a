"""curate clean."""

from __future__ import annotations

import click

from curate.cli.options import counted, json_option, print_result


@click.command()
@click.argument("url", metavar="URL")
@click.option("--dry-run", is_flag=True, help="List what would go, and remove nothing.")
@json_option
def clean(url: str, dry_run: bool, as_json: bool) -> None:
    """Remove what a kill has left in an object store: uploads without an end, rewrites without a marker.

    Do not run it while something writes there: what is not finished yet would go, too.

    \b
    Example:
      curate clean s3://bucket/curated --dry-run
    """
    from shards import api

    left = api.leftovers(url) if dry_run else api.clean(url)
    lines = [f"upload {one.url}" for one in left.uploads] + [f"object {one}" for one in left.objects]
    done = "would be removed" if dry_run else "removed"
    said = f"{counted(len(left.uploads), 'upload')} and {counted(len(left.objects), 'object')} {done}"
    print_result(left, as_json, "\n".join([*lines, said]))
