"""A simulation must decide everything that is drawn, and a broker in earnest nothing that others could guess."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from flintmq.core.io import chance


def drawn() -> tuple[int, int, bytes]:
    return chance.below(1 << 40), chance.bits(64), chance.secret_bytes(16)


def test_the_seed_determines_every_random_value() -> None:
    with chance.decided_by(random.Random(7)):
        first = drawn()
    with chance.decided_by(random.Random(7)):
        assert drawn() == first
    with chance.decided_by(random.Random(8)):
        assert drawn() != first


def test_a_seed_set_in_a_thread_affects_no_random_values_of_another_thread() -> None:
    """A process can have brokers and clients besides a simulation."""
    with chance.decided_by(random.Random(7)):
        first = [drawn(), drawn()]
    with ThreadPoolExecutor(1) as other, chance.decided_by(random.Random(7)):
        assert drawn() == first[0]
        assert other.submit(drawn).result() not in first
        assert drawn() == first[1]


def test_random_values_are_unpredictable_again_after_a_seeded_block() -> None:
    def fail() -> None:
        with chance.decided_by(random.Random(7)):
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    random.seed(7)
    first = chance.secret_bytes(16)
    random.seed(7)
    assert chance.secret_bytes(16) != first, "the secret follows from a seed"


def test_random_values_stay_within_their_bounds() -> None:
    assert {chance.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(chance.bits(4) < 16 for _ in range(200))
    assert len(chance.secret_bytes(5)) == 5
