"""What is packed by a table: paths, absolute and relative, and URLs, in its order, with what it says of them."""

from __future__ import annotations

import functools
import http.server
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from image_makers import png, write
from shard_makers import indexed, read_set

from curate.cli import curate
from shards.errors import Misuse, NotShards, ShardError
from shards.io import remote
from shards.packing import checks
from shards.packing.imagefolder import pack_folder, pack_target
from shards.packing.paths_table import list_table


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A server on this machine of two pictures and a page."""
    folder = write(tmp_path / "www", {"a/1.png": png(1), "picture": png(2), "page.jpg": b"<html>"})
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def table(tmp_path: Path, text: str) -> Path:
    return write(tmp_path / "lists", {"t.csv": text.encode()}) / "t.csv"


def test_paths_in_the_order_of_the_table(tmp_path: Path) -> None:
    """Relative to its folder; what else a row says goes along."""
    write(tmp_path / "lists", {"b.png": png(1), "d/a.png": png(2)})
    write(tmp_path / "else", {"c.png": png(3)})
    rows = f"file,text,n\nd/a.png,two,\nb.png,one,7\n{tmp_path}/else/c.png,,\n../else/c.png,again,\n"
    report = pack_folder(table(tmp_path, rows), tmp_path / "out")
    absolute = f"{tmp_path}/else/c"[1:]
    members = read_set(tmp_path / "out")
    assert [name for name, _ in members if name.endswith("png")] == [
        "d/a.png",
        "b.png",
        f"{absolute}.png",
        "else/c.png",
    ]
    found = dict(members)
    assert found["b.txt"] == b"one"
    assert json.loads(found["b.json"]) == {"text": "one", "n": "7"}
    assert f"{absolute}.json" not in found
    assert report.samples == {"": 4}


def test_urls_are_fetched(tmp_path: Path, served: str) -> None:
    """Twice where they stand twice; a name without a suffix is an image by its bytes; nothing is left lying about."""
    rows = [
        f"{served}/a/1.png?w=3",
        f"{served}/picture",
        f"{served}/a/1.png?w=3",
        f"{served}/gone.png",
        f"{served}/page.jpg",
    ]
    pq.write_table(pa.table({"url": rows, "caption": [None, "dark", None, "x", "y"]}), tmp_path / "u.parquet")
    report = pack_folder(tmp_path / "u.parquet", tmp_path / "out", allow_missing=True)
    host = served.removeprefix("http://")
    assert dict(read_set(tmp_path / "out")) == {
        f"{host}/a/1.png": png(1),
        f"{host}/picture.image": png(2),
        f"{host}/picture.json": b'{"caption": "dark"}',
        f"{host}/picture.txt": b"dark",
        f"{host}/a/1_2.png": png(1),
    }
    assert [fault.shard for fault in report.faults] == rows[3:]
    assert "cannot be opened (HTTP Error 404: File not found)" in report.faults[0].detail
    assert [fault.kind for fault in report.faults] == ["missing-image", "not-an-image"]
    assert report.text() == "packed 3 images; left out 2 (1 of them cannot be had), ignored 0 other files"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".curate", "000000.tar"]
    names = pq.read_table(tmp_path / "out" / ".curate" / "names.parquet").to_pylist()
    assert [(row["file"], row["bytes"]) for row in names] == [
        (rows[0], len(png(1))),
        (rows[1], len(png(2))),
        (rows[2], len(png(1))),
    ]
    assert indexed(tmp_path / "out").table["image"].to_pylist() == ["png", "image", "png"]


def test_a_server_that_stumbles_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times; one that says no, once."""
    asked: list[str] = []

    @contextmanager
    def open_url(url: str) -> Iterator[io.BytesIO]:
        asked.append(url)
        if url.endswith("no.png"):
            raise NotShards("cannot be opened (HTTP Error 403: Forbidden)", shard=url)
        if asked.count(url) < (3 if url.endswith("slow.png") else 9):
            raise NotShards("the connection broke (timed out)", shard=url)
        yield io.BytesIO(png(5))

    monkeypatch.setattr(remote, "open_url", open_url)
    urls = [f"http://h/{name}.png" for name in ("slow", "no", "dead")]
    report = pack_folder(table(tmp_path, "url\n" + "\n".join(urls)), tmp_path / "out", allow_missing=True)
    assert read_set(tmp_path / "out") == [("h/slow.png", png(5))]
    assert [asked.count(url) for url in urls] == [3, 1, 3]
    assert [fault.detail for fault in report.faults] == [
        "http://h/no.png: cannot be opened (HTTP Error 403: Forbidden)",
        "http://h/dead.png: the connection broke (timed out)",
    ]


