"""What the tests of transactions share: a broker's transactions over a log in memory."""

from __future__ import annotations

import pytest

from flintmq.tests.support.transactions import TransactionBench


@pytest.fixture
def bench() -> TransactionBench:
    return TransactionBench()


@pytest.fixture(name="make_bench")
def make_bench_fixture() -> type[TransactionBench]:
    return TransactionBench
