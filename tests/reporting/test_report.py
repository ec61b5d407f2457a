"""`curate report`: its numbers are the ledger's, it asks nothing of any other place, and no name becomes markup."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import toyset
from click.testing import CliRunner
from pages_read import Page
from PIL import Image

import curate
from curate.cli import curate as command
from curate.duplicates import hash_files
from curate.errors import CurateError, Misuse
from curate.ledger import ledger, manifest
from curate.reporting import copies, galleries
from curate.reporting.report import report
from shards.indexing import domains
from shards.tar.writer import write_shards

COUNT, BROKEN = 96, 9
#: Options of a run of each method, beside the fast ones.
METHODS = {
    "bdw": {},
    "dw": {"epochs": 2},
    "l2rw": {"epochs": 1},
    "nn": {"epochs": 1},
    "oracle": {"domain": "even", "epochs": 1},
    "uniform": {"epochs": 1},
    "classifier": {"nets": 1, "keep": 30.0},
    "nearest": {"nets": 1, "keep": 0.25},
    "simcore": {"nets": 1},
    "semdedup": {"nets": 1, "keep": 0.25},
    "softdedup": {"nets": 1, "keep": 0.25},
    "random": {"keep": 0.25},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A store with an image that does not decode, domains, and a target; three test images stand in the store, too."""
    folder = tmp_path_factory.mktemp("report")
    toyset.make_store(folder / "store", COUNT, {BROKEN: b"no image"})
    toyset.make_target(folder / "target", 30)
    pictures = toyset.digits()[0]
    extra = [[(f"copy-{i}.png", toyset.png(pictures[len(pictures) - 90 + i]))] for i in range(3)]
    write_shards(folder / "extra", extra)
    (folder / "extra" / "000000.tar").rename(folder / "store" / "000099.tar")
    held = toyset.indexed(folder / "store")
    codes = (np.arange(len(held)) % 2).astype(np.int32)
    domains.save(held, domains.Domains(("even", "odd"), codes), folder / "store" / domains.FILE_NAME)
    return folder


@pytest.fixture(scope="module")
def bdw(data):
    """A finished run, and its page."""
    toyset.run_on(data, data / "bdw")
    made = report(data / "bdw")
    return data / "bdw", made, Page(made.path)


def fresh(run: Path, to: Path) -> Path:
    """A copy of a run without its page, to be spoilt."""
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("report.html"))
    return to


def test_the_numbers_are_those_of_the_ledger_and_the_manifests(bdw):
    run, made, page = bdw
    table, numbers = ledger.read_final(run), made.numbers
    kept = np.count_nonzero(table["kept"].to_numpy())
    assert (numbers["images"], numbers["kept"], numbers["undecodable"]) == (COUNT + 3, kept, 1)
    assert numbers["kept"] + numbers["pruned"] + 1 == COUNT + 3
    assert numbers["rule"] == manifest.read(manifest.path_of(run, 3))[1].rule
    for line in numbers["epochs"]:
        assert line["kept"] == len(toyset.manifest(run, line["number"]))
        assert line["live"] == len(toyset.partition(run, line["number"], "row"))
    text = page.text("kept")
    assert f"{kept} of {COUNT + 3} images" in text
    assert f"{kept / (COUNT + 3):.1%}" in text
    assert "more than 50% of its belief Beta(a, b) lies below the weight 0.45" in text
    assert "prune when CDF(0.45; a, b) > 0.5" in text
    assert "1 left out: they do not decode" in text
    spent = sum(sum(line["seconds"].values()) for line in toyset.metrics(run))
    printed = re.search(r"([\d,.]+) s in 3 epochs", page.text("costs"))
    assert printed
    assert float(printed[1].replace(",", "")) == pytest.approx(spent, abs=0.06)  # each stage's is rounded