@pytest.mark.parametrize("target", [False, True])
def test_what_cannot_be_had_stops_the_packing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: bool
) -> None:
    """Exit 0 with a hole that nobody noticed; now one line, what was fetched stays, and the same call goes on."""
    asked: list[str] = []
    broken = {"http://h/2.png"}

    @contextmanager
    def open_url(url: str) -> Iterator[io.BytesIO]:
        asked.append(url)
        if url in broken:
            raise NotShards("the connection broke (timed out)", shard=url)
        yield io.BytesIO(png(int(url[9])))

    monkeypatch.setattr(remote, "open_url", open_url)
    monkeypatch.setattr(checks, "IMAGES", 2)
    source = table(tmp_path, "url,label\n" + "".join(f"http://h/{n}.png,{'ab'[n % 2]}\n" for n in range(6)))
    out = tmp_path / "out"
    packing = ["pack", "imagefolder", str(source), "--out", str(out), "--workers", "1", *["--target"] * target]
    with pytest.raises(ShardError) as caught:
        CliRunner().invoke(curate, packing, catch_exceptions=False)
    assert str(caught.value) == (
        "1 of 2 images that were looked at cannot be had, the first: http://h/2.png: the connection broke (timed out); "
        "the same command tries again; --allow-missing goes on without them"
    )
    assert caught.value.exit_code == 1
    assert not out.exists()
    assert asked.count("http://h/0.png") == 1
    broken.clear()
    assert CliRunner().invoke(curate, packing, catch_exceptions=False).exit_code == 0
    assert [asked.count(f"http://h/{n}.png") for n in range(6)] == [1, 1, 4, 1, 1, 1]
    assert len(read_set(out / "train" if target else out)) > 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_file_url_is_a_path_of_this_machine(tmp_path: Path) -> None:
    write(tmp_path / "www", {"a b.png": png(1)})
    rows = f"file\nfile://{tmp_path}/www/a b.png\n"
    pack_folder(table(tmp_path, rows), tmp_path / "out")
    assert [body for _, body in read_set(tmp_path / "out")] == [png(1)]


def test_a_table_tells_labels_too(tmp_path: Path, served: str) -> None:
    rows = f"file,label,split\n{served}/a/1.png,cat,train\n{served}/picture,dog,train\n{served}/a/1.png?2,dog,test\n"
    report = pack_target(table(tmp_path, rows), tmp_path / "out")
    assert (report.classes, report.samples) == (("cat", "dog"), {"train": 2, "val": 0, "test": 1})
    found = dict(read_set(tmp_path / "out" / "test"))
    host = served.removeprefix("http://")
    assert found[f"{host}/a/1_2.cls"] == b"1"
    assert json.loads(found[f"{host}/a/1_2.json"]) == {"label": "dog", "split": "test"}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (
            "picture\na.png\n",
            ShardError,
            r"t\.csv: no table of images \(expected file, found picture\); write a column",
        ),
        ("file\n", ShardError, r"no table of images \(expected file, found no row\)"),
        ("file,n\n,1\n", ShardError, "row 1 names no image"),
        ("file\npipe:touch ran\n", Misuse, "names a command"),
        ("file\nhttp://a b/c.png\n", Misuse, "a URL with a blank"),
        ("file\ngone.png\n", ShardError, "1 of 1 images that were looked at cannot be had, the first: gone.png: cann"),
        ("file\nftp://h/c.png\n", Misuse, r"a URL of this kind is not read \(expected a path, or http://, https://"),
        ("file\nsftp://h/c.png\n", Misuse, "a URL of this kind is not read"),
    ],
)
def test_a_table_of_no_images_is_one_line(tmp_path: Path, text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        pack_folder(table(tmp_path, text), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists"]


def test_the_command_takes_a_table_in_the_place_of_a_folder(tmp_path: Path) -> None:
    """One that is a target by its own labels; a folder that is none is one line, exit 1."""
    write(tmp_path / "lists", {f"{n}.png": png(n) for n in range(6)})
    source = table(tmp_path, "file,label\n" + "".join(f"{n}.png,{'ab'[n % 2]}\n" for n in range(6)))
    packing = ["pack", "imagefolder", str(source), "--target", "--out", str(tmp_path / "out"), "--workers", "1"]
    done = CliRunner().invoke(curate, packing, catch_exceptions=False)
    assert done.stdout == "packed 2 train, 2 val, 2 test in 2 classes; left out 0, ignored 0 other files\n"
    assert done.exit_code == 0
    flat = ["pack", "imagefolder", str(source.parent), "--target", "--out", str(tmp_path / "flat")]
    with pytest.raises(ShardError, match="no class folder"):
        CliRunner().invoke(curate, flat, catch_exceptions=False)


def test_another_file_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with pytest.raises(Misuse, match=r"not to be packed \(expected a folder, or a table of paths: .csv"):
        pack_folder(tmp_path / "photos.zip", tmp_path / "out")


def test_no_key_leaves_the_folder_it_is_unpacked_to(tmp_path: Path) -> None:
    files = ["/etc/x.png", "../../y.png", "a/../z.png", "https://h/../w.png", "https://h/"]
    listed = list_table(table(tmp_path, "file\n" + "\n".join(files) + "\n"))
    assert [entry.key for entry in listed.entries] == ["etc/x", "y", "a/z", "h/w", "h"]
