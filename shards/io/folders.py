"""Lists the wanted files below a folder, and reports everything that was skipped.

The caller says which names are wanted. `shards.io.regular_files` opens single files.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

#: What this package keeps of a store lies in it; hidden, so that patterns and readers of folders pass it over.
OWN_FOLDER = ".curate"
#: Names of a kind that a line for people shows; a report has them all.
SHOWN = 5

# `.tar.zst` says more than `.zst`.
_SUFFIX = re.compile(r".(\.(?:tar\.)?[^.]+)$", re.IGNORECASE)


@dataclass(frozen=True)
class PassedOver:
    r"""What a walk did not take; paths are relative to the folder, sorted, and UTF-8 with ``\xNN`` for other bytes.

    Args:
        linked_folders: links to folders, which are not followed.
        unreadable_folders: could not be listed.
        special_files: pipes, sockets and devices of a wanted name, which may have no end.
        unread: files of the wanted kind in a form that is not read (``0.tar.zst``).
        hidden_folders: their names begin with a dot; not entered, so what they hold is not counted; our own is none.
        hidden_files: their names begin with a dot.
        others: files that are not of the wanted kind, by suffix in lower case.
    """

    linked_folders: tuple[str, ...] = ()
    unreadable_folders: tuple[str, ...] = ()
    special_files: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    hidden_folders: int = 0
    hidden_files: int = 0
    others: dict[str, int] = field(default_factory=dict)

    def places(self) -> dict[str, tuple[str, ...]]:
        """What could not be entered or opened, by what it is."""
        return {
            "linked folder": self.linked_folders,
            "unreadable folder": self.unreadable_folders,
            "special file": self.special_files,
        }

    def named(self) -> dict[str, tuple[str, ...]]:
        """What is rarely meant to be left out, by what it is."""
        return {**self.places(), "unread shard": self.unread}

    def left_out(self) -> str:
        """What `named` gives, for people; empty where there is nothing."""
        return ", ".join(f"{len(paths)} {what}{_first_names(paths)}" for what, paths in self.named().items() if paths)

    def text(self) -> str:
        """All of it, for people; empty where there is nothing.

        >>> PassedOver(linked_folders=("a",), hidden_files=2, others={".txt": 3}).text()
        '1 linked folder (a), 2 hidden files, 3 .txt'
        """
        phrases = [self.left_out()] if self.left_out() else []
        hidden = {"hidden folder": self.hidden_folders, "hidden file": self.hidden_files}
        phrases += [f"{count:,} {what}{'s' if count > 1 else ''}" for what, count in hidden.items() if count]
        most = Counter(self.others).most_common(SHOWN)
        phrases += [f"{count:,} {suffix or 'without a suffix'}" for suffix, count in most]
        rest = sum(self.others.values()) - sum(count for _, count in most)
        return ", ".join(phrases + ([f"{rest:,} others"] if rest else []))


def walk_folder(folder: str | Path, wanted: Callable[[str], bool]) -> tuple[list[str], PassedOver]:
    """The wanted files below ``folder``, as sorted relative paths with ``/``, and a report of what was skipped.

    Hidden files and folders are skipped. Links to folders are not followed; links to files are, and a broken one is
    listed, so that its reader fails.

    Args:
        wanted: called with a file's name without its folder.

    Raises:
        OSError: ``folder`` itself cannot be listed.
    """
    found: list[str] = []
    linked: list[str] = []
    unreadable: list[str] = []
    special: list[str] = []
    hidden, others = Counter[bool](), Counter[str]()
    pending = [""]
    while pending:
        place = pending.pop()
        try:
            with os.scandir(os.path.join(folder, place) if place else folder) as entries:
                listed = list(entries)
        except OSError:
            if not place:
                raise
            unreadable.append(place)
            continue
        for entry in listed:
            path = os.path.join(place, entry.name)
            if entry.name.startswith("."):
                if entry.name != OWN_FOLDER:
                    hidden[entry.is_dir()] += 1
            elif entry.is_dir():
                (linked if entry.is_symlink() else pending).append(path)
            elif not wanted(entry.name):
                others[suffix_of(entry.name)] += 1
            else:
                (found if entry.is_file() or not os.path.exists(entry.path) else special).append(path)
    return sorted(found), PassedOver(
        linked_folders=_sorted(linked),
        unreadable_folders=_sorted(unreadable),
        special_files=_sorted(special),
        hidden_folders=hidden[True],
        hidden_files=hidden[False],
        others=dict(sorted(others.items())),
    )


def _sorted(paths: list[str]) -> tuple[str, ...]:
    return tuple(sorted(map(_utf8, paths)))


def suffix_of(name: str) -> str:
    """A file's suffix in lower case, with the dot; empty where it has none."""
    match = _SUFFIX.search(name)
    return _utf8(match[1].lower()) if match else ""


def _utf8(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _first_names(paths: tuple[str, ...]) -> str:
    return f"{'s' if len(paths) > 1 else ''} ({', '.join(paths[:SHOWN])}{', ...' if len(paths) > SHOWN else ''})"
