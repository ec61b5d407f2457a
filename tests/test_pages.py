"""README and docs say what is so: their code runs, their links lead somewhere, their verbs, options, tables and numbers
are those of the code and of the recorded results."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pages
import pytest
import toyset
import yaml
from pages import PAGES, ROOT, blocks, read
from test_layers import FLOORS

import shards
from curate import api
from curate.cli import VERBS
from curate.cli import curate as command
from curate.config import catalogue, packers
from curate.experiments.pays import report as pays_report
from shards.tar.writer import write_shards

README = "README.md"
#: Verbs with parts of their own.
GROUPS = ("pack", "reproduce")
RESULTS = ROOT / "scripts" / "results"
#: Every block that is not run, by page, with the reason that stands in it.
NOT_RUN = {
    "CONTRIBUTING.md": [
        "sets up an environment of its own, and runs this very test",
        "these are the tests themselves",
    ],
    "README.md": ["sets up an environment of its own, which takes minutes"],
    "docs/cluster.md": ["needs Ray, an extra, and starts a cluster"],
    "docs/formats/ledger.md": ["needs Spark, which no test installs"],
    "docs/index.md": ["installs packages, which takes minutes", "takes minutes"],
    "docs/many-gpus.md": ["needs two machines"],
    "docs/remote.md": ["needs a bucket"],
    "docs/terminal.md": ["changes the shell's own files"],
    "docs/your-own.md": ["needs a network"],
    "docs/storage.md": ["needs a bucket", "needs a bucket"],
}


def nothing(folder: Path) -> None:
    """A page that brings its own."""


def photographs(folder: Path) -> None:
    """``photos``, 40 digits 0 to 2 among 60 images of noise, and ``flowers``, a folder a class of 20 others."""
    pictures, labels = toyset.digits()
    draws = np.random.default_rng(0)
    turn = draws.permutation(np.flatnonzero(labels <= 2))  # they stand writer by writer
    noise = draws.integers(0, 256, (60, 16, 16), np.uint8)
    for place, picture in enumerate([*pictures[turn[:40]], *noise]):
        write(folder / "photos" / f"album-{place % 2}" / f"{place:03d}.png", toyset.png(picture))
    for label in range(3):
        for place in turn[40:][labels[turn[40:]] == label][:20]:
            write(folder / "flowers" / f"digit-{label}" / f"{place:04d}.png", toyset.png(pictures[place]))


def photographs_and_handwriting(folder: Path) -> None:
    """The same, and two sets in MNIST's layout."""
    photographs(folder)
    pictures, labels = toyset.digits()
    for number, name in enumerate(("mnist", "fashion-mnist")):
        for part, rows in (("train", slice(0, 90)), ("t10k", slice(90, 120))):
            for kind, values in (("images-idx3", pictures[number::2][rows]), ("labels-idx1", labels[number::2][rows])):
                write(folder / "idx" / name / f"{part}-{kind}-ubyte", idx_bytes(values.astype(np.uint8)))


def finished_run(folder: Path) -> None:
    """``RUN``, of two epochs, and its ``store`` of 50 images, 40 a shard; the sample of row 42 is 000000042."""
    samples = ([(f"{i:09d}.png", toyset.png(picture))] for i, picture in enumerate(toyset.digits()[0][:50]))
    write_shards(folder / "store", samples, shard_size=41 * 1024)
    toyset.make_target(folder / "target", 30)
    api.run(folder / "store", folder / "target", out=folder / "RUN", **{**toyset.FAST, "epochs": 2, "lam": 0.05})


def store_and_target(folder: Path) -> None:
    toyset.make_store(folder / "store", 48)
    toyset.make_target(folder / "target", 30)


def indexed_store(folder: Path) -> None:
    """``.curate/index.parquet``, which a query reads."""
    toyset.make_store(folder / "store", 48)
    shards.index(folder / "store", folder / ".curate" / "index.parquet")


def found_copies(folder: Path) -> None:
    """``copies``, of a store in which two digits stand twice."""
    pictures = toyset.digits()[0][[0, 1, 2, 0, 1]]
    write_shards(folder / "store", ([(f"{i}.png", toyset.png(picture))] for i, picture in enumerate(pictures)))
    api.dedup(folder / "store", out=folder / "copies")


#: What lies in the folder in which a page's blocks are run.
SCENES = {
    "README.md": photographs,
    "docs/index.md": photographs,
    "docs/terminal.md": photographs,
    "docs/your-own.md": photographs_and_handwriting,
    "docs/many-gpus.md": store_and_target,
    "docs/cluster.md": store_and_target,
    "docs/method.md": store_and_target,
    "docs/extend.md": store_and_target,
    "docs/formats/shards.md": indexed_store,
    "docs/formats/ledger.md": finished_run,
    "docs/formats/manifest.md": finished_run,
    "docs/subset.md": finished_run,
    "docs/formats/duplicates.md": found_copies,
}
RUN = [page for page in PAGES if any(block.language in pages.RUNNERS and not block.skipped for block in blocks(page))]