def test_no_signature_of_a_url_is_passed_on(bdw, monkeypatch, tmp_path):
    """A report can be mailed: of what the run was told it has no query, nor in the commands."""
    run = shutil.copytree(bdw[0], tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["configuration"]["store"] = "https://me:secret@host/{0..9}.tar?X-Amz-Signature=secret&y=1"
    (run / "run.json").write_text(json.dumps(record))
    page = Page(report(run).path)
    assert "host/{0..9}.tar" in page.raw
    assert "secret" not in page.raw


def test_domains_are_counted_as_the_ledger_has_them(data, bdw):
    run, made, page = bdw
    rows = toyset.rows_of(run / "weights.parquet", "row", "kept", "mean")
    for parity, name in enumerate(("even", "odd")):
        own = [(kept, mean) for row, kept, mean in rows if row % 2 == parity]
        found = made.numbers["domains"][name]
        assert (found["images"], found["kept"]) == (len(own), sum(kept for kept, _ in own))
        assert found["mean"] == pytest.approx(np.mean([mean for _, mean in own]), abs=1e-6)
        assert f"{name} {found['images']} {found['kept']} {found['mean']:.3f}" in page.text("domains")


def test_the_pictures_are_the_stores_and_stand_under_what_became_of_them(bdw):
    """Each gallery holds who belongs there, highest or lowest first, and the thumbnail is the image of its key."""
    run, _, page = bdw
    rows = toyset.rows_of(run / "weights.parquet", "key", "kept", "mean", "error")
    state = {key: (kept, mean) for key, kept, mean, error in rows if error is None}
    shown = re.findall(
        r'<img src="data:image/png;base64,([^"]+)" alt="(\d+)" class="tiny">\s*<b>([\d.]+)</b>', page.raw
    )
    assert len(shown) > 60
    for body, key, mean in shown:
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))
        assert (picture == toyset.digits()[0][int(key)]).all(), key
        assert f"{state[key][1]:.3f}" == mean
    kept, pruned = (part.split("<h3")[0] for part in page.raw.split('id="kept-images"')[1].split('id="pruned-images"'))
    for part, stays in ((kept, True), (pruned, False)):
        keys = re.findall(r'alt="([^"]+)"', part)
        means = [state[key][1] for key in keys]
        assert all(state[key][0] is stays for key in keys)
        assert means == sorted(means, reverse=stays)
        every = [mean for own, mean in state.values() if own is stays]
        assert (means[0], means[-1]) == ((max(every), min(every)) if stays else (min(every), max(every)))


def test_near_the_cut_and_undecided_are_by_the_mass_below_lambda(bdw):
    run, made, _ = bdw
    rows = toyset.rows_of(run / "weights.parquet", "below", "error", "kept")
    below = np.array([mass for mass, error, _ in rows if error is None])
    assert made.numbers["galleries"]["undecided"] == np.count_nonzero((below > 0.1) & (below < 0.9))
    kept, pruned = ([m for m, error, own in rows if error is None and own is which] for which in (True, False))
    judged = curate.reporting.reading.read(run).judged
    near = next(one for one in galleries.galleries(judged) if one.name == "near").places
    found = judged.table["below"].to_numpy()[near]
    assert sorted(found.tolist()) == sorted([*sorted(kept)[-12:], *sorted(pruned)[:12]])


def test_copies_of_test_images_are_found_by_their_bytes(bdw):
    """The three that stand in the store are told of where they are kept; what else was looked at is said."""
    run, made, page = bdw
    keys = [key for key, kept in toyset.rows_of(run / "weights.parquet", "key", "kept") if kept and "copy" in key]
    assert made.numbers["copies"]["found"] == {"train": 0, "val": 0, "test": len(keys)}
    assert made.numbers["copies"]["target"] == {"train": 30, "val": 30, "test": 30}
    assert keys, "keep some of them in the toy run"
    assert f"{len(keys)} of 30 test images are among the kept" in page.text("copies")
    assert "A copy that was scaled, cropped, mirrored or saved again is not found" in page.text("copies")
    assert {image["alt"] for image in page.images() if image["alt"].startswith("copy")} >= set(keys)


