"""Finds how far a store may be read, and up to where its consume queues are complete (docs/spark-feed.md).

A running broker that feeds Spark writes both positions into ``flint/feed``. For other stores the positions are determined like
this:

========================  =====================================  ================================================
the store                 is read up to                          consume queues are complete
========================  =====================================  ================================================
being written, with feed  the end that the feed records          up to that end
being written, no feed    the last message in a consume queue    except for the last :data:`IN_FLIGHT` messages
stopped                   the end of the last whole record       up to the last message in a consume queue
crashed                   the same, if no broken record follows  nowhere for certain: a crash may have lost units
========================  =====================================  ================================================

If the queues are not complete, the rest of the log is read record by record. The log of a running broker is never read beyond
the end in the table, because an incomplete record may follow.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

import attrs
import numpy as np

from flintmq.core.errors import reading
from flintmq.core.log.epochs import Epochs, read_epochs
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record.queue_unit import FILLER_SIZE
from flintmq.core.record.record import RecordError, decode_record
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, feed_path, read_feed
from flintmq.plugins.spark.decoder import chain
from flintmq.plugins.spark.errors import OptionError, UnsettledStoreError
from flintmq.plugins.spark.options import ReadOptions, Visibility
from flintmq.plugins.spark.store.log_files import LogFiles, map_file
from flintmq.plugins.spark.store.log_tail import walked_tail
from flintmq.plugins.spark.store.queue_units import QueueUnits, list_queues, list_topics

IN_FLIGHT: Final = 2_048
"""Maximum number of messages that FlintMQ passes to its dispatchers at once. Consume queue units are written queue by queue, so
that any of these messages may lack its unit while the dispatchers work or after a crash."""
_FEED_MAX_AGE_MS: Final = 30_000
"""Age in ms from which on a broker's feed file is ignored. A running broker writes the feed file once a second, and the clocks
of two machines may differ a little."""
_STEPS_BACK_MAX: Final = 10_000
TOPICS_ASKED_MAX: Final = 64
"""Maximum number of topics for which the log's end is found by reading all consume queues. If the store has more topics, the
newest log file is read instead."""

State = Literal["fed", "written", "stopped", "crashed"]


@attrs.frozen
class VisibleEnd:
    """The position up to which a store may be read, and the position up to which its consume queues are complete."""

    state: State
    end: int
    """Physical offset just past the last message that may be read."""
    units_complete_to: int
    """Physical offset up to which every message has its consume queue unit."""
    epoch_number: int | None = None
    """Number of the log's epoch (``flint/epochs``) from the file ``flint/feed`` of the broker; None without this file."""


def visible_end(
    root: Path, log: LogFiles, visibility: Visibility | None, *, reads_torn: bool, now_ms: int | None = None
) -> VisibleEnd:
    """Find the position up to which a store may be read.

    Args:
        root: the store.
        log: the store's commit log.
        visibility: the option ``visibility``, which names a position in the feed file of a running broker. With None, the read
            ends at ``flushed`` if there is a feed file, and otherwise at the last message that the files contain.
        reads_torn: whether to read up to an incomplete record instead of raising an error (``badRecords=skip``).
        now_ms: the wall-clock time.

    Raises:
        UnsettledStoreError: the end is not known, or the log ends in an incomplete record. The text names the option to change.
        StoreError: a file cannot be read.
    """
    feed = live_feed(root, int(time.time() * 1000) if now_ms is None else now_ms)
    if feed is not None:
        end = feed.end_offset_bytes(visibility or "flushed")
        return VisibleEnd("fed", end, end, feed.epoch)
    written = is_locked(root)
    if written and visibility in ("flushed", "confirmed"):
        raise UnsettledStoreError(
            f"{root}: a broker is writing this store and does not publish its {visibility} position. Add spark_feed to its "
            "`dispatchers`, or read up to the position that consumers can see with option visibility=dispatched"
        )
    if len(list_topics(root)) > TOPICS_ASKED_MAX:
        found = _end_by_log(root, log, written=written)
        if found is not None:
            return found
    queues = list(list_queues(root))
    if written:
        end, _claimed = _last_message(log, queues)
        return VisibleEnd("written", end, _settled(queues, end))
    return _static_end(root, log, queues, reads_torn=reads_torn)


