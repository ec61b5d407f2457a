"""The site: it builds strictly, needs no other host, and its references leave out nothing that is public."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import curate
import shards
from curate.cli import VERBS

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def ids(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))


def test_pages_load_nothing_from_other_hosts(site):
    """Scripts, styles, fonts and pictures are the site's own; links that a person follows are no matter."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)", text)
        assert loaded
        assert not [place for place in loaded if re.match(r"(?:https?:)?//", place)], page


def test_every_public_name_has_its_entry(site):
    """A name of both packages is described once, as that of `shards`."""
    known = ids(site / "reference" / "python.html")
    shared = {name for name in curate.__all__ if getattr(shards, name, None) is getattr(curate, name)}
    wanted = {f"curate.{name}" for name in set(curate.__all__) - shared} | {f"shards.{name}" for name in shards.__all__}
    assert wanted <= known, wanted - known


def test_every_verb_has_its_help(site):
    """The command line's page is made of the help itself."""
    page = site / "reference" / "cli.html"
    assert {f"curate-{verb}" for verb in VERBS} <= ids(page)
    assert "--meta-momentum" in page.read_text(encoding="utf-8")


def test_examples_and_results_are_in_it(site):
    """What pages lead to is there to be opened."""
    for name in ("examples/curate.ipynb", "examples/method.py", "scripts/results/table1/table1.html"):
        assert (site / name).is_file()
