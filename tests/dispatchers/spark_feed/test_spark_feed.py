"""The dispatcher that feeds Spark: it moves positions, takes each record once, and keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import RecordBatch, requests_of
from flintmq.dispatchers.spark_feed.spark_feed import SparkFeed
from flintmq.testing.dispatcher_kit import check_dispatcher, sample_requests
from flintmq.testing.store import batch, message, opened


class Publisher:
    def __init__(self) -> None:
        self.touched = 0
        self.closed = 0

    def touch(self) -> None:
        self.touched += 1

    def close(self) -> None:
        self.closed += 1


class Landing:
    def __init__(self) -> None:
        self.offered: list[int] = []
        self.missed: list[tuple[int, int]] = []
        self.landed: int | None = None
        self.closed = 0

    def start(self) -> None: ...

    def runtime_info(self) -> Mapping[str, str]:
        return {}

    def offer(self, end_offset_bytes: int) -> None:
        self.offered.append(end_offset_bytes)

    def committed(self) -> int | None:
        return self.landed

    def catch_up(self, start_offset_bytes: int, end_offset_bytes: int) -> None:
        self.missed.append((start_offset_bytes, end_offset_bytes))

    def close(self) -> None:
        self.closed += 1


def test_the_spark_feed_dispatcher_passes_the_conformance_checks_for_dispatchers() -> None:
    """Repeats after a crash, overlaps and any cut into batches give the same."""
    check_dispatcher(
        lambda: SparkFeed(Publisher(), Landing()), observe=lambda feed: (feed.end_offset_bytes, feed.messages)
    )


def test_the_spark_feed_publishes_its_position_once_for_each_batch_that_has_new_records() -> None:
    """What a batch costs does not grow with its messages; what was known before is passed over."""
    publisher, landing = Publisher(), Landing()
    feed = SparkFeed(publisher, landing)
    requests = sample_requests(30)
    feed.dispatch(RecordBatch.of_requests(requests[:20]))
    feed.dispatch(RecordBatch.of_requests(requests[5:15]))
    feed.dispatch(RecordBatch.of_requests(requests[10:]))
    assert publisher.touched == len(landing.offered) == 2
    assert feed.messages == 30
    last = requests[-1]
    assert landing.offered[-1] == feed.end_offset_bytes == last.commit_log_offset_bytes + last.message_size_bytes
    feed.close()
    assert (publisher.closed, landing.closed) == (1, 1)


def test_the_spark_feed_reports_how_far_the_log_has_been_exported_to_its_landing_zone() -> None:
    """Without a landing zone nothing is ever needed again; a new zone has nothing yet, and reads the log itself."""
    assert SparkFeed(Publisher()).committed() is None
    landing = Landing()
    feed = SparkFeed(Publisher(), landing)
    assert feed.committed() == 0
    landing.landed = 700
    assert feed.committed() == 700
    assert feed.catch_up(700, 900)
    assert landing.missed == [(700, 900)]


def test_the_spark_feed_counts_each_message_of_a_batch_once(tmp_path: Path) -> None:
    """Handed over as a whole, or a second time with what is new behind it."""
    with opened(tmp_path, commit_log_file_bytes=1 << 16) as store:
        put = store.put([message(), batch([message()] * 5), batch([message()] * 2)])
        one, other = SparkFeed(Publisher()), SparkFeed(Publisher())
        one.dispatch(RecordBatch.of_requests(requests_of(put.records)))
        other.dispatch(RecordBatch.of_units(put.records[:2]))
        assert other.messages == 6
        other.dispatch(RecordBatch.of_units(put.records[1:]))
    assert (one.end_offset_bytes, one.messages) == (other.end_offset_bytes, other.messages)
    assert one.messages == 8


def test_the_spark_feed_reaches_the_same_log_position_with_numpy_arrays_and_with_record_objects(tmp_path: Path) -> None:
    """At a start the log comes in columns: the same position and the same number of messages."""
    pytest.importorskip("numpy", reason="columns need numpy")
    lazy_numpy.load()
    with opened(tmp_path, commit_log_file_bytes=1 << 21) as store:
        store.put([message(body=b"x" * 1_000) for _ in range(1_500)])
        store.dispatch()
        log = store.commit_log
        one, other = SparkFeed(Publisher()), SparkFeed(Publisher())
        one.dispatch(RecordBatch.of_requests(list(log.requests(0, log.max_offset_bytes))))
        for _ in range(2):
            for columns in log.columns(0, log.max_offset_bytes):
                other.dispatch(RecordBatch.of_columns(columns))
    assert (one.end_offset_bytes, one.messages) == (other.end_offset_bytes, other.messages)
    assert one.messages == 1_500