def _end_by_log(root: Path, log: LogFiles, *, written: bool) -> VisibleEnd | None:
    """Find the position up to which a store may be read, from the newest files of the log. The result is None if all consume
    queues are needed to find this position.

    The cost does not depend on the number of queues.
    """
    tail = walked_tail(log, IN_FLIGHT + 1)
    last = tail.last_named(root) if tail is not None else None
    if tail is None or last is None:
        return None
    if written:
        # The readable end is after the last record with a consume queue unit, because a later record may be incomplete.
        return VisibleEnd("written", last[1], tail.before(last[1], IN_FLIGHT))
    if not tail.is_whole or tail.has_bad_body(IN_FLIGHT if (root / "abort").exists() else 0):
        return None
    if (root / "abort").exists():
        return VisibleEnd("crashed", tail.end, 0)
    return VisibleEnd("stopped", tail.end, last[1])


def live_feed(root: Path, now_ms: int) -> FeedMarks | None:
    """Return the positions in the feed file ``flint/feed`` if a running broker keeps this file up to date; else None. Raises
    StoreError if the file cannot be read."""
    with reading(feed_path(root)):
        feed = read_feed(feed_path(root))
    if feed is None or feed.state is not FeedState.RUNNING or feed.age_ms(now_ms) > _FEED_MAX_AGE_MS:
        return None
    return feed


def _last_message(log: LogFiles, queues: list[QueueUnits]) -> tuple[int, int]:
    """Return two positions of the log: the end of the last valid message to which a consume queue unit refers, and the largest
    position in any unit, valid or not.

    The second position is -1 if no unit refers to a message.
    """
    claimed = -1
    units = heapq.merge(*map(_backwards, queues), reverse=True)
    for position, size in itertools.islice(units, _STEPS_BACK_MAX):
        claimed = max(claimed, position)
        if log.has_whole_record(position, size):
            return position + size, claimed
    return log.start, claimed


def _backwards(queue: QueueUnits) -> Iterator[tuple[int, int]]:
    """Yield position and size of the messages of a consume queue, the last message first."""
    for queue_offset in range(queue.end_unit - 1, queue.first_unit - 1, -1):
        unit = queue.unit(queue_offset)
        if unit is not None and (unit[0] > 0 or unit[1] != FILLER_SIZE):
            yield unit[0], unit[1]


def _settled(queues: list[QueueUnits], end: int) -> int:
    """Return a position of the log up to which each message has its consume queue unit. The position lies before the last
    messages, whose units the broker may not have written yet."""
    newest = [queue.range(max(queue.first_unit, queue.end_unit - IN_FLIGHT - 1), queue.end_unit) for queue in queues]
    ends = np.sort(np.concatenate([units.position + units.size for units in newest] or [np.empty(0, np.int64)]))
    ends = ends[ends <= end]
    return int(ends[-IN_FLIGHT - 1]) if len(ends) > IN_FLIGHT else 0


def _static_end(root: Path, log: LogFiles, queues: list[QueueUnits], *, reads_torn: bool) -> VisibleEnd:
    """Find the position up to which a store may be read while no broker writes to the store."""
    crashed = (root / "abort").exists()
    last, claimed = _last_message(log, queues)
    end, whole = _walked_to_end(log, last, check_bodies=crashed)
    claimed_is_torn = claimed >= end and _is_anything(log, claimed)
    if not reads_torn and ((crashed and not whole) or claimed_is_torn):
        raise UnsettledStoreError(
            f"{root}: the commit log is torn at {end}: {'the broker crashed' if crashed else 'the log lost its end'}. Start "
            "the broker once, which recovers the log, or read up to this position with option badRecords=skip"
        )
    return VisibleEnd("crashed" if crashed else "stopped", end, 0 if crashed or claimed_is_torn else last)