def test_near_copies_are_told_where_hashes_of_the_store_are_there(bdw, monkeypatch, tmp_path):
    """Only the kept rows count: what was pruned does no harm to a score."""
    run, made, _ = bdw
    monkeypatch.setattr(copies, "hashes_there", lambda store: hash_files.in_memory(store))
    again = report(run, tmp_path / "near.html")
    near, exact = again.numbers["copies"]["near"], made.numbers["copies"]["found"]
    assert made.numbers["copies"]["near"] is None
    assert near["test"] >= exact["test"] > 0
    page = Page(tmp_path / "near.html")
    assert "or a near-copy" in page.text("copies")
    assert "Near-copies (scaled, mirrored, saved again) by the hashes" in page.text("copies")
    held, tests = toyset.indexed(run.parent / "store"), toyset.indexed(run.parent / "target" / "test")
    assert copies._near(held, np.arange(len(held)), {"test": tests})["test"] >= 3
    assert copies._near(held, np.zeros(0, np.int64), {"test": tests}) == {"test": 0}


def safe(page: Page) -> None:
    """Nothing is asked of any other place, nothing runs, and every element is one of ours."""
    policy = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policy) == 1
    assert policy[0].startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    known = {
        *("html", "head", "meta", "link", "title", "style", "body", "header", "nav", "main", "section", "footer"),
        *("h1", "h2", "h3", "p", "b", "i", "a", "ul", "li", "dl", "dt", "dd", "div", "span", "small", "bdi", "img"),
        *("figure", "figcaption", "svg", "line", "path", "rect", "circle", "text", "table", "tr", "th", "td"),
        *("code", "pre", "details", "summary"),
    }
    for tag, attributes in page.tags:
        assert tag in known, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("srcset", "action", "formaction", "poster", "background", "data", "xlink:href"), name
            if name in ("src", "href"):
                assert value.startswith(("data:image/png;", "data:image/jpeg;", "#")) or value == "data:,", value
    assert not re.search(r"url\(|@import|https?:", page.raw)
    assert not page.open


def test_a_page_asks_nothing_of_any_other_place(bdw):
    safe(bdw[2])
    links = {a["href"][1:] for tag, a in bdw[2].tags if tag == "a"}
    assert links <= {a["id"] for _, a in bdw[2].tags if "id" in a}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_its_page(data, tmp_path, name):
    options = METHODS[name]
    toyset.run_on(data, tmp_path / "run", method=name, **options)
    made = report(tmp_path / "run")
    page, table = Page(made.path), ledger.read_final(tmp_path / "run")
    safe(page)
    assert made.numbers["finished"] is True
    assert made.numbers["kept"] == np.count_nonzero(table["kept"].to_numpy())
    assert made.numbers["facts"] == ledger.facts_of(tmp_path / "run", ledger.epochs(tmp_path / "run")[-1])
    assert len(page.images()) > 20
    assert "nan" not in page.raw
    says = {
        "bdw": "lies below the weight 0.45",
        "dw": "an image goes whose weight is 0.45 or less",
        "oracle": "Images of the domain even alone are used",
        "classifier": "so that 30 images do, as was asked for",
        "nearest": "so that 25.0% of the images do",
        "simcore": "by the method's own rule",
        "semdedup": "so that 25.0% of the images do",
        "softdedup": "so that 25.0% of the images do",
        "random": "so that 25.0% of the images do",
    }
    assert says.get(name, "No image goes for its weight") in page.text("kept")
    if name == "classifier":
        assert f"{made.numbers['facts']['auroc']:.4f}" in page.text("kept")
    assert ("No image is near a cut" in page.text("images")) is (name in ("l2rw", "nn", "oracle", "uniform"))


def test_a_prior_is_told_of_and_what_it_pruned_is_counted(data, bdw, tmp_path):
    """An earlier run's beliefs as a prior: epoch 0 judges all, and the near ones are those that it judged, too."""
    toyset.run_on(data, tmp_path / "run", prior=str(bdw[0]), epochs=2)
    made = report(tmp_path / "run")
    page, numbers = Page(made.path), made.numbers
    safe(page)
    assert [epoch["number"] for epoch in numbers["epochs"]] == [0, 1, 2]
    before = len(toyset.manifest(tmp_path / "run", 0))
    assert numbers["epochs"][0]["live"] == COUNT + 3
    assert f"all {COUNT + 3} images were judged once, by a prior ({bdw[0]}), which kept {before}" in page.text("kept")
    assert "is not judged" not in page.text("kept")
    assert "s in 2 epochs" in page.text("costs")
    rows = toyset.rows_of(tmp_path / "run" / "weights.parquet", "below", "error", "kept")
    near = sorted(mass for mass, error, kept in rows if error is None and not kept)[:12]
    judged = curate.reporting.reading.read(tmp_path / "run").judged
    found = next(one for one in galleries.galleries(judged) if one.name == "near").places
    assert sorted(x for x, y in judged.table.select(["below", "kept"]).take(found).to_pandas().values if not y) == near
    starts = re.findall(
        r'text-anchor="middle">(start|\d)</text>', page.raw.split('class="kept line"')[1].split("</svg>")[0]
    )
    assert starts == ["start", "0", "1", "2"]


