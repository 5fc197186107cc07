"""The log as a whole: what is appended is made durable, told and read, and a recovered end is where appending goes on."""

from __future__ import annotations

from pathlib import Path

from flintmq.testing.store import BY_HAND_SYNCHRONOUS, message, opened

FILE_BYTES = 4096


def test_an_appended_record_becomes_readable_when_it_is_durable(tmp_path: Path) -> None:
    """The three positions are of one log, whoever moves them."""
    with opened(tmp_path, strategy=BY_HAND_SYNCHRONOUS, commit_log_file_bytes=FILE_BYTES) as store:
        log, told = store.commit_log, []
        store.progressed.subscribe(lambda: told.append(log.flushed_offset_bytes))
        log.append([message(body=b"body")])
        end = log.wrote_offset_bytes
        assert (log.committed_offset_bytes, log.flushed_offset_bytes, log.max_offset_bytes) == (end, 0, 0)
        log.flush(0)
        assert (log.flushed_offset_bytes, log.max_offset_bytes, told) == (end, end, [end])


def test_the_first_append_after_a_recovery_allocates_the_disk_space_of_the_last_log_file(tmp_path: Path) -> None:
    """Another maker's file may be sparse, and a write into a hole of a full disk would end the process."""
    with opened(tmp_path, commit_log_file_bytes=FILE_BYTES) as store:
        log = store.commit_log
        log.append([message()])
        assert log.queue.files[-1].grown == FILE_BYTES
        log.set_tail(log.wrote_offset_bytes, 5)
        assert log.queue.files[-1].grown == 0
        assert log.watermarks.tail == (log.wrote_offset_bytes, 5)
        log.append([message()])
        assert log.queue.files[-1].grown == FILE_BYTES
