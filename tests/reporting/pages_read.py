"""A page of `curate report` as a browser would take it apart: tags, attributes, and text by section."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

#: Elements without an end.
EMPTY = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Every start tag with its attributes, and the text of each section by its id."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.raw = path.read_text("utf-8")
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.sections: dict[str, str] = {}
        self.open: list[str] = []
        self._section = ""
        self.feed(self.raw)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "section":
            self._section = found["id"]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        if tag in ("td", "th", "dt", "dd"):
            self.handle_data(" ")
        if tag == "section":
            self._section = ""
        assert tag in self.open, tag
        if tag not in ("li", "p"):
            assert self.open[-1] == tag, (self.open[-3:], tag)
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.sections[self._section] = self.sections.get(self._section, "") + data

    def text(self, section: str = "") -> str:
        """Of a section, or of all; spaces and line ends as one space."""
        parts = [self.sections.get(section, "")] if section else self.sections.values()
        return " ".join(" ".join(parts).split())

    def images(self) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag == "img"]