def test_the_same_run_gives_the_same_bytes(bdw, tmp_path):
    first, second = (report(bdw[0], tmp_path / name).path.read_bytes() for name in ("a.html", "b.html"))
    assert first == second == bdw[1].path.read_bytes()
    assert report(bdw[0], tmp_path / "a.html").path.read_bytes() == first  # written over its own


SCRIPT, IMAGE = "<script>alert(1)<!--", '"><img src=x onerror=alert(1)>'


def test_hostile_names_are_text(tmp_path):
    """Shards, keys, domains, the run's folder, the target and a comparison's sets, none of them becomes markup."""
    pictures = toyset.digits()[0]
    names = [IMAGE, "'><svg onload=alert(1)>", "{{ 7*7 }}", "a\x07b\u202egnp", "&lt;b&gt;", *map(str, range(43))]
    samples = [[(f"{key}{i}.png", toyset.png(pictures[i]))] for i, key in enumerate(names)]
    store = tmp_path / "store"
    write_shards(store, samples)
    (store / "000000.tar").rename(store / f"{SCRIPT}.tar")
    held = toyset.indexed(store)
    codes = (np.arange(len(held)) % 2).astype(np.int32)
    domains.save(held, domains.Domains((SCRIPT, IMAGE), codes), store / domains.FILE_NAME)
    toyset.make_target(tmp_path / "target", 30)
    (tmp_path / "target").rename(tmp_path / "t<script>x")
    run = tmp_path / f"r{IMAGE}"
    toyset.run(toyset.config(store, tmp_path / "t<script>x", epochs=2), run)
    against(run, SCRIPT)
    page = Page(report(run).path)
    safe(page)
    text = page.text()
    for shown in (IMAGE, "'><svg onload=alert(1)>", "{{ 7*7 }}", "a\\x07b\\u202egnp", "&lt;b&gt;", "<script>alert(1)"):
        assert shown in text or any(shown in image["alt"] for image in page.images()), shown
    assert SCRIPT in page.text("domains")
    assert f"against {SCRIPT}" in page.text("verdict")
    assert any(SCRIPT in attributes.get("title", "") for _, attributes in page.tags)
    assert "\u202e" not in page.raw
    assert "49" not in page.text("images").replace("0.49", "")[:200]


def against(run: Path, other: str = "raw") -> dict:
    """A comparison as `curate compare-baselines` leaves it, with made-up numbers."""
    of = {"curated": 91.25, other: 80.0}
    interval = {name: {"mean": mean, "half_width": 1.5, "images": 500} for name, mean in of.items()}
    less = {other: {"mean": 11.25, "half_width": 2.5, "images": 500, "verdict": "better"}}
    seconds = {name: {"curation": 1.0, "training": 2.0, "total": 3.0} for name in of}
    record = {
        "seeds": 3,
        "store": 48,
        "kept": 20,
        "readings": {"pool, 5 labels a class": {"interval": {"steps": interval}, "difference": {"steps": less}}},
        "steps": {"steps": dict.fromkeys(of, 240)},
        "images": {"steps": dict.fromkeys(of, 20)},
        "seconds": {"steps": seconds},
    }
    place = run / "evaluations" / "against" / "against.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(record))
    return record


def test_verdicts_stand_with_their_intervals(bdw, tmp_path):
    run = fresh(bdw[0], tmp_path / "run")
    assert "Nobody has asked yet" in bdw[2].text("verdict")
    record = against(run)
    made = report(run)
    text = Page(made.path).text("verdict")
    assert "as many steps of each; 3 seeds, 500 test images" in text
    assert "against raw better 11.25 ± 2.50 points" in text
    assert "curated 91.25 ± 1.50" in text
    assert made.numbers["comparisons"] == {"against": record}


