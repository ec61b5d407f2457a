"""Tables of what can be chosen by name, and how others add to them.

A row is a specification that can be read without torch; the class behind it is imported when it is asked for. A package
of somebody else's adds rows by an entry point (``[project.entry-points."curate.methods"]``, `name = "package:SPEC"`),
a notebook by `Registry.register`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar, cast

from curate.errors import CurateError, Misuse


class Spec(Protocol):
    """What every row of a registry has, whatever its type."""

    @property
    def factory(self) -> str | Callable[..., Any]:
        """The callable that makes one, or where it is, ``module:attribute``; then it is imported on use."""


S = TypeVar("S", bound=Spec)


class Registry(Mapping[str, Callable[..., Any]], Generic[S]):
    """Names -> factories, in the order in which they were added; `spec` has what else is known of a name.

    Args:
        kind: what the names are, for messages, as the option that takes them: ``method``.
        group: of the entry points that add rows.
        row: the type of a row.
        rows: the built-in ones.
    """

    def __init__(self, kind: str, group: str, row: type[S], rows: Mapping[str, S]) -> None:
        self.kind, self.group, self.row = kind, group, row
        self._rows: dict[str, S] = dict(rows)
        self._complete = False

    def register(self, name: str, spec: S) -> None:
        """Add a row; the same one again is nothing new.

        Raises:
            Misuse: the name is taken.
        """
        if self._rows.get(name, spec) != spec:
            raise Misuse(f"{self.kind} {name}: is there already; register it under another name")
        self._rows[name] = spec

    def spec(self, name: str) -> S:
        """What is known of ``name`` without importing it.

        Raises:
            Misuse: it is unknown; the message lists the known ones.
        """
        rows = self._all()
        if name not in rows:
            raise Misuse(f"--{self.kind} {name}: unknown; known: {', '.join(rows)}")
        return rows[name]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self._all():
            raise KeyError(name)
        factory = self.spec(name).factory
        return factory if callable(factory) else _imported(self.kind, name, factory)

    def __contains__(self, name: object) -> bool:
        """Whether it is known; a mapping's own way would import it."""
        return name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, S]:
        """The rows, those of installed packages included; these are looked for once."""
        if not self._complete:
            self._complete = True  # at once: a plug-in may ask for names while it is imported
            try:
                for point in entry_points(group=self.group):
                    self._add(point)
            except Exception:
                self._complete = False
                raise
        return self._rows

    def _add(self, point: EntryPoint) -> None:
        """The row of an installed package.

        Raises:
            CurateError: it cannot be imported, is no row, or has the name of another.
        """
        whose = f"plug-in {point.name} ({point.value})"
        try:
            spec = point.load()
        except Exception as error:  # whatever a stranger's module raises when it is imported
            raise CurateError(f"{whose}: cannot be loaded ({error}); mend or uninstall its package") from error
        if not isinstance(spec, self.row):
            found = type(spec).__name__
            raise CurateError(f"{whose}: is a {found}, no {self.row.__name__}; mend or uninstall its package")
        if self._rows.get(point.name, spec) != spec:
            raise CurateError(f"{whose}: there is a {self.kind} {point.name} already; rename or uninstall it")
        self._rows[point.name] = spec


def _imported(kind: str, name: str, location: str) -> Callable[..., Any]:
    module, _, attribute = location.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CurateError(f"--{kind} {name}: {location} cannot be imported ({error})") from error
    return cast(Callable[..., Any], found)