#: Pages that take more than a few seconds.
SLOW = ("docs/extend.md", "docs/many-gpus.md", "docs/your-own.md")


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def idx_bytes(values: np.ndarray) -> bytes:
    """Unsigned bytes in MNIST's format."""
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes() + values.tobytes()


@pytest.fixture
def registries(monkeypatch):
    """What a page registers is forgotten after it; the verbs are loaded anew, as their choices are those of then."""
    methods_and_parts = (catalogue.METHODS, catalogue.PRETEXTS, catalogue.META_LOSSES, catalogue.NETWORKS)
    for registry in (*methods_and_parts, packers.PACKERS):
        list(registry)
        monkeypatch.setattr(registry, "_rows", dict(registry._rows))
    for name in [name for name in sys.modules if name.startswith("curate.cli.")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else []) for page in RUN])
@pytest.mark.filterwarnings("ignore:unclosed file.*by-file/curated")  # webdataset leaves it to the collector
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, registries):
    """Top to bottom in one folder; runs are small where the page does not say how large."""
    SCENES.get(page, nothing)(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    monkeypatch.setattr(api, "run", pages.small(api.run, **pages.SMALL_META))
    monkeypatch.setattr(api, "dry_run", pages.small(api.dry_run, **pages.SMALL_META))
    monkeypatch.setattr(api, "pretrain", pages.small(api.pretrain))
    pages.execute(page)


def test_what_is_not_run_is_listed():
    """A block that is left out says why, and stands in the list above."""
    left_out = {page: [block.skipped for block in blocks(page) if block.skipped] for page in PAGES}
    assert {page: reasons for page, reasons in left_out.items() if reasons} == NOT_RUN


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    """A block without a language would be run by nobody; the demo's output has its own test."""
    demo = read(page).partition("<!-- demo:end -->")[0].count("\n") if page == README else 0
    for block in blocks(page):
        assert block.language in pages.LANGUAGES or block.line < demo, f"{page}:{block.line}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """Every relative link and picture is a file of the repository, and what follows a # is a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        place = (ROOT / page).parent / path if path else ROOT / page
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_verb_has_its_row_in_order():
    """The table of the verbs is the command line's own list; a verb with parts has a row for each."""
    rows = re.findall(r"^\| `curate ([\w-]+)", read("docs/reference/cli.md"), re.MULTILINE)
    assert list(dict.fromkeys(rows)) == list(VERBS)


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_named_exists(page):
    """`--name` in a `curate VERB` example is an option of that verb."""
    context = command.make_context("curate", ["--help"], resilient_parsing=True)
    for verb, rest in re.findall(r"`curate ([a-z][\w-]*)([^`]*)`", read(page)):
        found = command.get_command(context, verb)
        assert found is not None, verb
        parts = [word for word in shlex.split(rest) if not word.startswith("-")]
        if verb in GROUPS and parts:
            assert parts[0] in found.commands, (verb, parts[0])
            found = found.commands[parts[0]]
        known = {flag for parameter in found.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        used = {word for word in shlex.split(rest) if word.startswith("--")}
        assert used <= known | {"--help"}, (verb, used - known)


def test_the_demos_output_is_the_recorded_one():
    """What the README shows is what `curate demo` prints for scripts/results/demo/results.json."""
    from curate.experiments.demo.demo import table

    results = json.loads((RESULTS / "demo" / "results.json").read_text())
    shown = read(README).split("<!-- demo:begin -->")[1].split("<!-- demo:end -->")[0]
    assert shown.strip() == f"```\n{table(results, Path('demo'))}\n```"


def test_files_of_the_reading_order_exist():
    """Names ending in .py or .md in the reading order are files, alone or in the package last named."""
    part = read("ARCHITECTURE.md").split("## Reading order")[1].split("\n## ")[0]
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", part):
        assert (ROOT / name).exists() or any(ROOT.glob(f"[cs]*/**/{name}")), name


@pytest.mark.parametrize("package", ["shards", "curate"])
def test_the_floors_of_the_architecture_are_those_that_are_held(package):
    """A row a floor, lowest first, as in tests/test_layers.py."""
    part = read("ARCHITECTURE.md").split(f"<!-- floors of {package} -->")[1].split("<!--")[0]
    rows = [set(re.findall(r"`(\w+)`", cell)) for cell in re.findall(r"^\| ((?:`\w+`[ \\|]*)+)\|", part, re.MULTILINE)]
    assert rows == [set(floor) for floor in FLOORS[package]]


def test_the_numbers_on_object_stores_are_the_recorded_ones():
    """The rows, and the kills, from the JSON that the script wrote."""
    found, page = json.loads((RESULTS / "storage.json").read_text()), read("docs/storage.md")
    for name, key in (
        ("keep 10 % of images of 30 kB", "keep_10_percent_30kB"),
        ("drop 1 % of images of 110 kB", "drop_1_percent_110kB"),
    ):
        one = found[key]
        reads = one["requests"]["GET"] + one["requests"]["HEAD"]
        writes = sum(one["requests"][kind] for kind in ("PUT", "POST", "UploadPart"))
        shares = [f"{one[share]:.2f}" for share in ("read_over_kept", "through_client_over_read_and_written")]
        assert f"| {' | '.join([name, f'{reads:,}', f'{writes:,}', *shares])} |" in page
        assert one["faults"] == []
    assert f"Of {found['kills']['kills']} kills" in page
    assert (found["kills"]["identical"], found["kills"]["litter_after_clean"]) == (True, 0)


def test_the_numbers_on_performance_are_the_recorded_ones():
    """Each table's rows, from the JSON that the scripts wrote."""
    index_, rewrite, step, vae, features, subset, loader = (
        json.loads((RESULTS / f"bench_{name}.json").read_text())
        for name in ("index", "rewrite", "step", "vae", "features", "subset", "loader")
    )
    rows = [
        [name, *(f"{one[reader]['median']:,.0f}" for reader in ("tarfile", "walk", "index"))]
        + [f"{one[f'{reader}_over_tarfile']:.1f}" for reader in ("walk", "index")]
        for name, one in index_["shards"].items()
    ]
    for name, one in rewrite["by_size"].items():
        rows.append([name, *(f"{one[f'rewrite_over_{other}']:.2f}" for other in ("webdataset", "cp"))])
    for one in (step, step["small"]):
        plain, bdw = (f"{one['peak_memory'][way] / 1e6:.0f}" for way in ("plain", "bdw"))
        ratios = [f"{one[way]:.2f}" for way in ("bdw_over_plain", "double_backward_over_plain", "floor")]
        rows.append([one["workload"]["network"], str(one["workload"]["crop"]), *ratios, f"{plain} to {bdw}"])
    for images in (16, 32, 64):
        ways = (vae["steps"][f"bdw, {way}, {images}"] for way in ("tape", "tangent", "double backward"))
        rows.append([str(images), *(f"{way['over_plain']:.2f}" for way in ways)])
    for name, one in features["rate"].items():
        speeds = (f"{one[what]:,.0f}" for what in ("decoding", "features"))
        rows.append([name.removeprefix("untrained "), *speeds, f"{one['features_over_decoding']:.2f}"])
    for name, store in subset["stores"].items():
        for share, one in store.items():
            speeds = (f"{one[f'{way}_samples_a_second']:,}" for way in ("subset", "rewritten"))
            rows.append([name, share, *speeds, f"{one['subset_over_rewritten']:.2f}"])
    for name, sizes in loader["libraries"].items():
        for size, one in sizes.items():
            ratio = f"{one['simplejpeg_over_pil']:.2f}"
            rows.append([name, size, f"{one['pil']:,.0f}", f"{one['simplejpeg']:,.0f}", ratio])
    for name, libraries in loader["loader"].items():
        for library, one in libraries.items():
            speeds = (f"{one['cpu'][way]:,.0f}" for way in ("decoding", "loader"))
            rows.append([name, library, *speeds, f"{one['cpu']['loader_over_decoding']:.3f}"])
    shown = re.findall(r"^\| (.+) \|$", read("docs/performance.md"), re.MULTILINE)
    assert [row.split(" | ") for row in shown if re.search(r"\d\.\d", row)] == rows
    peaks = [f"{peak / 1e6:.0f} MB" for peak in features["peak_memory"].values()]
    assert "{} with 5,000 images, {} with 50,000".format(*peaks) in " ".join(read("docs/performance.md").split())


def test_the_numbers_on_scale_follow_from_the_recorded_ones():
    """The table of the script, and what its slopes make of 100 million."""
    found, page = json.loads((RESULTS / "scale" / "scale.json").read_text()), read("docs/scale.md")
    assert (RESULTS / "scale" / "scale.md").read_text().partition("\n\n")[2].strip() in page
    for stage, slope in found["slopes"].items():
        largest, more = found["stages"][stage]["10000000"], 9e7
        minutes = (largest["processor"] + slope["microseconds"] * more / 1e6) / 60
        own, everything = ((largest[name] + slope[f"{name}_bytes"] * more / 1e6) / 1e3 for name in ("own", "all"))
        assert f"| {stage} | {minutes:.1f} | {own:.1f} | {everything:.1f} |" in page
        assert largest["own"] < 1000
        assert own < 8


def test_the_citation_is_of_this_release():
    """Version and license are the package's own."""
    cited = yaml.safe_load(read("CITATION.cff"))
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_what_the_classifier_kept_is_as_recorded():
    """The sentence on choosing without training, from the results of the study."""
    selected = json.loads((RESULTS / "pays" / "pays.json").read_text())["selected"]
    kept = {one["choice"].removesuffix("-classifier-3"): one for one in selected}
    text = " ".join(read("docs/your-own.md").split())
    for name in ("gtsrb", "omniglot", "vgg-flowers"):
        shown = f"{kept[name]['kept']} at a purity of {kept[name]['purity']:.2f}".replace(" 0.", " .")
        assert shown in text, shown


def test_the_tables_of_the_study_are_the_recorded_ones():
    """On the page on when it pays: the study's overview, and what advice said of its targets."""
    page = read("docs/when-it-pays.md")
    record = json.loads((RESULTS / "pays" / "pays.json").read_text())
    assert between(page, "pays") == pays_report.overview(record)
    shares = json.loads((RESULTS / "pays" / "shares" / "pays.json").read_text())
    assert between(page, "shares") == pays_report.overview(shares)
    assert between(page, "advice") == pays_report.advice_table(
        json.loads((RESULTS / "pays" / "advice.json").read_text())
    )


def test_what_the_signals_tell_is_as_recorded():
    """The table of the method's page: mean and standard error over the seeds, and seconds."""
    lines = json.loads((RESULTS / "signals" / "auroc.json").read_text())["lines"]
    rows = between(read("docs/method.md"), "signals").splitlines()[2:]
    for row, signal in zip(rows, ("exact", "head", "head, factors", "reference-net"), strict=True):
        own = [line for line in lines if line["signal"] == signal]
        shown = [f"{np.mean([line['seconds'] for line in own]):.0f}"]
        for target in ("omniglot", "gtsrb"):
            found = [line["mean"] for line in own if line["target"] == target]
            shown.insert(
                0, f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / len(found) ** 0.5:.3f}".replace("0.", ".")
            )
        assert [cell.strip() for cell in row.split("|")[2:-1]] == shown


def test_what_is_seen_in_a_messy_store_is_as_recorded():
    """Mean and standard error over the seeds, of every score and condition."""
    lines = json.loads((RESULTS / "signals" / "messy.json").read_text())["lines"]
    head, _, *rows = between(read("docs/method.md"), "messy").splitlines()
    conditions = [cell.strip() for cell in head.split("|")[2:-1]]
    assert len(rows) == len({line["score"] for line in lines}) == 7
    for row in rows:
        score, *shown = (cell.strip() for cell in row.split("|")[1:-1])
        own = [line for line in lines if line["score"] == score]
        assert len(own) == 3
        for condition, cell in zip(conditions, shown, strict=True):
            found = [line[condition] for line in own]
            assert cell == f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / len(found) ** 0.5:.3f}"


