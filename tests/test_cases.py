"""Every case of the shared material ends as written beside it, within a memory and a time limit.

Each case is indexed with ``check`` in a process of its own, because some are hostile on purpose.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no test material at {CASES}")

GIB = 1 << 30
SECONDS = 60
#: What is run for a folder or a list of files; its output is one JSON object a line, in order.
PROGRAM = """
import json, sys
from shards.errors import NotShards
from shards.indexing.index import build
from shards.indexing.members import shard_members_by_key
from shards.io.shard_set import locate, resolve
def fields(index):
    found = {}
    for shard in index.shards:
        for key, parts in shard_members_by_key(locate(index.root, shard.path), shard.path).items():
            found[key] = sorted({*found.get(key, ()), *(part.extension for part, _ in parts)})
    return found
for line in sys.stdin:
    try:
        index, report = build(resolve(line.rstrip("\\n")), check=True)
    except NotShards as error:
        print(json.dumps({"refused": str(error)}))
    else:
        print(json.dumps({"keys": index.table["key"].to_pylist(), "fields": fields(index), **report.record()}))
"""


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (6 * GIB, 6 * GIB))


def index_all(specs: list[Path]) -> list[dict[str, Any]]:
    """Index each of ``specs`` in one limited process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        input="".join(f"{spec}\n" for spec in specs),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the library talks"
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds(outcome: dict[str, Any]) -> list[str]:
    return [fault["kind"] for fault in outcome["faults"]]


HAND_MADE = json.loads((CASES / "cases.json").read_text("ascii"))["cases"] if CASES.is_dir() else []


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, CASES / "make_cases.py", folder], check=True, capture_output=True)
    names = [case["id"] for case in HAND_MADE]
    outcomes = index_all([folder / name for name in names])
    return {name: (folder / name, outcome) for name, outcome in zip(names, outcomes, strict=True)}


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case["id"])
def test_a_hand_made_case_ends_as_cases_json_says(
    case: dict[str, Any], hand_made: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    _, outcome = hand_made[case["id"]]
    expect = case["expect"]
    if expect["outcome"] == "refuse":
        assert case["files"][0] in outcome["refused"]
        return
    # This one lists its keys in the order in which it writes its shards; a folder is read in the order of their names.
    in_order = sorted if case["id"] == "brace_in_shard_name" else list
    assert in_order(outcome["keys"]) == in_order(expect["keys"])
    assert outcome["samples"] == expect["samples"]
    if expect["images"] is not None:
        assert sum(outcome["images"].values()) == expect["images"]
    if expect["fields"] is not None:
        assert outcome["fields"] == {key: sorted(fields) for key, fields in expect["fields"].items()}
    if expect["outcome"] == "read":
        assert outcome["faults"] == []
    else:
        assert expect["error_class"] in kinds(outcome)


def test_a_refused_case_says_why(hand_made: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    assert "0 bytes, not a tar archive" in hand_made["zero_byte_tar"][1]["refused"]
    assert "a zip file" in hand_made["zip_named_tar"][1]["refused"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("truncated_in_body", "truncated in 000002.jpg (700 of 2241 bytes)"),
        ("truncated_in_header", "ends inside a header at byte 12800"),
        ("huge_size_base256", "truncated in 1.jpg (4256 of 9663676416 bytes)"),
        ("bad_checksum_in_the_middle", "bad header checksum at byte 6656"),
        ("concatenated_tars", "6 more members"),
        ("same_key_two_shards", "key '000' occurs in 00000.tar and 00001.tar"),
        ("gap_in_numbering", "00001.tar does not exist"),
        ("duplicate_member_adjacent", "duplicate member '000.jpg' (members 0 and 2 of sample '000')"),
        ("hard_links", "1.jpg is a hard link to 0.jpg"),
        ("symbolic_links", "2.jpg is a symbolic link to gone.jpg"),
        ("html_as_jpg", "2.jpg: not an image (text/html)"),
        ("bomb_in_shard", "0.gif: Image size (4364696535 pixels) exceeds"),
    ],
)
def test_a_report_names_the_member_and_the_numbers(
    name: str, words: str, hand_made: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    assert any(words in fault["detail"] for fault in hand_made[name][1]["faults"]), hand_made[name][1]["faults"]


def test_what_holds_for_all_samples_of_a_shard_is_said_once(
    hand_made: dict[str, tuple[Path, dict[str, Any]]],
) -> None:
    assert kinds(hand_made["non_image_shard"][1]) == ["no-image"]
    assert kinds(hand_made["left_right_images"][1]) == ["several-images"]


def test_a_pattern_reports_the_shard_that_is_not_there_and_a_literal_name_wins(
    hand_made: dict[str, tuple[Path, dict[str, Any]]],
) -> None:
    gap = hand_made["gap_in_numbering"][0] / "{00000..00003}.tar"
    literal = hand_made["brace_in_shard_name"][0] / "shard-{000..001}.tar"
    with_gap, by_name = index_all([gap, literal])
    assert [(fault["kind"], fault["shard"]) for fault in with_gap["faults"]] == [("missing-shard", "00001.tar")]
    assert by_name["keys"] == ["lit"]


#: Samples, images that decode, and kinds of faults, by the README's table.
REAL: dict[str, tuple[int, int, set[str]]] = {
    "clipretrieval_image1.tar": (4, 4, set()),
    "clipretrieval_image3.tar": (2, 2, set()),
    "dali_mnist_devel-0.tar": (1000, 1000, set()),
    "nemo_00000_paxuid.tar": (1, 1, set()),
    "nemo_00000_minimal.tar": (1, 1, set()),
    "ais_mnist-3.tar": (3, 0, {"not-an-image"}),
    "wds_sample.tgz": (90, 90, set()),
    "wds_mpdata.tar": (100, 0, {"no-image"}),
    "wenet_shards_000000000.tar": (2, 0, {"no-image"}),
    "lhotse_recording.000000.tar": (2, 0, {"no-image"}),
    "torchdata_256_ObjectCategories.tar": (6, 6, set()),
    "pillow_hopper.tar": (1, 2, {"several-images"}),
    "hf_arch1.tar": (2, 1, {"no-image"}),
    # Its end is sound (16 zero blocks); what is told is that nothing in it is a sample.
    "tarrs_missing_last_header.tar": (0, 0, {"no-extension", "empty-shard"}),
    "tarrs_spaces.tar": (0, 0, {"no-extension", "empty-shard"}),
    "tarrs_7z_long_path.tar": (1, 0, {"no-image"}),
    "go_hardlink.tar": (2, 0, {"link-member", "no-image"}),
    "go_sparse-formats.tar": (2, 0, {"sparse-member", "no-extension", "no-image"}),
    "go_pax-global-records.tar": (0, 0, {"no-extension", "empty-shard"}),
    "tarstream_incomplete.tar": (1, 0, {"truncated", "no-image"}),
    "tarstream_base-256-size.tar": (1, 0, {"no-image"}),
    "tarstream_latin1.tar": (1, 0, {"odd-name", "no-image"}),
    "tarstream_types.tar": (0, 0, {"link-member", "no-extension", "empty-shard"}),
}
REFUSED = {"dali_lfs_pointer.tar": "Git LFS pointer", "go_neg-size.tar": "no header in it"}


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, Any]]:
    names = [*REAL, *REFUSED]
    return dict(zip(names, index_all([CASES / "shards" / name for name in names]), strict=True))