@pytest.mark.parametrize("spoil", ["cut", "older", "another", "empty"])
def test_a_comparison_that_cannot_be_read_is_said_and_the_page_stands(bdw, tmp_path, spoil):
    run = fresh(bdw[0], tmp_path / "run")
    record, place = against(run), run / "evaluations" / "against" / "against.json"
    older = {name: value for name, value in record.items() if name != "readings"}
    spoilt = {"cut": json.dumps(record)[:99], "older": json.dumps(older), "another": "[1]"}
    place.write_text(spoilt.get(spoil, json.dumps(record | {"steps": {}})))
    made = report(run)
    assert "is damaged, or of an earlier release" in Page(made.path).text("verdict")
    assert made.numbers["comparisons"] == {}


def test_a_store_that_is_gone_leaves_a_line_in_place_of_pictures(bdw, tmp_path, data):
    moved = toyset.make_data(tmp_path / "moved", 48)
    toyset.run_on(moved, tmp_path / "run", epochs=1)
    before = report(tmp_path / "run").numbers
    (moved / "store").rename(moved / "elsewhere")
    made = report(tmp_path / "run")
    page = Page(made.path)
    assert not page.images()
    assert "No pictures" in page.text("images")
    assert str(moved / "store") in page.text("images")
    assert "Not looked at" in page.text("copies")
    same = ("kept", "pruned", "images", "rule", "epochs", "seconds", "galleries")
    assert {name: made.numbers[name] for name in same} == {name: before[name] for name in same}


def test_a_store_that_has_changed_shows_no_wrong_pictures(bdw, tmp_path):
    moved = toyset.make_data(tmp_path / "moved", 48)
    toyset.run_on(moved, tmp_path / "run", epochs=1)
    shutil.rmtree(moved / "store")
    toyset.make_store(moved / "store", 48, first=100)
    (tmp_path / "run" / "index.parquet").unlink()
    page = Page(report(tmp_path / "run").path)
    assert "is no longer the store of this run" in page.text("images")
    assert not page.images()


def test_a_target_that_is_gone_and_another_one(bdw, data, tmp_path):
    made = report(bdw[0], tmp_path / "a.html", str(tmp_path / "no<where"))
    assert made.numbers["copies"] is None
    assert "Not looked at" in Page(made.path).text("copies")
    (tmp_path / "photos").mkdir()
    Image.fromarray(toyset.digits()[0][5]).save(tmp_path / "photos" / "five.png")
    made = report(bdw[0], tmp_path / "b.html", str(tmp_path / "photos"))
    assert made.numbers["copies"]["target"] == {"train": 1}
    assert "no test images" in Page(made.path).text("copies")
    assert f"--target {tmp_path / 'photos'}" in Page(made.path).text("next")


def test_an_unfinished_run_says_so_and_how_it_goes_on(bdw, tmp_path, data):
    run = fresh(bdw[0], tmp_path / "run")
    for place in ("curated", "weights.parquet", "ledger/epoch=0003", "manifests/epoch=0003.parquet"):
        (shutil.rmtree if (run / place).is_dir() else Path.unlink)(run / place)
    (run / "metrics.jsonl").write_text("".join((run / "metrics.jsonl").read_text().splitlines(True)[:2]))
    made = report(run)
    page = Page(made.path)
    assert made.numbers["finished"] is False
    assert made.numbers["kept"] == len(toyset.manifest(run, 2))
    assert "not finished. What follows is how it stood after epoch 2 of 3" in page.text()
    (line,) = re.findall(r"curate run --config \S+ --out \S+", page.text("next"))
    shutil.rmtree(run / "checkpoints" / "epoch=0003")
    done = CliRunner().invoke(command, line.split()[1:])
    assert done.exit_code == 0, done.output
    whole, again = (toyset.rows_of(path / "weights.parquet", "row", "mean", "kept") for path in (bdw[0], run))
    assert whole == again


@pytest.mark.parametrize("gone", ["curated/curated.json", "weights.parquet"])
def test_a_run_is_finished_when_all_is_there(bdw, tmp_path, gone):
    run = fresh(bdw[0], tmp_path / "run")
    (run / gone).unlink()
    made = report(run)
    assert made.numbers["finished"] is False
    assert made.numbers["kept"] == bdw[1].numbers["kept"]
    assert "This run is not finished" in Page(made.path).text()


