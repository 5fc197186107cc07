"""Replay: at a start, passes to each dispatcher the stored records that it lacks, before any new record.

See docs/internals/algorithms.md, Dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.core.kernel.ports import (
    CommitLogDispatcher,
    SupportsCatchUp,
    SupportsCommitted,
    SupportsTruncate,
)
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log_events import event_log

log = event_log("flintmq.store")


def truncate(dispatchers: Sequence[CommitLogDispatcher], end_offset_bytes: int) -> None:
    """Truncate the data of the dispatchers to the log's end, before the dispatchers get new records. Called only on the event
    loop's thread."""
    for dispatcher in dispatchers:
        if isinstance(dispatcher, SupportsTruncate):
            dispatcher.truncate(end_offset_bytes)


def replay(dispatchers: Sequence[CommitLogDispatcher], commit_log: CommitLog, dispatched_offset_bytes: int) -> int:
    """Dispatch again the records that some dispatchers lack. Called only on the event loop's thread.

    Args:
        dispatchers: the dispatchers; a dispatcher without :class:`flintmq.core.kernel.ports.SupportsCommitted` lacks no
            records.
        commit_log: the recovered log.
        dispatched_offset_bytes: the physical offset at which ordinary dispatch continues.

    Returns:
        The physical offset from which records were dispatched again; ``dispatched_offset_bytes`` if no record was.

    Raises:
        StoreError: a dispatcher's position is not the start of a record.
        Exception: any exception of a dispatcher that is not isolated.
    """
    behind = [
        (max(since, commit_log.min_offset_bytes), dispatcher)
        for dispatcher in dispatchers
        if (since := _lacks_from(dispatcher, commit_log.min_offset_bytes, dispatched_offset_bytes)) is not None
    ]
    if not behind:
        return dispatched_offset_bytes
    start = min(since for since, _dispatcher in behind)
    log.info(
        "store.replay",
        "records that dispatchers lack are dispatched again, from position %(start_position)d to %(end_position)d",
        start_position=start,
        end_position=dispatched_offset_bytes,
    )
    for batch in commit_log.batches(start, dispatched_offset_bytes):
        for since, dispatcher in behind:
            if since < batch.end_offset_bytes:
                dispatcher.dispatch(batch)
    return start


def _lacks_from(dispatcher: CommitLogDispatcher, min_offset_bytes: int, dispatched_offset_bytes: int) -> int | None:
    """Return the physical offset from which a dispatcher lacks records; None if it lacks no record or reads missing records
    itself.
    """
    if not isinstance(dispatcher, SupportsCommitted):
        return None
    committed = dispatcher.committed()
    if committed is None or committed >= dispatched_offset_bytes:
        return None
    if isinstance(dispatcher, SupportsCatchUp) and dispatcher.catch_up(committed, dispatched_offset_bytes):
        return None
    if 0 < committed < min_offset_bytes:
        log.error(
            "store.replay_gone",
            "%(dispatcher)s has the records before position %(committed_position)d, but the log begins at "
            "%(min_position)d: the records between are deleted; raise store.file_reserved_hours, or do not switch it off",
            dispatcher=type(getattr(dispatcher, "inner", dispatcher)).__name__,
            committed_position=committed,
            min_position=min_offset_bytes,
        )
    return committed
