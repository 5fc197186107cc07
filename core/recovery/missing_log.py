"""Tells a log that is not where it is looked for from one whose end a crash took.

Both leave queues that describe more than the log holds. The first is a mistake: ``store.commit_log_paths`` is not what the
store was run with, a disk is not mounted, a file was removed. A start that cut everything back to such a log would lose what is
still there. A crash takes what was not synced, and nothing where only the process was killed. So a start is refused where a
crash cannot be the cause.

The notes (:mod:`.ends`) of the broker that crashed say up to which position the log was synced, and they decide. Where there
are none, or another broker may have used the store since, store times decide: a crash takes no record of which the checkpoint
vouches. With ``store.compat: strict`` no start is refused: RocketMQ deletes the queues. See docs/internals/algorithms.md,
Abnormal recovery.
"""

from __future__ import annotations

from typing import Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.record import record as rec
from flintmq.core.recovery.ends import Ends
from flintmq.core.recovery.last_stop import LastStop

ADVICE: Final = (
    "Is a disk not mounted, or is store.commit_log_paths (storePathCommitLog) not what the store was run with? No queue was "
    "changed. Where files are lost for good, move the folder consumequeue away: the queues are made again of what is left."
)


def _was_synced(noted: Ends | None, end_offset_bytes: int) -> bool | None:
    """Return whether the log was synced beyond a position; None where the notes do not say."""
    if noted is None or not noted.log_end:
        return None
    if noted.log_end > end_offset_bytes:
        return True
    return None if noted.is_stop else False


def may_be_lost(
    last_stop: LastStop, trusted_ms: int, noted: Ends | None, end_offset_bytes: int, next_file: memoryview
) -> bool:
    """Return whether a crash can have taken a file of the log although the one behind it is there.

    Args:
        last_stop: how the store was left.
        trusted_ms: the store time up to which the checkpoint vouches for the log.
        noted: what was noted of the store; None where nothing was.
        end_offset_bytes: where the file before the one that is missing ends.
        next_file: the file behind the one that is missing, from its first byte.
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
    """Refuse a log whose last files are missing, or all of them.

    Args:
        last_stop: how the store was left.
        trusted_ms: the store time up to which the checkpoint vouches for the log.
        newest_ms: the latest store time in the log; 0 without any record.
        noted: what was noted of the store; None where nothing was.
        files_end_offset_bytes: where the log's last file ends, whatever it holds; 0 without any.
        described_to_offset_bytes: where the newest message ends that a consume queue describes; -1 without any.

    Raises:
        StoreFormatError: queues describe messages of files that are not there, and no crash can have taken these.
    """
    if described_to_offset_bytes <= files_end_offset_bytes:
        return
    # Queues that describe only what is synced lose no file of theirs in a crash.
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
