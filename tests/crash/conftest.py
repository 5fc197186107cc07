"""What is crashed: the three flush strategies, driven by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from flintmq.config.sections.store import CommitRealTimeSection, FlushRealTimeSection, GroupCommitSection
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.flush.group_commit import GroupCommit
from flintmq.flush.real_time import CommitRealTime, FlushRealTime
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.tests.support.crash_run import CONFIG, Kind
from flintmq.tests.support.effort import first

GROUP_COMMIT = Kind(FlushStrategy("group_commit", GroupCommit, synchronous=True), GroupCommitSection())
FLUSH_REAL_TIME = Kind(
    FlushStrategy("flush_real_time", FlushRealTime), FlushRealTimeSection(least_pages=0), acknowledges="wrote"
)
COMMIT_REAL_TIME = Kind(
    FlushStrategy("commit_real_time", CommitRealTime, uses_pool=True),
    CommitRealTimeSection(least_pages=0, flush_least_pages=0),
    pool=lambda: AnonymousBufferPool(2, CONFIG.store.commit_log_file_bytes),
    acknowledges="appended",
)
KINDS = [GROUP_COMMIT, FLUSH_REAL_TIME, COMMIT_REAL_TIME]


@pytest.fixture(params=first([GROUP_COMMIT], KINDS), ids=lambda kind: kind.strategy.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each strategy; by default the one that promises most."""
    found = request.param
    assert isinstance(found, Kind)
    return found


@pytest.fixture(scope="session")
def kinds() -> list[Kind]:
    """All strategies, for tests that draw one."""
    return KINDS


@pytest.fixture
def group_commit() -> Kind:
    """The strategy that promises most."""
    return GROUP_COMMIT


@pytest.fixture
def flush_real_time() -> Kind:
    return FLUSH_REAL_TIME


@pytest.fixture
def crash_states(request: pytest.FixtureRequest, effort: Callable[[int, int], int]) -> int:
    """How many crash states the whole suite is to try (``--crash-states``)."""
    return int(request.config.getoption("--crash-states") or effort(900, 6_000))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Where the scripts begin; printed where a test fails."""
    return int(request.config.getoption("--crash-seed"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of recoveries, each with a warning that is meant for an operator."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
