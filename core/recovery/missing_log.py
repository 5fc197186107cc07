"""Tells a log that is not where it is looked for from one whose end a crash took.

Both leave queues that describe more than the log holds. The first is a mistake: ``store.commit_log_paths`` is not what the
store was run with, a disk is not mounted, a file was removed. A start that cut everything back to such a log would lose what is
still there. A crash takes what was not synced: never a file of which the checkpoint vouches for a record, and none at all where
only the process was killed. So a start is refused where a crash cannot be the cause. With ``store.compat: strict`` it is not:
RocketMQ deletes the queues. See docs/internals/algorithms.md, Abnormal recovery.
"""

from __future__ import annotations

from typing import Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.record import record as rec
from flintmq.core.recovery.last_stop import LastStop

ADVICE: Final = (
    "Is a disk not mounted, or is store.commit_log_paths (storePathCommitLog) not what the store was run with? No queue was "
    "changed. Where files are lost for good, move the folder consumequeue away: the queues are made again of what is left."
)


def may_be_lost(last_stop: LastStop, trusted_ms: int, next_file: memoryview) -> bool:
    """Return whether a crash can have taken a file of the log although the one behind it is there.

    Args:
        last_stop: how the store was left.
        trusted_ms: the store time up to which the checkpoint vouches for the log.
        next_file: the file behind the one that is missing, from its first byte.
    """
    if last_stop is not LastStop.CRASHED:
        return False
    try:
        stored_ms = rec.decode_record(next_file).store_timestamp_ms
    except rec.RecordError:
        return True
    return stored_ms > trusted_ms


def check_end(
    last_stop: LastStop,
    trusted_ms: int,
    newest_ms: int,
    files_end_offset_bytes: int,
    described_to_offset_bytes: int,
    *,
    was_synchronous: bool = False,
) -> None:
    """Refuse a log whose last files are missing, or all of them.

    Args:
        last_stop: how the store was left.
        trusted_ms: the store time up to which the checkpoint vouches for the log.
        newest_ms: the store time of the log's last record; 0 without any.
        files_end_offset_bytes: where the log's last file ends, whatever it holds; 0 without any.
        described_to_offset_bytes: where the newest message ends that a consume queue describes; -1 without any.
        was_synchronous: whether queues described only what was synced, so that no crash takes a file of theirs.

    Raises:
        StoreFormatError: queues describe messages of files that are not there, and no crash can have taken these.
    """
    if described_to_offset_bytes <= files_end_offset_bytes:
        return
    if last_stop is LastStop.CRASHED and trusted_ms <= newest_ms and not was_synchronous:
        return
    have = f"the log's files end at position {files_end_offset_bytes}" if files_end_offset_bytes else "there is no log"
    raise StoreFormatError(
        f"{have}, but the consume queues describe messages up to position {described_to_offset_bytes}. {ADVICE}"
    )
