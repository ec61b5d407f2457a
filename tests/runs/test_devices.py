"""What several devices cannot do is refused in one line; what torchrun says is taken as it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from curate.config.catalogue import PRETEXTS, PretextSpec
from curate.config.defaults import refuse_impossible
from curate.config.schema import from_options
from curate.errors import Misuse
from curate.runs import launch, prepare, torchrun
from curate.runs.provenance import identity


def config(**options):
    return from_options({"store": "s", "target": "t", **options})


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"method": "classifier"}, "--devices 2: --method classifier trains nothing; leave --devices out"),
        ({"signal": "preconditioned"}, "--devices 2: --signal preconditioned cannot share a batch among processes"),
        ({"devices": 0}, "--devices 0: must be in 1..4096"),
    ],
)
def test_refused(options, refusal):
    with pytest.raises(Misuse, match=refusal):
        refuse_impossible(config(**{"devices": 2, **options}))


def test_a_plug_in_says_that_it_can_share_a_batch(monkeypatch):
    """Its draws would be the same on every rank, and its loss counted as often as there are ranks."""
    own = PRETEXTS.spec("rotation")
    monkeypatch.setitem(PRETEXTS._rows, "mine", PretextSpec(own.factory, own.defaults, own.usual))
    with pytest.raises(Misuse, match="--devices 2: --pretext mine cannot share a batch among processes"):
        refuse_impossible(config(devices=2, pretext="mine"))
    refuse_impossible(config(devices=1, pretext="mine"))
    monkeypatch.setitem(PRETEXTS._rows, "mine", PretextSpec(own.factory, own.defaults, own.usual, spreads=True))
    refuse_impossible(config(devices=2, pretext="mine"))


def test_the_number_of_devices_is_no_part_of_the_id():
    """Whose images batch norm goes by is, where it is not the whole batch's."""
    one = identity(config(), "s", "t")
    assert identity(config(devices=8), "s", "t") == identity(config(sync_bn=True), "s", "t") == one
    assert identity(config(sync_bn=False), "s", "t") != one


class TestOnCuda:
    """Without one: what would be chosen on a machine with two."""

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def test_each_rank_has_its_own(self, monkeypatch):
        chosen = []
        monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
        monkeypatch.setattr(launch.ranks, "together", lambda *given: chosen.append(given) or torch.no_grad())
        with launch._joined("auto", "env://", 5, 8, 1):
            pass
        assert chosen == [1, ("cuda", "env://", 5, 8)]

    @pytest.mark.parametrize("device", ["auto", "cuda"])
    def test_more_ranks_than_devices(self, device):
        with pytest.raises(Misuse, match="--devices 3: this machine has 2 CUDA devices; give as many, or --device cpu"):
            launch._device_type(device, 2)
        assert launch._device_type("cpu", 2) == "cpu"

    def test_one_that_is_named(self):
        with pytest.raises(Misuse, match="--device cuda:1: names one device; give cuda where several train"):
            launch._device_type("cuda:1", 0)


def test_what_torchrun_says(monkeypatch):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a"}.items():
        monkeypatch.setenv(name, value)
    assert torchrun.place() is None  # something else's variables
    monkeypatch.setenv("MASTER_PORT", "1")
    assert torchrun.place() == (5, 8, 1)
    assert torchrun.asked(config()).machine.devices == 8
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert torchrun.place() is None
    assert torchrun.asked(config(devices=3)).machine.devices == 3


class FSDPModule(nn.Module):
    """What `torch.distributed.fsdp.fully_shard` makes of a module is of this name."""


def test_a_network_that_spreads_itself_is_refused():
    whole = type("Config", (), {"network": type("Network", (), {"network": "mine"})})
    with pytest.raises(Misuse, match="--network mine: is wrapped in FSDPModule; give the bare module"):
        prepare._refuse_wrapped(nn.Sequential(FSDPModule()), whole)
    prepare._refuse_wrapped(nn.Sequential(nn.Linear(1, 1)), whole)
