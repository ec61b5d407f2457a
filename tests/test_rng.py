"""Keys of random numbers: by what they are for, and by nothing else."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.rng import generator, key

KEYS = st.tuples(
    st.integers(0, 2**63 - 1), st.sampled_from(["beta", "view", "episode"]), st.integers(0, 99), st.integers(0, 10**7)
)


@settings(deadline=None)
@given(KEYS)
def test_a_key_is_a_63_bit_number(of):
    """What torch's generators and JSON both hold."""
    assert 0 <= key(*of) < 2**63


@settings(deadline=None)
@given(KEYS, KEYS)
def test_different_purposes_have_different_keys(one, two):
    """And the same have the same; (1, 12) and (11, 2) must not run together."""
    assert (key(*one) == key(*two)) == (one == two)


def test_epoch_and_step_do_not_run_together():
    """The digits of one never make up the other."""
    assert key(1, "view", 1, 12) != key(1, "view", 11, 2)
    assert key(1, "view", 12) != key(11, "view", 2)


def test_keys_stay_what_they_are():
    """A release that changed them would break the resume of every run; value by hashlib.blake2b, halved, by hand."""
    import hashlib

    digest = hashlib.blake2b(b"3/beta/2/0", digest_size=8).digest()
    assert key(3, "beta", 2) == int.from_bytes(digest, "little") // 2


def test_draws_depend_on_the_key_alone():
    """Not on the global generator, which is left as it was, nor on the order of calls."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = torch.rand(3, generator=generator(0, "view", 1, 2))
    torch.manual_seed(2)
    assert torch.equal(torch.rand(3, generator=generator(0, "view", 1, 2)), first)
    torch.set_rng_state(before)
    generator(0, "view", 1, 2)
    assert torch.equal(torch.get_rng_state(), before)
