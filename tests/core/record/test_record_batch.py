"""A batch says the same in each of its forms, and makes none of them before it is asked for."""

from __future__ import annotations

from pathlib import Path

from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import AppendedBatch, RecordBatch
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.testing.dispatcher_kit import sample_requests
from flintmq.testing.store import BY_HAND, batch, message, opened


def values(columns: RecordColumns) -> list[tuple[object, ...]]:
    """What columns say of each record, and the hashes of its keys, sorted by row."""
    fields = ("physical", "size", "queue_id", "queue_offset", "sys_flag", "store_timestamp_ms", "prepared", "tags_code")
    rows = zip(*(getattr(columns, name).tolist() for name in fields), strict=True)
    topics = [columns.topics[code] for code in columns.topic_code.tolist()]
    keys = sorted(zip(columns.key_row.tolist(), columns.key_hash.tolist(), strict=True))
    return [*zip(topics, rows, strict=True), *keys]


def test_a_record_batch_read_from_the_log_equals_a_record_batch_built_from_dispatch_requests(tmp_path: Path) -> None:
    """A dispatcher that works with columns must not care where a batch comes from."""
    lazy_numpy.load()
    sent = [
        message("AB"[number % 2], number % 3, b"b" * 900, tags="TagA" if number % 4 else "", keys=f"k{number} 键")
        for number in range(300)
    ]
    with opened(tmp_path, strategy=BY_HAND, commit_log_file_bytes=1 << 20) as store:
        store.put(sent)
        log = store.commit_log
        (read,) = list(log.batches(0, log.max_offset_bytes))
        made = RecordBatch.of_requests(list(log.requests(0, log.max_offset_bytes)))
        assert read.has_columns
        assert not made.has_columns
        assert values(made.columns()) == values(read.columns())
        assert made.columns() is made.columns()
        assert read.requests() == made.requests()
        assert read.queues() == made.queues() == {("AB"[n % 2], n % 3) for n in range(6)}
        assert list(read.requests_of({("A", 2)})) == list(made.requests_of({("A", 2)})) != []
        for one in (read, made):
            assert (len(one), one.begin_offset_bytes, one.end_offset_bytes) == (300, 0, log.max_offset_bytes)


def test_dispatch_requests_of_a_batch_send_are_created_on_demand(tmp_path: Path) -> None:
    """Objects for each message of a batch send cost more than all else that queue and index do with it."""
    with opened(tmp_path, strategy=BY_HAND, commit_log_file_bytes=1 << 16) as store:
        put = store.put([message("A"), batch([message("B", 1)] * 5), message("A")])
        one = RecordBatch.of_units(put.records)
        assert len(one) == 7
        assert one.end_offset_bytes == store.watermarks.wrote
        assert [type(unit) is AppendedBatch for unit in one.units()] == [False, True, False]
        assert not one.has_requests
        requests = one.requests()
        assert requests == list(store.commit_log.requests(0, store.watermarks.wrote))
        assert one.requests() is requests, "what one dispatcher notes in a request is for those behind it"
        assert one.queues() == {("A", 0), ("B", 1)}
        assert list(one.requests_of({("B", 1)})) == requests[1:6]


def test_a_batch_of_records_returns_its_list_of_dispatch_requests_without_copying_the_list() -> None:
    """Dispatchers must not take the slower path of batch sends for single records."""
    requests = sample_requests(3)
    one = RecordBatch.of_units(requests)
    assert one.has_requests
    assert one.units() is one.requests() is requests


def test_an_empty_record_batch_contains_no_records_and_no_queues() -> None:
    """A dispatcher that is handed nothing must not have to ask first."""
    empty = RecordBatch.of_requests([])
    assert (len(empty), empty.begin_offset_bytes, empty.end_offset_bytes) == (0, 0, 0)
    assert len(empty.columns()) == 0
    assert not empty.queues()
