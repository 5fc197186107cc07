"""The built-in strategies keep every rule that plugin authors' strategies are held to."""

from __future__ import annotations

import attrs

from flintmq.config.sections.models import CommitRealTimeSection, FlushRealTimeSection, GroupCommitSection
from flintmq.flush.group_commit import GroupCommit
from flintmq.flush.real_time import CommitRealTime, FlushRealTime
from flintmq.flush.transient_store_pool import AnonymousBufferPool
from flintmq.testing.flush_kit import check_flush_service
from flintmq.testing.pool_kit import check_transient_store_pool

FAST_REAL_TIME = FlushRealTimeSection(interval_ms=2, least_pages=4, thorough_interval_ms=5)


def test_group_commit_passes_the_test_kit_for_flush_services() -> None:
    check_flush_service(
        GroupCommit,
        settings=GroupCommitSection(sync_flush_timeout_ms=100, interval_ms=2),
        synchronous=True,
        timeout_s=0.1,
    )


def test_the_real_time_flush_service_with_a_timed_interval_passes_the_test_kit_for_flush_services() -> None:
    check_flush_service(FlushRealTime, settings=FAST_REAL_TIME, synchronous=False)


def test_a_real_time_flush_service_without_a_fixed_interval_passes_the_checks_for_flush_services() -> None:
    check_flush_service(FlushRealTime, settings=attrs.evolve(FAST_REAL_TIME, timed=False), synchronous=False)


def test_the_real_time_commit_service_passes_the_test_kit_for_flush_services() -> None:
    settings = CommitRealTimeSection(
        interval_ms=2,
        thorough_interval_ms=4,
        flush_interval_ms=2,
        flush_least_pages=4,
        flush_thorough_interval_ms=5,
    )
    check_flush_service(CommitRealTime, settings=settings, synchronous=False, pool_factory=AnonymousBufferPool)


def test_the_built_in_transient_store_pool_passes_the_test_kit_for_plugins() -> None:
    check_transient_store_pool(AnonymousBufferPool)
