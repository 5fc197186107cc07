"""What the tests of transactions share: a broker's transactions over a log in memory."""

from __future__ import annotations

import hypothesis
import pytest

from flintmq.core.testing.transactions import TransactionBench

hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")


@pytest.fixture
def bench() -> TransactionBench:
    return TransactionBench()


@pytest.fixture(name="make_bench")
def make_bench_fixture() -> type[TransactionBench]:
    return TransactionBench
