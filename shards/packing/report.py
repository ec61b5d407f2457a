"""What became of a folder of images, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shards.faults import Fault
from shards.io.folders import SHOWN, PassedOver
from shards.member_names import storable


@dataclass(frozen=True)
class PackReport:
    """What became of a folder.

    Args:
        samples: number packed by split; a store has the one split ``""``.
        classes: names by label; empty for a store.
        ignored: number of files that are no image by their name and go along with none, or lie in no class folder.
        faults: images and side files left out, and why; their `shard` is the file's path in the folder.
        passed_over: everything that is no image file, files of ``others`` by suffix included.
        renamed: new keys by file, of files whose own name readers would not return as key.
        notes: what a person should know of labels, splits, captions and groups.
        others: the ignored files by name, but for hidden ones.
    """

    samples: dict[str, int]
    classes: tuple[str, ...]
    ignored: int
    faults: tuple[Fault, ...]
    passed_over: PassedOver
    renamed: dict[str, str]
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def text(self) -> str:
        """Counts for people: a line, and a second where something was passed over."""
        counts = ", ".join(f"{n:,} {name or 'images'}" for name, n in self.samples.items())
        classes = f" in {len(self.classes)} classes" if self.classes else ""
        missing = sum(fault.kind == "missing-image" for fault in self.faults)
        out = f"{len(self.faults)}{f' ({missing} of them cannot be had)' if missing else ''}"
        line = f"packed {counts}{classes}; left out {out}, ignored {self.ignored} other files"
        line += f" ({_first(self.others)})" if self.others else ""
        passed_over = self.passed_over.text()
        return f"{line}\npassed over: {passed_over}" if passed_over else line

    def remarks(self) -> list[str]:
        """A line an image that was left out, one that got another key than its name's, and a line a note."""
        renamed = (
            f"renamed: {name} has the key {key}; readers pass over its own" for name, key in self.renamed.items()
        )
        notes = (f"note: {note}" for note in self.notes)
        return [*(f"left out: {fault}" for fault in self.faults), *renamed, *notes]


def _first(names: Sequence[str]) -> str:
    """The first of many names, each on one line."""
    shown = ("".join(c if c.isprintable() else ascii(c)[1:-1] for c in storable(name)) for name in names[:SHOWN])
    return ", ".join(shown) + (", ..." if len(names) > SHOWN else "")
