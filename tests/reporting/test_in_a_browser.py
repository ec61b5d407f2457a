"""The page as Chromium shows it, on a phone and on a desk, light and dark: nothing asked for, no error, nothing cut."""

from __future__ import annotations

import pytest
import toyset
from browser import CHROMIUM, browser
from test_report import IMAGE, SCRIPT, against

from curate.reporting.report import report
from shards.tar.writer import write_shards

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

#: Elements that stick out of the window, but for those in a box that scrolls.
OUTSIDE = """[...document.querySelectorAll('main *, header *, footer *')].filter(
    e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, pre')
).map(e => e.outerHTML.slice(0, 80))
"""


def test_nothing_is_asked_for_nothing_fails_and_nothing_is_cut(tmp_path):
    """Of a run whose names are markup or long without a space."""
    pictures = toyset.digits()[0]
    names = [IMAGE, SCRIPT, "x" * 200, *map(str, range(45))]
    write_shards(tmp_path / "store", [[(f"{key}{i}.png", toyset.png(pictures[i]))] for i, key in enumerate(names)])
    toyset.make_target(tmp_path / "target", 30)
    toyset.run_on(tmp_path, tmp_path / ("long" * 40), epochs=2)
    against(tmp_path / ("long" * 40), SCRIPT)
    page = report(tmp_path / ("long" * 40), tmp_path / "page.html").path
    with browser(tmp_path / "profile") as shown:
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                shown.open(page, width, scheme)
                assert shown.ask("innerWidth") == width
                assert shown.ask("document.documentElement.scrollWidth") <= width
                assert shown.ask(OUTSIDE) == []
                assert shown.requests() == [page.as_uri()]
                assert shown.complaints() == []
                assert shown.ask("[...document.images].every(i => i.complete && i.naturalWidth > 0)") is True
                assert shown.ask("document.images.length") > 20
                assert shown.ask("matchMedia('(prefers-color-scheme: dark)').matches") is (scheme == "dark")


def test_the_policy_stops_what_would_get_through(tmp_path):
    """Were a name not escaped after all: the browser refuses its script and its picture, and says so."""
    toyset.make_data(tmp_path, 48)
    toyset.run_on(tmp_path, tmp_path / "run", epochs=1)
    page = report(tmp_path / "run").path
    text = page.read_text("utf-8")
    wild = '<script>document.title = "caught"</script><img src="https://example.invalid/x.png">'
    page.write_text(text.replace("<main>", "<main>" + wild), "utf-8")
    with browser(tmp_path / "profile") as shown:
        shown.open(page, 390, "light")
        assert shown.ask("document.title") == "run: curate report"
        assert len([one for one in shown.complaints() if "Content Security Policy" in str(one)]) >= 2
