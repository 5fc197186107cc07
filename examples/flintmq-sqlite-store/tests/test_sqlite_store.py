"""Consume queues and an index in SQLite behave like those in RocketMQ's files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from flintmq_sqlite_store.index import SqliteIndex
from flintmq_sqlite_store.queues import SqliteConsumeQueues

from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.protocol import deletion, indexed, queued
from flintmq.testing.dispatcher_kit import check_dispatcher, sample_batch, sample_requests
from flintmq.testing.index_kit import check_index_builder


def make_queues(path: str = ":memory:") -> SqliteConsumeQueues:
    return SqliteConsumeQueues(sqlite3.connect(path), Path())


def units(made: SqliteConsumeQueues) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    return {key: list(queue.units(0, 1_000)) for key, queue in made.queues.items()}


def test_the_sqlite_queues_pass_the_dispatcher_kit() -> None:
    check_dispatcher(make_queues, observe=units)


def test_the_sqlite_index_passes_the_index_kit() -> None:
    check_index_builder(lambda: SqliteIndex(sqlite3.connect(":memory:")))


def test_committed_queues_and_index_survive_a_restart(tmp_path: Path) -> None:
    """After a restart, each queue has the same ends and units as before, and the index has the same position."""
    path = str(tmp_path / "queues.db")
    first = make_queues(path)
    first.dispatch(sample_batch())
    index = SqliteIndex(sqlite3.connect(tmp_path / "index.db"))
    index.dispatch(sample_batch())
    again = make_queues(path)
    assert units(again) == units(first)
    assert [(q.min_queue_offset, q.max_queue_offset, q.max_physical_offset_bytes) for q in again.queues.values()] == [
        (q.min_queue_offset, q.max_queue_offset, q.max_physical_offset_bytes) for q in first.queues.values()
    ]
    assert SqliteIndex(sqlite3.connect(tmp_path / "index.db")).committed() == sample_batch().end_offset_bytes


def test_a_topic_deletion_deletes_the_queues_of_the_topic() -> None:
    """The record of a topic's deletion deletes the topic's queues. A queue is also deleted, and begins again, when a later
    record of the queue has the queue offset 0."""
    made = make_queues()
    named = deletion("T", 0)

    def record(number: int, queue_offset: int, topic: str = "T") -> DispatchRequest:
        mark, properties = (-1, named.properties) if topic == named.topic else (0, {})
        return DispatchRequest(topic, 0, number * 100, 100, 0, 0, queue_offset, "", "", 0, mark, properties)

    made.dispatch(RecordBatch.of_requests([record(0, 0), record(1, 1), record(2, 0, named.topic)]))
    assert made.find("T", 0) is None
    made.dispatch(RecordBatch.of_requests([record(3, 0), record(4, 1), record(5, 0), record(6, 0, "U")]))
    assert units(made)["T", 0] == [(500, 100, 0)]
    assert (made.queues["T", 0].min_queue_offset, made.queues["T", 0].max_queue_offset) == (0, 1)


def test_truncate_removes_the_units_after_the_cut() -> None:
    """If the log is truncated, the units of the removed records are deleted, and the units of the other records are kept.
    Records that are written after the truncation get units again."""
    made, index, requests = make_queues(), SqliteIndex(sqlite3.connect(":memory:")), sample_requests()
    for one in (made, index):
        one.dispatch(RecordBatch.of_requests(requests))
        one.truncate(requests[20].commit_log_offset_bytes)
    kept = {unit[0] for found in units(made).values() for unit in found}
    assert kept == {r.commit_log_offset_bytes for r in queued(requests[:20])}
    assert index.committed() == requests[20].commit_log_offset_bytes
    for one in (made, index):
        one.dispatch(RecordBatch.of_requests(requests))
    assert {unit[0] for found in units(made).values() for unit in found} == {
        r.commit_log_offset_bytes for r in queued(requests)
    }
    last = indexed(requests)[-1]
    assert index.query(last.topic, last.uniq_key, 9, 0, 2**62)[0] == [last.commit_log_offset_bytes]


def test_lost_messages_become_fillers_that_a_search_by_time_skips() -> None:
    """If messages of a queue are lost or deleted, later messages keep their queue offsets, and no consumer gets a deleted
    message."""
    requests = [r for r in queued(sample_requests()) if (r.topic, r.queue_id) == ("Orders", 1)]
    made = make_queues()
    made.dispatch(RecordBatch.of_requests([*requests[:3], *requests[5:]]))
    queue = made.queues["Orders", 1]
    assert queue.max_queue_offset == len(requests)
    assert [unit[0] for unit in queue.units(0, 6)] == [
        *(r.commit_log_offset_bytes for r in requests[:3]),
        0,
        0,
        requests[5].commit_log_offset_bytes,
    ]
    times = {r.commit_log_offset_bytes: number * 1_000 for number, r in enumerate(requests)}
    assert queue.queue_offset_by_time(3_400, 0, times.__getitem__) == 2
    assert queue.queue_offset_by_time(4_600, 0, times.__getitem__) == 5
    assert queue.queue_offset_by_time(0, 0, times.__getitem__) == 0
    assert queue.queue_offset_by_time(10**9, 0, times.__getitem__) == len(requests) - 1
    queue.expire(lambda physical: physical < requests[4].commit_log_offset_bytes)
    assert queue.min_queue_offset == 5
