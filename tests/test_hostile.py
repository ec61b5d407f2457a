"""What a hostile or unlucky user does: damaged files on resume, part of a store, outputs onto inputs, odd options."""

from __future__ import annotations

import json
import os
import shutil
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset

from curate.config.defaults import resolve
from curate.config.schema import from_options, read_options
from curate.data.target import label_of
from curate.errors import CurateError, Misuse, NothingLeft
from curate.evaluation.evaluate import Protocol, evaluate
from curate.ledger import manifest, reprune
from curate.runs import checkpoint
from curate.runs.prepare import pick_device
from curate.runs.pretrain import pretrain
from curate.runs.provenance import read_run
from curate.runs.run import run
from shards.errors import Misuse as ShardMisuse
from shards.errors import ShardError, ShardsChanged
from shards.indexing import index, index_file
from shards.io import shard_set
from shards.io.atomic import atomic_write
from shards.io.json_files import parse_json
from shards.rewriting.exports import export_for
from shards.rewriting.marker import read_marker
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify
from shards.store import open_index

SLOW = {"lam": 0.3}
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A store and a target."""
    folder = tmp_path_factory.mktemp("hostile")
    toyset.make_store(folder / "store", 48)
    toyset.make_target(folder / "target", 30)
    return folder


@pytest.fixture(scope="module")
def cut(data):
    """A run that stopped in its third epoch, and is never written to again."""
    toyset.run_on(data, data / "cut", **SLOW)
    (checkpoint.folder(data / "cut", 3) / "state.json").unlink()
    shutil.rmtree(data / "cut" / "curated")
    return data / "cut"


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path, at=-9):
    held = bytearray(path.read_bytes())
    held[at] ^= 0x40
    path.write_bytes(held)


class TestResume:
    """What finished epochs left is held against its checksums before anything is removed or trained."""

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("checkpoints/epoch=0002/model.safetensors", "is damaged"),
            ("checkpoints/epoch=0002/optimizer.safetensors", "is damaged"),
            ("checkpoints/epoch=0002/weights.safetensors", "is damaged"),
            ("checkpoints/epoch=0002/state.json", "is damaged"),
            ("ledger/epoch=0001/part-0.parquet", "not the one its manifest names"),
        ],
    )
    def test_a_flipped_bit_is_noticed_and_nothing_is_removed(self, data, cut, tmp_path, name, message):
        """A flipped bit in a tensor reads as a number like any other."""
        out = tmp_path / "run"
        shutil.copytree(cut, out)
        flip(out / name)
        before = tree(out)
        with pytest.raises(CurateError, match=message):
            toyset.run_on(data, out, **SLOW)
        assert tree(out) == before

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("manifests/epoch=0001.parquet", "is missing"),
            ("ledger/epoch=0002/part-0.parquet", "is missing"),
            ("metrics.jsonl", "expected 2 lines, found 0"),
        ],
    )
    def test_what_is_lost_is_told_before_the_training(self, data, cut, tmp_path, name, message):
        """Not at the end, when the final ledger is put together."""
        out = tmp_path / "run"
        shutil.copytree(cut, out)
        (out / name).unlink()
        with pytest.raises(CurateError, match=message):
            toyset.run_on(data, out, **SLOW)

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"format": 1}', DEEP])
    def test_a_damaged_marker_or_line_or_run_json_is_one_line(self, data, cut, tmp_path, text):
        """No traceback, whatever stands there."""
        for name in ("checkpoints/epoch=0002/state.json", "metrics.jsonl", "run.json"):
            out = tmp_path / name.replace("/", "_")
            shutil.copytree(cut, out)
            (out / name).write_text(text + "\n")
            with pytest.raises(CurateError) as error:
                toyset.run_on(data, out, **SLOW)
            assert "\n" not in str(error.value)

    def test_other_names_beside_the_epochs_pass(self, data, cut, tmp_path):
        """A copy that somebody made, epoch=best, is no epoch."""
        out = tmp_path / "run"
        shutil.copytree(cut, out)
        shutil.copytree(checkpoint.folder(out, 1), out / "checkpoints" / "epoch=best")
        assert checkpoint.finished(out) == [1, 2]
        toyset.run_on(data, out, **SLOW)
        assert checkpoint.finished(out) == [1, 2, 3]

    def test_evaluation_notices_a_damaged_model(self, data, cut, tmp_path):
        """Of any epoch."""
        out = tmp_path / "run"
        shutil.copytree(cut, out)
        flip(checkpoint.folder(out, 1) / "model.safetensors")
        with pytest.raises(CurateError, match=r"epoch=0001/model\.safetensors: is damaged"):
            evaluate(out, str(data / "target"), Protocol(device="cpu"))


class TestPartOfAStore:
    """An index beside the shards describes its folder; what is named is what is used."""

    @pytest.fixture
    def store(self, tmp_path):
        store = toyset.make_store(tmp_path / "store", 48)
        index_file.save(toyset.indexed(store), store / "index.parquet")
        return store

    @pytest.mark.parametrize("spec", ["000002.tar", "{000001..000002}.tar", "000003.tar|000000.tar"])
    def test_only_the_named_shards_are_used(self, store, tmp_path, spec):
        """In the order in which they are named, as if there were no index."""
        if "|" in spec:
            (tmp_path / "list.txt").write_text("".join(f"{store / name}\n" for name in spec.split("|")))
            spec = tmp_path / "list.txt"
        else:
            spec = store / spec
        found, fresh = open_index(str(spec)), index.build(shard_set.resolve(spec))[0]
        assert found.fingerprint == fresh.fingerprint
        assert found.table.to_pylist() == fresh.table.to_pylist()
        assert found.shard_numbers.tolist() == fresh.shard_numbers.tolist()

    def test_a_shard_that_came_later_is_no_secret(self, store):
        """An index without it would leave it out in silence."""
        shutil.copy(store / "000000.tar", store / "000009.tar")
        with pytest.raises(ShardsChanged, match=r"000009\.tar: is not in the index"):
            open_index(str(store))
        (store / "000009.tar").write_bytes(b"PK\x03\x04")  # left out by --skip-bad-shards
        assert len(open_index(str(store))) == 48

    def test_a_shard_that_is_gone_is_noticed(self, store):
        """The last one leaves no hole in the numbering."""
        (store / "000003.tar").unlink()
        with pytest.raises(ShardError, match=r"000003\.tar"):
            open_index(str(store))

    def test_another_image_than_the_indexs_is_refused(self, store):
        """The option would do nothing."""
        assert len(open_index(str(store), image="png")) == 48
        with pytest.raises(Misuse, match=r"--image jpg: the index .* takes png as the image"):
            open_index(str(store), image="jpg")


class TestIndexFile:
    """An index of any content is read or refused in one line."""

    @pytest.fixture
    def made(self, tmp_path):
        store = toyset.make_store(tmp_path / "store", 20)
        index_file.save(toyset.indexed(store), tmp_path / "made.parquet")
        return tmp_path / "made.parquet"

    def change(self, path, column=None, values=None, **footer):
        table = pq.read_table(path)
        held = json.loads(table.schema.metadata[b"curate.index"]) | footer
        if column is not None:
            at = table.column_names.index(column)
            table = table.drop_columns([column]) if values is None else table.set_column(at, column, values(table))
        pq.write_table(table.replace_schema_metadata({b"curate.index": json.dumps(held)}), path)

    @pytest.mark.parametrize("footer", [{"shards": [1]}, {"shards": None}, {"shards": [{"path": "a"}]}, {"shards": []}])
    def test_a_footer_of_another_form(self, made, footer):
        """Not only of another version."""
        self.change(made, **footer)
        with pytest.raises(ShardError, match="its content is no index"):
            index_file.load(made)

    @pytest.mark.parametrize(
        ("column", "values"),
        [
            ("offset", None),
            ("offset", lambda table: pa.array(["x"] * len(table))),
            ("image_offset", lambda table: pa.array([-5] * len(table))),
            ("image_size", lambda table: pa.array([2**50] * len(table))),
            ("key", lambda table: pa.nulls(len(table), pa.string())),
            ("shard", lambda table: pa.array(["other.tar"] * len(table))),
        ],
    )
    def test_columns_that_cannot_be(self, made, column, values):
        """Nothing is read from outside a shard, and no memory asked for that no shard fills."""
        self.change(made, column, values)
        with pytest.raises(ShardError, match="its content is no index"):
            index_file.load(made)

    def test_a_flipped_bit_in_a_page_is_noticed(self, made):
        """Pages carry checksums."""
        flip(made, 40)
        with pytest.raises(ShardError, match="not a whole Parquet file"):
            index_file.load(made)


class TestOutputsOntoInputs:
    """A slip in --out or --index destroys nothing."""

    def test_an_index_replaces_only_an_index(self, data, tmp_path):
        """Or what is left of one."""
        found = toyset.indexed(data / "store")
        for name in ("photo.jpg", "shard.tar"):
            (tmp_path / name).write_bytes(b"precious")
            with pytest.raises(ShardMisuse, match=rf"{name}: holds something else"):
                index_file.save(found, tmp_path / name)
            assert (tmp_path / name).read_bytes() == b"precious"
        pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
        with pytest.raises(ShardMisuse, match="holds something else"):
            index_file.save(found, tmp_path / "other.parquet")
        (tmp_path / "cut.parquet").write_bytes(b"PAR1")
        for _ in range(2):
            index_file.save(found, tmp_path / "cut.parquet")

    def test_a_manifest_replaces_only_a_manifest(self, data, tmp_path):
        """Not the run's own weights."""
        run = tmp_path / "run"
        toyset.run_on(data, run, epochs=1, **SLOW)
        before = (run / "weights.parquet").read_bytes()
        for precious in (run / "weights.parquet", run / "ledger/epoch=0001/part-0.parquet", run / "run.json"):
            with pytest.raises(Misuse, match="no manifest of curate's"):
                reprune.judge_again(run, reprune.Choice(share=0.5), precious)
        assert (run / "weights.parquet").read_bytes() == before
        for _ in range(2):
            reprune.judge_again(run, reprune.Choice(share=0.5), tmp_path / "half.parquet")

    def test_a_finished_set_that_lost_a_shard_is_not_called_finished(self, data, cut, tmp_path):
        """The same rewrite again would else succeed and leave the hole."""
        store, wanted = toyset.indexed(data / "store"), manifest.read(manifest.path_of(cut, 1))[0]
        summary = rewrite(store, wanted, tmp_path / "out")
        assert rewrite(store, wanted, tmp_path / "out") == summary
        (tmp_path / "out" / "000000.tar").unlink()
        with pytest.raises(ShardError, match=r"000000\.tar: damaged since it was finished .*found no file"):
            rewrite(store, wanted, tmp_path / "out")

    @pytest.mark.parametrize("text", ['{"version": 1}', '{"version": 1, "shards": [1]}', DEEP])
    def test_a_marker_of_another_form_is_refused(self, tmp_path, text):
        """In one line."""
        (tmp_path / "curated.json").write_text(text)
        with pytest.raises(ShardError, match=r"curated\.json: damaged"):
            read_marker(tmp_path)

    def test_a_full_disk_names_the_file(self, tmp_path):
        """The system says of a write only that there is no space."""
        with pytest.raises(OSError, match="No space left") as error, atomic_write(tmp_path / "file"):
            raise OSError(28, os.strerror(28))
        assert error.value.filename == str(tmp_path / "file")