def _walked_to_end(log: LogFiles, position: int, *, check_bodies: bool) -> tuple[int, bool]:
    """Read the log record by record from a position on. Return the end of the last valid record, and whether the log has no
    data after this record. Zero bytes do not count as data."""
    while (file := log.holding(position)) is not None:
        data = map_file(file.path)
        if data is None:
            return position, True
        found = chain.walk(data, position - file.start, file.size)
        bad = _first_bad_body(data, found) if check_bodies else None
        if bad is not None:
            return file.start + bad, False
        if found.why not in ("blank", "end"):
            end = file.start + found.end
            return end, found.why == "zero" and not _is_anything(log, end)
        position = file.end
    return position, True


def _first_bad_body(data: chain.Bytes, found: chain.Chain) -> int | None:
    """Return the position of the first damaged record among the last :data:`IN_FLIGHT` records; None if all these records are
    valid. Earlier records are not checked, because a crash leaves incomplete records only at the end of the log."""
    for start in found.starts[-IN_FLIGHT:].tolist():
        try:
            decode_record(data.data, start)
        except RecordError:
            return int(start)
    return None


def _is_anything(log: LogFiles, position: int) -> bool:
    """Return whether other bytes than zeros follow a position of the log at which no record begins. Only the next 4096 bytes
    are checked, because an append leaves no larger gap."""
    file = log.holding(position)
    found = log.bytes_at(position, min(4096, file.end - position)) if file is not None else None
    return found is not None and any(found)


_TRIES: Final = 10


@attrs.frozen
class StoreView:
    """A store's log, its end and its epochs at one moment."""

    log: LogFiles
    end: VisibleEnd
    epochs: Epochs | None


def root_of(options: ReadOptions) -> Path:
    """Return the store's folder, even if Spark has converted the path to a ``file:`` address."""
    assert options.path is not None
    path = options.path
    return Path(unquote(urlsplit(path).path) if path.startswith("file:") else path)


def open_view(root: Path, options: ReadOptions) -> StoreView:
    """Return a store's log files, the position up to which the log may be read, and the epochs of the log.

    All three describe the store at the same moment.

    Raises:
        OptionError: the folder does not contain a store.
        UnsettledStoreError: the position up to which the log may be read is not known.
        StoreError: a file of the store cannot be read.
    """
    folders = options.commit_log_path or (root / "commitlog",)
    _check_store(root, folders)
    for _ in range(_TRIES):
        epochs = read_epochs(root)
        log_files = LogFiles(folders)
        end = visible_end(root, log_files, options.visibility, reads_torn=options.bad_records == "skip")
        if read_epochs(root) == epochs:
            break
    if end.end > log_files.end:
        # If the readable end is after the last listed file, the broker has added a log file, so files are listed again.
        log_files = LogFiles(folders)
    if end.epoch_number is not None and epochs is not None and epochs.current.number > end.epoch_number:
        # The file ``flint/feed`` is older than the broker's last start, which may have truncated the log.
        # The read ends where the log's next epoch (part) after ``flint/feed`` begins, because the log may be truncated there.
        start = next(one.start_offset_bytes for one in epochs.entries if one.number > end.epoch_number)
        end = attrs.evolve(end, end=min(end.end, start), units_complete_to=min(end.units_complete_to, start))
    return StoreView(log_files, end, epochs)


def _check_store(root: Path, log_folders: Sequence[str | Path]) -> None:
    if not root.is_dir():
        raise OptionError(
            f"{root}: there is no such folder: load() needs a store's folder, at the same path on every executor"
        )
    is_store = any(Path(folder).is_dir() for folder in (root / "consumequeue", *log_folders))
    if not is_store and not (root / "checkpoint").is_file():
        near = next((place for place in _near(root) if (place / "commitlog").is_dir()), None)
        hint = f"; one lies in {near}" if near is not None else ""
        raise OptionError(
            f"{root}: no store lies there (no commitlog, no consumequeue): load() needs the folder that storePathRootDir "
            f"names{hint}; if the commit log is in another folder, give option commitLogPath"
        )


_NEAR_MAX: Final = 100


def _near(root: Path) -> Iterator[Path]:
    """Yield folders that the user may have meant instead of a folder without a store: the parent folder, if the user named the
    folder of the log, and the subfolders."""
    yield root.parent
    with contextlib.suppress(OSError):
        yield from sorted(one for one in itertools.islice(root.iterdir(), _NEAR_MAX) if one.is_dir())
