"""Parts of a shard set: what they say, and that together they are the set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import Misuse
from shards.io.part import Part, parse


class TestShares:
    """Which shards a part has."""

    @given(count=st.integers(0, 200), of=st.integers(1, 50))
    def test_every_shard_is_in_one_part_and_parts_are_about_alike(self, count, of):
        """In order, so that parts one after the other are the set."""
        shares = [Part(number, of).share(count) for number in range(1, of + 1)]
        assert [place for share in shares for place in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1

    def test_there_may_be_more_parts_than_shards(self):
        """Some are empty then."""
        assert [len(Part(number, 4).share(2)) for number in (1, 2, 3, 4)] == [0, 1, 0, 1]


class TestWords:
    """What people and schedulers write."""

    def test_i_of_n(self):
        assert parse("3/16") == Part(3, 16)

    @pytest.mark.parametrize("text", ["", "3", "3/", "/4", "a/b", "3/4/5", "-1/4", "3 / 4", "٣/4", "store"])
    def test_what_is_none(self, text):
        with pytest.raises(Misuse, match=r"cannot be read \(expected I/N, such as 3/16, or slurm\)"):
            parse(text)

    @pytest.mark.parametrize("text", ["0/4", "5/4", "0/0"])
    def test_a_part_that_there_is_not(self, text):
        with pytest.raises(Misuse, match=rf"--part {text}: no such part"):
            parse(text)

    @pytest.mark.parametrize(
        ("array", "part"),
        [
            ({"ID": "3", "COUNT": "4", "MIN": "0"}, "4/4"),
            ({"ID": "3", "COUNT": "4", "MIN": "1"}, "3/4"),
            ({"ID": "18", "COUNT": "5", "MIN": "10", "STEP": "2"}, "5/5"),
            ({"ID": "0", "COUNT": "1"}, "1/1"),
        ],
    )
    def test_a_place_in_an_array(self, array, part):
        """Whatever it begins at, and counts by."""
        assert str(parse("slurm", {f"SLURM_ARRAY_TASK_{name}": value for name, value in array.items()})) == part

    def test_no_array(self):
        with pytest.raises(Misuse, match=r"SLURM_ARRAY_TASK_ID is not set to a number; start it by `sbatch --array`"):
            parse("slurm", {"SLURM_ARRAY_TASK_COUNT": "4"})

    def test_an_array_with_holes_has_no_such_part(self):
        """`sbatch --array=3,9` says that there are two tasks: nobody knows which of the shards are meant."""
        with pytest.raises(Misuse, match="no such part"):
            parse("slurm", {"SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "3"})
