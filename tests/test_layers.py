"""Who may import whom: the table of the design, held against every import statement, those inside functions too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Where each library from outside may be imported; numpy anywhere.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "numpy": ("*",),
    "torch": (
        *("curate.images", "curate.augment", "curate.networks", "curate.pretexts*", "curate.metalosses*"),
        *(
            "curate.beta",
            "curate.lookahead",
            "curate.passes",
            "curate.taped",
            "curate.methods*",
            "curate.signal",
            "curate.engine",
            "curate.checkpoint",
        ),
        *("curate.randomness", "curate.precision", "curate.reference", "curate.store", "curate.target"),
        *("curate.prepare", "curate.dryrun", "curate.run", "curate.evaluate", "curate.pretrain"),
        *("curate.claim", "curate.epoch"),
        *("curate.backbones", "curate.distances"),
        *("curate.downstream.*", "curate.trained", "curate.experiments.*"),
    ),
    "torchvision": ("curate.images", "curate.networks", "curate.downloads"),
    "safetensors": ("curate.checkpoint", "curate.backbones"),
    "pyarrow": (
        *("shards.*", "curate.parquet", "curate.ledger", "curate.manifest", "curate.generations", "curate.run"),
        *("curate.distances",),
        *("curate.cli.ledger", "curate.experiments.*"),
    ),
    "xxhash": ("shards.*",),
    "braceexpand": ("shards.names",),
    "webdataset": ("shards.stream", "shards.remote"),
    "fsspec": ("shards.remote",),
    "PIL": ("shards.pictures", "shards.png", "curate.images", "curate.experiments.*"),
    "scipy": ("curate.pruner", "curate.statistics", "curate.experiments.*"),
    "sklearn": ("curate.downstream.*", "curate.experiments.*"),
    "nmslib": ("curate.neighbours",),
    "threadpoolctl": ("curate.experiments.*",),
    "matplotlib": ("curate.plots", "curate.diagrams"),
    "tqdm": ("curate.progress",),
    "click": ("curate.cli*",),
}
#: Imported on call only: webdataset imports torch; fsspec is an extra.
ON_CALL = {"webdataset", "fsspec"}
#: These share `curate.records` and never import one another.
APART = ("curate.engine", "curate.ledger", "curate.pruner", "curate.manifest", "curate.downstream*")
#: Who may join them.
JOINING = (
    *("curate.run", "curate.prepare", "curate.generations", "curate.dryrun", "curate.rejudge"),
    *("curate.claim", "curate.epoch"),
    *("curate.evaluate", "curate.pretrain", "curate.experiments.*"),
)
#: Of these only `base` is imported by others than the family's own registry.
FAMILIES = ("curate.pretexts", "curate.metalosses", "curate.methods")


def modules() -> dict[str, Path]:
    """Every module of both packages by its name."""
    paths = [path for package in ("shards", "curate") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


MODULES = modules()


def imported(module: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, in full, and whether the statement stands inside a function."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")), package, False)


def _imports(node: ast.AST, package: str, inside: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((name.name, inside) for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
        source = ".".join(part for part in (above, node.module) if part)
        for name in node.names:
            whole = f"{source}.{name.name}"
            yield (whole if whole in MODULES else source), inside
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, inside)


def matches(module: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(module, pattern) for pattern in patterns)


def own(module: str) -> set[str]:
    """The modules of ours that a module imports."""
    return {name for name, _ in imported(module) if name in MODULES and name != module}


every_module = pytest.mark.parametrize("module", MODULES)


@every_module
def test_libraries_stand_where_they_belong(module: str) -> None:
    """An import of a library that the table does not know is one to think about first."""
    for name, inside in imported(module):
        library = name.partition(".")[0]
        if library in sys.stdlib_module_names or library in ("shards", "curate"):
            continue
        assert library in LIBRARIES, f"{module} imports {name}: not in the table"
        assert matches(module, LIBRARIES[library]), f"{module} imports {name}: only {LIBRARIES[library]} may"
        assert inside or library not in ON_CALL, f"{module} imports {name} when it is imported; import it on call"


@every_module
def test_shards_know_nothing_of_learning(module: str) -> None:
    """`shards` never imports `curate`."""
    if module.startswith("shards"):
        assert not [name for name in own(module) if name.startswith("curate")]


@every_module
def test_the_parts_are_joined_in_few_places(module: str) -> None:
    """Engine, ledger, pruner, manifest and downstream never import one another."""
    parts = {pattern for pattern in APART for name in own(module) if fnmatch(name, pattern)}
    if matches(module, APART):
        parts -= {pattern for pattern in APART if fnmatch(module, pattern)}
        assert not parts, f"{module} imports {parts}; they share curate.records"
    elif len(parts) > 1:
        assert matches(module, JOINING), f"{module} joins {parts}; that is for {JOINING}"


@every_module
def test_members_of_a_family_are_found_through_its_registry(module: str) -> None:
    """Nobody imports a member but the family's own `__init__`; dryrun reads an episode's shape from one."""
    for family in FAMILIES:
        members = {n for n in own(module) if n.startswith(f"{family}.") and n not in (family, f"{family}.base")}
        if members and module != family:
            assert (module, members) == ("curate.dryrun", {"curate.metalosses.prototypical"})


def test_no_two_modules_import_each_other() -> None:
    """There is no cycle, imports inside functions included: the order of files is the way the data moves."""
    left = {module: own(module) for module in MODULES}
    while free := [module for module, needs in left.items() if not needs & set(left)]:
        for module in free:
            del left[module]
    assert not left, f"a cycle among {sorted(left)}"


@pytest.mark.parametrize("package", ["shards", "curate"])
def test_packages_re_export_nothing(package: str) -> None:
    """`import shards` loads no part of it."""
    assert not list(imported(package))


@pytest.mark.parametrize(
    "module",
    [
        *("curate.ledger", "curate.pruner", "curate.manifest", "curate.records", "curate.provenance"),
        *("shards.index", "shards.rewrite", "shards.verify", "shards.pack", "shards.stream", "shards.exports"),
        *("shards.pack_stl10", "shards.pack_decathlon", "shards.decathlon_results"),
    ],
)
def test_records_and_shards_are_read_without_torch(module: str) -> None:
    """A machine that prunes and rewrites needs no torch: it is not in sys.modules after the import."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'webdataset' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_relative_imports_are_followed() -> None:
    """The walk itself: one and two dots, from a module and from a package."""
    tree = ast.parse("from . import tars\nfrom .names import locate\ndef f():\n    from ..curate import run")
    assert list(_imports(tree, "shards", False)) == [
        ("shards.tars", False),
        ("shards.names", False),
        ("curate.run", True),
    ]
