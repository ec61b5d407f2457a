"""What a selector finds out besides its scores, for people."""

from __future__ import annotations

#: The name of each fact for people, what it means, and how it is shown.
FACTS = {
    "pi": ("like the target", "images of the store, as the classifier estimates", "{:,.0f}"),
    "purity": ("purity", "share of the kept that is like the target, estimated", "{:.1%}"),
    "auroc": ("AUROC", "how well held-out target images are told from the store; 0.5 is chance", "{:.4f}"),
    "kept": ("kept", "images", "{:,.0f}"),
    "rounds": ("rounds", "of the core set", "{:,.0f}"),
}


def explained(found: dict[str, float]) -> list[tuple[str, str, str]]:
    """Name, value and meaning of each, but how many are kept, which stands elsewhere; one that is not known here goes
    by its name."""
    known = {name: FACTS.get(name, (name, "", "{:.4g}")) for name in found if name != "kept"}
    return [(label, form.format(found[name]), meaning) for name, (label, meaning, form) in known.items()]


def in_words(found: dict[str, float]) -> str:
    """Names and values in a line.

    >>> in_words({"kept": 50.0, "pi": 61.2, "auroc": 0.98})
    'like the target: 61, AUROC: 0.9800'
    """
    return ", ".join(f"{label}: {value}" for label, value, _ in explained(found))