def test_a_choice_of_too_few_is_shown_though_the_run_failed(data, tmp_path):
    """What a selector found out stands in its ledger, before it says that it keeps too little."""
    with pytest.raises(CurateError, match="keeps 1 of"):
        toyset.run_on(data, tmp_path / "run", method="random", keep=1.0)
    made = report(tmp_path / "run")
    page = Page(made.path)
    safe(page)
    assert (made.numbers["finished"], made.numbers["kept"]) == (False, 1)
    assert "1 of 99 images" in page.text("kept")


def test_no_public_name_is_that_of_a_folder():
    """`curate.report` is the call: a folder of that name would take its place once it is loaded."""
    folders = {path.parent.name for path in Path(curate.__file__).parent.glob("*/__init__.py")}
    assert not folders & set(curate.__all__)


def test_a_run_of_no_epoch_and_a_plain_pretraining(bdw, tmp_path, data):
    (tmp_path / "begun").mkdir()
    shutil.copy(bdw[0] / "run.json", tmp_path / "begun")
    page = Page(report(tmp_path / "begun").path)
    safe(page)
    assert "No epoch is done yet" in page.text()
    small = {name: toyset.FAST[name] for name in ("pretext", "size", "crop", "hidden", "batch", "workers")}
    net = curate.pretrain(data / "store", out=tmp_path / "net", epochs=2, **small)
    made = curate.report(net)
    page = Page(made.path)
    safe(page)
    assert made.numbers["finished"] is True
    assert "curate evaluate" in page.text("next")
    assert f"{toyset.metrics(tmp_path / 'net')[1]['pretext_loss']:.3f}" in page.text("costs")


def test_nothing_else_is_written_over_and_no_run_is_said(bdw, tmp_path):
    (tmp_path / "notes.html").write_text("<!doctype html>mine")
    for out, why in (("notes.html", "no report of curate's"), (".", "is a folder")):
        with pytest.raises(Misuse, match=why):
            report(bdw[0], tmp_path / out)
    assert (tmp_path / "notes.html").read_text() == "<!doctype html>mine"
    with pytest.raises(CurateError, match=r"no run\.json in it"):
        report(tmp_path)


def test_a_pipe_in_the_pages_place_is_not_waited_for(bdw, tmp_path):
    os.mkfifo(tmp_path / "page.html")
    with pytest.raises(Misuse, match="no report of curate's"):
        report(bdw[0], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("run.json", lambda run: run["configuration"].pop("seed"), r"run\.json: is not as it was written .*seed"),
        ("run.json", lambda run: run["configuration"].update(index=3), r"run\.json: is not as it was written .*index"),
        ("metrics.jsonl", lambda line: line.update(meta_loss="low"), r"metrics\.jsonl: line 1 is damaged"),
    ],
)
def test_a_value_of_another_type_is_one_line(bdw, tmp_path, name, change, why):
    shutil.copytree(bdw[0], tmp_path / "run")
    path = tmp_path / "run" / name
    first, *others = [path.read_text()] if name == "run.json" else path.read_text().splitlines()
    document = json.loads(first)
    change(document)
    path.write_text("\n".join([json.dumps(document), *others]))
    with pytest.raises(CurateError, match=why):
        report(tmp_path / "run")


def test_the_command_line_prints_where_it_is_and_the_numbers(bdw, tmp_path):
    told = CliRunner().invoke(command, ["report", str(bdw[0]), "--out", str(tmp_path / "x.html"), "--json"])
    assert told.exit_code == 0, told.output
    said = json.loads(told.stdout)
    assert said == {"path": str(tmp_path / "x.html"), **bdw[1].numbers}
    plain = CliRunner().invoke(command, ["report", str(bdw[0]), "--out", str(tmp_path / "x.html")])
    assert plain.stdout == f"{tmp_path / 'x.html'}\n"


def test_without_jinja_one_line_says_what_to_install(bdw, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(CurateError, match=r"pip install 'curate-bdw\[report\]'"):
        report(bdw[0], tmp_path / "x.html")
    assert not list(tmp_path.iterdir())
