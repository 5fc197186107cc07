"""Reading the log: a piece, a record, or all records between two positions, never more than is readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreError
from flintmq.core.log.log_reader import LogReader
from flintmq.core.record import bulk_scan
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.store import BY_HAND_SYNCHRONOUS, message, opened

FILE_BYTES = 4096
COUNT = 60


def filled(store: MessageStore) -> tuple[LogReader, list[int]]:
    """A log of several files, and where its records lie."""
    results = store.put([message("T", number % 3, b"b" * 80, keys=f"k{number}") for number in range(COUNT)]).results
    return store.commit_log, [result.commit_log_offset_bytes for result in results]  # type: ignore[union-attr]


def test_the_log_reader_returns_the_dispatch_requests_of_all_log_files(tmp_path: Path) -> None:
    """A blank lies between the last record of a file and the first one of the next."""
    with opened(tmp_path, commit_log_file_bytes=FILE_BYTES) as store:
        log, places = filled(store)
        assert len(store.commit_log.queue.files) > 2
        assert [one.commit_log_offset_bytes for one in log.requests(0, log.max_offset_bytes)] == places
        assert log.next_file_start(places[-1]) == store.commit_log.queue.files[-1].start + FILE_BYTES


def test_reading_the_log_at_a_position_without_a_record_raises_an_error_that_names_the_position(tmp_path: Path) -> None:
    """Dispatch must not skip what it cannot read."""
    with opened(tmp_path, commit_log_file_bytes=FILE_BYTES) as store:
        log, places = filled(store)
        with pytest.raises(StoreError, match=f"no record at position {places[1] + 1}"):
            list(log.requests(places[1] + 1, log.max_offset_bytes))
        with pytest.raises(StoreError, match="no file holds position"):
            list(log.requests(10**9, 10**9 + 1))


def test_bulk_and_single_reads_give_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which way is taken depends on how much there is to read, and must show nowhere."""
    with opened(tmp_path, commit_log_file_bytes=FILE_BYTES) as store:
        log, _places = filled(store)
        singly = [one for batch in log.batches(0, log.max_offset_bytes) for one in batch.requests()]
        monkeypatch.setattr(bulk_scan, "BYTES_MIN", 0)
        batches = list(log.batches(0, log.max_offset_bytes))
        assert any(batch.has_columns for batch in batches)
        assert [one for batch in batches for one in batch.requests()] == singly
        assert len(singly) == COUNT


def test_nothing_is_read_beyond_the_readable_position(tmp_path: Path) -> None:
    """Under a synchronous strategy nobody reads what a crash could take back."""
    with opened(tmp_path, strategy=BY_HAND_SYNCHRONOUS, commit_log_file_bytes=FILE_BYTES) as store:
        (result,) = store.put([message(body=b"body")]).results
        at, size = result.commit_log_offset_bytes, result.message_size_bytes  # type: ignore[union-attr]
        log = store.commit_log
        assert log.slice(at, size) is None
        assert log.record(at) is None
        assert log.store_timestamp_ms(at) == -1
        log.flush(0)
        found = log.record(at, size)
        assert found is not None
        assert found.body == b"body"
        assert log.record(at, size + 1) is None
        assert log.slice(at, size) is not None
        assert log.slice(at, size + 1) is None
        assert log.slice(at, 0) is None
        assert log.store_timestamp_ms(at) == found.store_timestamp_ms
