"""Distinguishes a log with missing files from a log whose end was lost in a crash.

In both cases, consume queues refer to records that the log does not have. If files are missing, the cause is a mistake:
``store.commit_log_paths`` is wrong, a disk is not mounted, or a file was removed. A start that truncated queues and index to
the end of the incomplete log would lose data that still exists. A crash of the machine loses only data that was not synced, and
a killed process loses no data. Therefore a start is refused if a crash cannot be the cause.

The cause is found with the ends (:mod:`.ends`) that the crashed broker recorded. They contain the position up to which the log
was synced. If no ends were recorded, or if another broker may have used the store later, store times are compared: a crash
loses no record that the checkpoint covers. With ``store.compat: strict`` no start is refused, and queues are deleted as in
RocketMQ. See docs/internals/algorithms.md, Abnormal recovery.
"""

from __future__ import annotations

from typing import Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.record import record as rec
from flintmq.core.recovery.ends import Ends
from flintmq.core.recovery.last_stop import LastStop

ADVICE: Final = (
    "If a disk is not mounted, mount it. Check that store.commit_log_paths (storePathCommitLog) is the same as before. No "
    "queue was changed. If the files are lost for good, move the folder consumequeue away: the queues are rebuilt from the "
    "rest of the log."
)


def _was_synced(noted: Ends | None, end_offset_bytes: int) -> bool | None:
    """Return whether the log was synced beyond a position, according to the recorded ends; None if this cannot be known."""
    if noted is None or not noted.log_end:
        return None
    if noted.log_end > end_offset_bytes:
        return True
    return None if noted.is_stop else False


def may_be_lost(
    last_stop: LastStop, trusted_ms: int, noted: Ends | None, end_offset_bytes: int, next_file: memoryview
) -> bool:
    """Return whether a crash can explain that a file of the commit log is missing although the next file exists.

    Args:
        last_stop: how the last broker that used the store stopped: cleanly, killed, or crashed.
        trusted_ms: the store time up to which the checkpoint covers the log, in ms since 1970.
        noted: the positions of the ends of the log and of the queues, as a broker recorded them in the store's file
            ``flint/ends``; None if the store has no such record.
        end_offset_bytes: the physical end of the file before the missing file.
        next_file: the content of the file after the missing file.
    """
    if last_stop is not LastStop.CRASHED:
        return False
    was_synced = _was_synced(noted, end_offset_bytes)
    if was_synced is not None:
        return not was_synced
    try:
        stored_ms = rec.decode_record(next_file).store_timestamp_ms
    except rec.RecordError:
        return True
    return stored_ms > trusted_ms


def check_end(
    last_stop: LastStop,
    trusted_ms: int,
    newest_ms: int,
    noted: Ends | None,
    files_end_offset_bytes: int,
    described_to_offset_bytes: int,
) -> None:
    """Raise if the last files or all files of a log are missing and a crash cannot be the cause.

    Args:
        last_stop: how the last broker ended.
        trusted_ms: the store time up to which the checkpoint covers the log.
        newest_ms: the latest store time in the log; 0 if it has no records.
        noted: the ends of the store's files from the file ``flint/ends``; None if the store has no such file.
        files_end_offset_bytes: the physical offset at which the log's last file ends, even if its end has no records; 0
            without files.
        described_to_offset_bytes: the physical end of the newest message in any consume queue; -1 if no queue has a message.

    Raises:
        StoreFormatError: queues describe messages of missing files, which a crash cannot have removed.
    """
    if described_to_offset_bytes <= files_end_offset_bytes:
        return
    # With synchronous flush, consume queues describe only synced records, whose files a crash cannot have removed.
    was_synchronous = noted is not None and noted.is_synchronous and not noted.is_stop
    if last_stop is LastStop.CRASHED and not was_synchronous:
        was_synced = _was_synced(noted, files_end_offset_bytes)
        if was_synced is None:
            was_synced = trusted_ms > newest_ms
        if not was_synced:
            return
    have = f"the log's files end at position {files_end_offset_bytes}" if files_end_offset_bytes else "there is no log"
    raise StoreFormatError(
        f"{have}, but the consume queues describe messages up to position {described_to_offset_bytes}. {ADVICE}"
    )