class TestOptions:
    """Values that no run can be meant to have."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"eta": 1e300}, "--eta .*at most 1e30"),
            ({"lr": 10**400}, "--lr inf"),
            ({"lr_drops": (-3,)}, "--lr-drops .*from 1 on"),
            ({"lr_drops": (2**80,)}, "--lr-drops"),
            ({"hidden": 10**12}, "--hidden .*in 1..65536"),
            ({"width": 10**7}, "--width"),
            ({"shard_size": 10**19}, "--shard-size"),
            ({"workers": 10**6}, "--workers"),
        ],
    )
    def test_out_of_range(self, options, message):
        """Beyond what arithmetic, memory or the machine hold."""
        with pytest.raises(Misuse, match=message):
            resolve(from_options({"store": "s", "target": "t", **toyset.FAST, **options}), labelled=True)

    @pytest.mark.parametrize(
        "text", ['{"configuration": "x"}', '{"configuration": null}', '{"format": 9, "configuration": {}}', DEEP]
    )
    def test_a_configuration_file_of_another_form(self, tmp_path, text):
        """A run.json of a later release too."""
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(Misuse, match=r"c\.json: "):
            read_options(tmp_path / "c.json")

    @pytest.mark.parametrize("name", ["meta", "mps", "xla"])
    def test_devices_that_are_not_supported(self, name):
        """A meta tensor holds nothing, and mps is untried."""
        with pytest.raises(Misuse, match="expected auto, cpu, cuda"):
            pick_device(name)

    @pytest.mark.parametrize(
        ("spec", "message"),
        [("", "no shards are named"), (" \n", "no shards are named")],
    )
    def test_an_empty_name_is_not_the_folder_at_hand(self, spec, message):
        """As with --store "$UNSET"."""
        with pytest.raises(ShardMisuse, match=message):
            shard_set.resolve(spec)

    def test_a_set_from_several_places_is_refused(self, data, tmp_path):
        """Its shards share no root."""
        (tmp_path / "list.txt").write_text(f"{data}/store/000000.tar\nhttp://127.0.0.1:9/x.tar\n")
        with pytest.raises(ShardMisuse, match=r"several places \(expected one scheme, found http: and local paths"):
            shard_set.resolve(tmp_path / "list.txt")

    def test_a_command_without_a_slash_is_a_shard(self):
        """The root of a pipe is at least its scheme."""
        found = shard_set.resolve("pipe:make_shard", allow_pipe=True)
        assert (found.root, found.paths) == ("pipe:", ("make_shard",))


class TestStoresAndTargets:
    """Nothing to train on, or no labels, is said so."""

    def test_a_store_where_nothing_decodes(self, data, tmp_path):
        """Lower --lam would not help, and plain training would train nothing."""
        store = toyset.make_store(tmp_path / "store", 20, broken=dict.fromkeys(range(20), b"junk"))
        with pytest.raises(NothingLeft, match="only 0 of 20 samples have an image that decodes"):
            run(toyset.config(store, data / "target"), tmp_path / "run")
        options = {name: toyset.FAST[name] for name in ("pretext", "size", "crop", "hidden", "workers", "device")}
        with pytest.raises(NothingLeft, match="only 0 of 20"):
            pretrain(str(store), tmp_path / "net", {**options, "epochs": 1})

    @pytest.mark.parametrize(
        ("text", "label"),
        [(b" -7\n", -7), (b"1_0", None), (b"9" * 30, None), (b"1.0", None), (b"\xd9\xa3", None), (b"+1", None)],
    )
    def test_labels_are_ascii_digits(self, text, label):
        """As `curate index --check` has them, and no more than int64 holds."""
        assert label_of(text) == label

    def test_a_run_json_without_its_parts(self, tmp_path):
        """It is named."""
        (tmp_path / "run.json").write_text('{"format": 1}')
        with pytest.raises(CurateError, match=r"run\.json: is not as it was written"):
            read_run(tmp_path)

    def test_json_that_is_nested_too_deeply_is_no_json(self):
        """Every reader of ours takes a ValueError for damage."""
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(DEEP)


class TestExportsUnderVerify:
    """What our own export writes into a curated folder is no stranger there, unless it is of other shards."""

    @pytest.fixture
    def curated(self, data, tmp_path):
        store = toyset.indexed(data / "store")
        names_of = store.table.select(["shard", "key"]).slice(0, 20)
        rewrite(store, names_of, tmp_path / "out")
        return tmp_path / "out"

    def test_a_dali_index(self, curated):
        """Held against the shard."""
        export_for(curated, dali=True, datacomp=False)
        assert verify(curated) == []
        (curated / "000000.idx").write_text("v1.2 0\n")
        assert verify(curated) == ["000000.idx: is not the index of 000000.tar; export it again"]

    @pytest.mark.parametrize("held", [b"", b"junk", None])
    def test_uids_of_something_else(self, curated, held):
        """These shards have none at all."""
        if held is None:
            np.save(curated / "uids.npy", np.zeros(3))
        else:
            (curated / "uids.npy").write_bytes(held)
        assert [fault.split(";")[0] for fault in verify(curated)] == [
            "uids.npy: does not hold the uids of these shards"
        ]


def test_an_empty_image_at_the_end_of_a_piece_keeps_its_place(tmp_path):
    """Its body begins where the piece ends, and the next piece may begin there."""
    folder = tmp_path / "store"
    folder.mkdir()
    with tarfile.open(folder / "0.tar", "w") as file:
        for name in ("a.jpg", "b.jpg", "a.jpg"):
            file.addfile(tarfile.TarInfo(name))
    store = toyset.indexed(folder)
    rewrite(store, store.table.select(["shard", "key"]), tmp_path / "out", options=RewriteOptions(undecodable="keep"))
    made = index_file.load(tmp_path / "out" / "index.parquet").table
    assert made["image_offset"].to_pylist() == toyset.indexed(tmp_path / "out").table["image_offset"].to_pylist()
