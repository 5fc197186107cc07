"""Compares the files of a store with their recorded ends (:mod:`.ends`), and rebuilds queues and index from the log.

The recovery plan (:mod:`.plan`) checks the log's files with the functions of this module. Queues and an index that have lost
data are rebuilt. If the log lacks the last messages of a queue, because they are deleted or damaged, the queue gets filler
units in place of these messages, so that no queue offset is used for a second message.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flintmq.config.rocketmq.system_topics import HOLDING_TOPICS, SYSTEM_TOPICS
from flintmq.core.errors import StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import ConsumeQueues, IndexBuilder, RecordBatch, SupportsExtend, SupportsTruncate
from flintmq.core.log.commit_log import CommitLog
from flintmq.core.log.epochs import Epochs, epochs_path
from flintmq.core.log.mapped_file_queue import MappedFile
from flintmq.core.log_events import event_log
from flintmq.core.record import record as rec
from flintmq.core.record.layout import picked
from flintmq.core.record.log_part import is_file_end, used_end
from flintmq.core.recovery.ends import TAIL_BYTES, Ends, QueueEnd, QueueKey, Tail

log = event_log("flintmq.store")

_PHYSICAL: Final = picked("physical_offset")
ACCEPT: Final = (
    "Restore the files. If they are lost for good, run flintmq store repair: the store continues with the remaining data, and "
    "no queue offset is used twice."
)


# --- lost files of the commit log ---


def tail_of(file: MappedFile, end_bytes: int) -> Tail:
    """Return the checksum to record for a commit log file that is used up to a position."""
    return Tail(file.start, end_bytes, zlib.crc32(file.view[max(0, end_bytes - TAIL_BYTES) : end_bytes]))


def tail_of_full(file: MappedFile) -> Tail:
    """Return the checksum to record for a commit log file that is followed by other files, and is therefore full."""
    return tail_of(file, used_end(file))


def first_doubtful(files: Sequence[MappedFile], noted: Ends | None) -> int | None:
    """Return the index of the first file of a log whose first record or recorded checksum is wrong; None if all files are
    right.

    At most two pages of each file are read. The last file is not checked, because a start scans it anyway.
    """
    tails = {tail.start_offset_bytes: tail for tail in noted.tails} if noted is not None else {}
    for index, file in enumerate(files[:-1]):
        tail = tails.get(file.start)
        if not _begins_well(file) or (tail is not None and tail != tail_of(file, min(tail.end_bytes, file.size))):
            return index
    return None


def _begins_well(file: MappedFile) -> bool:
    magic = rec.SIZE_AND_MAGIC.unpack_from(file.view)[1]
    if magic == rec.MAGIC_BLANK:
        return True
    return magic in (rec.MAGIC_V1, rec.MAGIC_V2) and _PHYSICAL.unpack_from(file.view)[0] == file.start


def check_log(noted: Ends, files: Sequence[MappedFile], end_offset_bytes: int, *, is_changed: bool) -> None:
    """Raise if a log has lost its last records, or if its last file comes from another log or an older copy.

    If the log has lost its first files, only a warning is logged.

    Args:
        noted: the recorded ends.
        files: the log's files.
        end_offset_bytes: the log's end according to the scan.
        is_changed: whether the scan found damage. Damage is reported separately.

    Raises:
        StoreFormatError: recorded data is missing; the message states the remedy.
    """
    begin = files[0].start if files else 0
    if not is_changed and not _reaches(files, end_offset_bytes, noted.log_end):
        raise StoreFormatError(
            f"the commit log ends at position {end_offset_bytes}, but it ended at {noted.log_end} or later according to "
            "flint/ends: its last records are missing, and new records would get the queue offsets of these records. Nothing "
            "was changed. "
            f"{ACCEPT}"
        )
    if begin > noted.log_begin and noted.log_end:
        log.warning(
            "store.log_begins_later",
            "the commit log begins at position %(position)d, but its recorded start is %(noted_position)d: the files "
            "between were deleted, or are lost",
            position=begin,
            noted_position=noted.log_begin,
        )
    last = next((tail for tail in noted.tails if tail.start_offset_bytes < noted.log_end <= _end_of(tail)), None)
    file = next((file for file in files if last is not None and file.start == last.start_offset_bytes), None)
    if last is not None and file is not None and not is_changed and tail_of(file, last.end_bytes) != last:
        raise StoreFormatError(
            f"{file.path}: the bytes before position {noted.log_end} differ from their checksum in flint/ends: the file "
            f"belongs to another log, or to an older copy of this log. Nothing was changed. {ACCEPT}"
        )


def _reaches(files: Sequence[MappedFile], end_offset_bytes: int, noted_end_bytes: int) -> bool:
    """Return whether a log reaches a position. The blanks after the last record belong to the log."""
    for file in files:
        at = max(0, end_offset_bytes - file.start)
        if file.start < noted_end_bytes and at < file.size:
            if end_offset_bytes >= noted_end_bytes or not is_file_end(file.view, at):
                break
            end_offset_bytes = file.start + file.size
    return end_offset_bytes >= noted_end_bytes


def _end_of(tail: Tail) -> int:
    return tail.start_offset_bytes + tail.end_bytes


# epochs


def restore_epochs(disk: Disk, root: Path, noted: Ends | None) -> bool:
    """Restore ``flint/epochs`` from its recorded content if the file is missing, damaged or older than the recorded content;
    return whether the file was restored.

    Raises:
        StoreError, OSError: the disk refused the write.
    """
    if noted is None or not noted.epochs:
        return False
    path, kept = epochs_path(root), Epochs.from_bytes(noted.epochs.encode("ascii"))
    reason = "it was missing"
    if disk.exists(path):
        try:
            found = Epochs.from_bytes(disk.read(path))
        except ValueError as error:
            reason = f"it was damaged: {error}"
        else:
            if found.store_id != kept.store_id or found.current.number >= kept.current.number:
                return False
            reason = "it was older than the recorded one"
    log.warning(
        "store.epochs_put_back", "%(path)s is restored from its recorded content: %(reason)s", path=path, reason=reason
    )
    temporary = path.with_name(path.name + ".tmp")
    disk.make_folder(path.parent)
    disk.write_file(temporary, kept.to_bytes())
    disk.replace(temporary, path)
    return True


# the index


def drop_lost_index(index: IndexBuilder, noted: Ends | None, min_offset_bytes: int, *, was_stopped: bool) -> bool:
    """Delete a store's index if it has lost entries, so that it is rebuilt; return whether it was deleted.

    After a crash, entries that are missing at the index's end do not count as lost, because their records are dispatched again.
    """
    ends: tuple[int, ...] | None = getattr(index, "ends", None)
    if ends is None or not isinstance(index, SupportsTruncate) or noted is None or not noted.index:
        return False
    newest = max(ends, default=-1)
    lost = [end for end in noted.index[:-1] if min_offset_bytes <= end < newest and end not in ends]
    if not lost and not (was_stopped and newest < noted.index[-1]):
        return False
    log.warning("store.index_lost", "the index has lost recorded files or entries, and is rebuilt from the log")
    index.truncate(0)
    return True


# queues


def lost_queues(queues: ConsumeQueues, noted: Ends, *, is_same_log: bool) -> list[QueueEnd]:
    """Return the recorded ends of the queues that have lost units: queues that end earlier, begin later or have an empty file.

    Args:
        queues: the queues as found at the start, or after they have caught up.
        noted: the recorded ends.
        is_same_log: whether no file of the log was deleted since the ends were recorded, so that queues must begin at the
            recorded offset.
    """
    found = queues.queues
    lost = []
    for end in noted.queues:
        queue = found.get((end.topic, end.queue_id))
        if not end.max_queue_offset:
            continue
        if (
            queue is None
            or queue.max_queue_offset < end.max_queue_offset
            or (is_same_log and noted.is_stop and queue.min_queue_offset > end.min_queue_offset)
            or not _is_filled(queues, end)
        ):
            lost.append(end)
    return lost


def _is_filled(queues: ConsumeQueues, end: QueueEnd) -> bool:
    """Return whether every examined file of a queue begins and ends with a unit.

    The last three files are not examined, because a start reads them anyway.
    """
    queue = queues.queues[(end.topic, end.queue_id)]
    at = queue.min_queue_offset
    while (behind := queue.next_file_queue_offset(at)) < queue.max_queue_offset:
        for queue_offset in (at, behind - 1):
            unit = queue.unit(queue_offset)
            if unit is None or unit[1] <= 0:
                return False
        at = behind
    return True


def gone_topics(disk: Disk, root: Path, noted: Ends) -> frozenset[str]:
    """Return the deleted topics among the topics whose queues ``flint/ends`` records, so that a start does not rebuild their
    queues.

    A topic counts as deleted if it is neither in ``topics.json`` nor in the journal of new topics. System topics, and topics in
    which FlintMQ stores messages until their delivery, are never returned, because ``topics.json`` need not contain them. If
    ``topics.json`` cannot be read or contains no topics, no topic is returned. The function reads the whole file, so it is
    called only if queues have lost units.
    """
    path, journal = root / "config" / "topics.json", root / "flint" / "new-topics"
    try:
        table = fastjson.loads(disk.read(path))
        added = disk.read(journal) if disk.exists(journal) else b""
    except (OSError, ValueError):
        return frozenset()
    names = table.get("topicConfigTable") if isinstance(table, Mapping) else None
    if not isinstance(names, Mapping) or not names:
        return frozenset()
    return frozenset(
        end.topic
        for end in noted.queues
        if end.topic not in names and not _is_own(end.topic) and b'"%b"' % end.topic.encode() not in added
    )


def _is_own(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic in HOLDING_TOPICS or topic.lower().startswith("rmq_sys_")


def build_again(
    queues: ConsumeQueues,
    commit_log: CommitLog,
    lost: Sequence[QueueEnd],
    end_offset_bytes: int,
    *,
    is_caught_up: bool,
    goes_on: bool,
) -> None:
    """Rebuild consume queues that have lost units. The units are made again from the records of the commit log, up to the
    recorded end of each queue. The whole log is read once.

    Args:
        queues: the store's queues.
        commit_log: the recovered log.
        lost: the recorded ends of the queues to rebuild.
        end_offset_bytes: the physical offset up to which the other queues describe the log.
        is_caught_up: whether all queues have just been rebuilt from the whole log.
        goes_on: whether a queue gets fillers in place of last messages that the log lacks, so that no queue offset is used
            twice. RocketMQ writes no fillers, and uses the offsets again.

    Raises:
        StoreError: a record cannot be read, or the disk refused an operation.
    """
    wanted: dict[QueueKey, QueueEnd] = {(end.topic, end.queue_id): end for end in lost}
    names = sorted(f"{topic}/{queue_id}" for topic, queue_id in wanted)
    log.warning(
        "store.queues_lost",
        "%(count)d queues have lost recorded units, and are rebuilt from the log: %(queues)s",
        count=len(names),
        queues=", ".join(names[:10]) + (", …" if len(names) > 10 else ""),
    )
    if not is_caught_up:
        _build(queues, commit_log, wanted, end_offset_bytes)
    if goes_on:
        go_on_behind(queues, wanted)
    queues.correct_min_offsets(commit_log.min_offset_bytes)


def _build(
    queues: ConsumeQueues, commit_log: CommitLog, wanted: dict[QueueKey, QueueEnd], end_offset_bytes: int
) -> None:
    for key, end in wanted.items():
        queue = queues.find(*key)
        if queue is not None:
            wanted[key] = QueueEnd(*key, end.min_queue_offset, max(end.max_queue_offset, queue.max_queue_offset))
            queues.delete_queue(*key)
    for batch in commit_log.batches(commit_log.min_offset_bytes, end_offset_bytes):
        requests = [*batch.requests_of(wanted)]
        if requests:
            queues.dispatch(RecordBatch.of_requests(requests))


def go_on_behind(queues: ConsumeQueues, wanted: Mapping[QueueKey, QueueEnd]) -> None:
    """Append fillers to queues up to their recorded ends, for last messages that the log does not have."""
    for (topic, queue_id), end in wanted.items():
        queue = queues.find(topic, queue_id)
        have = queue.max_queue_offset if queue is not None else 0
        if have < end.max_queue_offset and isinstance(queues, SupportsExtend):
            log.warning(
                "store.queue_goes_on",
                "queue %(queue)d of %(topic)s ends at %(end_offset)d, but its recorded end is %(noted_offset)d: the "
                "messages between are not in the log, and the queue continues after them",
                queue=queue_id,
                topic=topic,
                end_offset=have,
                noted_offset=end.max_queue_offset,
            )
            queues.extend(topic, queue_id, end.max_queue_offset)