def test_the_tables_name_every_real_shard() -> None:
    assert {path.name for path in (CASES / "shards").iterdir()} == REAL.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", REAL)
def test_a_real_shard_ends_as_its_readme_says(name: str, real: dict[str, dict[str, Any]]) -> None:
    outcome = real[name]
    found = outcome["samples"], sum(outcome["images"].values()), set(kinds(outcome))
    assert found == REAL[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_no_tar_is_refused_by_name(name: str, real: dict[str, dict[str, Any]]) -> None:
    assert name in real[name]["refused"]
    assert REFUSED[name] in real[name]["refused"]


def test_keys_of_real_shards_are_those_of_the_readme(real: dict[str, dict[str, Any]]) -> None:
    assert real["clipretrieval_image1.tar"]["keys"] == ["123_456", "208_495", "321_421", "389_535"]
    assert "256_ObjectCategories/257.clutter/257_0002" in real["torchdata_256_ObjectCategories.tar"]["keys"]
    assert real["tarstream_latin1.tar"]["keys"] == ["En fran\\xe7ais, s'il vous pla\\xeet?"]
    assert real["wds_sample.tgz"]["keys"][:3] == ["10", "11", "12"]


def test_keys_in_two_shards_are_told(tmp_path: Path) -> None:
    names = tmp_path / "list.txt"
    names.write_text("".join(f"{CASES}/shards/clipretrieval_image{n}.tar\n" for n in (1, 3)))
    (outcome,) = index_all([names])
    twice = [fault["key"] for fault in outcome["faults"] if fault["kind"] == "duplicate-key"]
    assert twice == ["123_456", "208_495"]
    assert outcome["samples"] == 6  # 4 + 2, none joined