def between(page, name):
    """What stands between two marks of a page."""
    return page.split(f"<!-- {name}:begin -->\n")[1].split(f"<!-- {name}:end -->")[0]


@pytest.mark.slow
def test_the_examples_are_a_plug_in_package(tmp_path):
    """The entry points that the page on extending shows, and its command, in a process of its own without any call."""
    store_and_target(tmp_path)
    (shown,) = (tomllib.loads(block.text)["project"]["entry-points"] for block in blocks("docs/extend.md", "toml"))
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in shown.items()]
    write(tmp_path / "site/curate_examples-1.0.dist-info/entry_points.txt", "".join(lines).encode())
    write(tmp_path / "site/curate_examples-1.0.dist-info/METADATA", b"Name: curate-examples\nVersion: 1.0\n")
    (call,) = blocks("docs/extend.md", "sh")
    words = [*shlex.split(call.text.replace("\\\n", " "))[1:], "--epochs", "1", "--width", "2", "--workers", "0"]
    paths = os.pathsep.join(map(str, (tmp_path / "site", ROOT / "docs" / "examples", ROOT)))
    code = "from curate.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, *words, "--size", "16", "--crop", "16"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]["network"] == "plain"
    helped = subprocess.run(
        [sys.executable, "-c", code, "pack", "arrays", "--help"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "curate pack arrays digits.npz --labelled 200 --out data" in helped.stdout, helped.stderr
