"""Deletes old files and checks the disks, in rounds (docs/internals/algorithms.md, Retention).

A round measures the disks, deletes commit log files, then the queue files and index files of deleted messages. It runs on the
loop thread in small slices. Large files are unlinked in a thread. A deleted file stays mapped while readers have views of it,
so that they can read their messages to the end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from flintmq.core.broker.log_files import LogFiles
from flintmq.core.errors import StoreError
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import Alarm, QueueReader, SupportsDeleteBefore
from flintmq.core.log_events import event_log
from flintmq.core.record import record as rec
from flintmq.core.retention.retention import (
    DELETE_FILES_MAX,
    Deletion,
    DiskUsage,
    LogFile,
    Moment,
    Reason,
    RetentionPolicy,
    Space,
    full_folders,
    is_held,
    judge_space,
    plan_deletions,
)
from flintmq.core.store.opened_store import commit_log_folders
from flintmq.plugins.retention.alarms import disks
from flintmq.plugins.retention.unread import (
    ConsumerOffsets,
    FileContents,
    ForcedDeletions,
    KeptForGroups,
    Unread,
    UnreadFinder,
    describe,
)

log = event_log("flintmq.store")
MANUAL_ROUNDS: Final = 20
_SLICE_QUEUES: Final = 128
__all__ = ["MANUAL_ROUNDS", "CleanCommitLogService", "ConsumerOffsets", "Reason", "Unread"]


class CleanCommitLogService:
    """Deletes old files in rounds; RocketMQ's CleanCommitLogService and CleanConsumeQueueService. Used only on the event loop's
    thread.

    A timer of the caller calls :meth:`tick`. Each round reads the settings again.

    Args:
        files: the files of the store.
        offsets: the consumer offsets of the broker's groups; None if the owner of the files has no consumer groups. They are
            needed to warn before unread messages are deleted. The consumer offsets in a deleted queue are removed.
        kept_topics: topics whose queues are kept even if all their messages have expired, because a feature of the broker
            stores queue offsets of these queues.
    """

    def __init__(
        self, files: LogFiles, offsets: ConsumerOffsets | None = None, kept_topics: Collection[str] = ()
    ) -> None:
        self._kept_topics = kept_topics
        self._files = files
        self._offsets = offsets
        self._clock = files.clock
        self.manual_rounds = 0
        """Number of coming cleaning rounds that delete expired files at any hour of the day. The request
        DELETE_EXPIRED_COMMITLOG (329) sets this number."""
        self.alarms: list[Alarm] = []
        """Alarms about full or nearly full disks, from the last measurement."""
        self._kept = KeptForGroups(files.clock)
        self._forced = ForcedDeletions(files.clock)
        self._bin = FileBin(files.disk, files.background)
        self._index_bin = FileBin(files.disk, files.background)
        self._round: Iterator[None] | None = None
        self._cleaned_to_bytes = -1
        self._warned: dict[int, set[str]] = {}
        self._silent_disks: set[Path] = set()

    @property
    def lost_alarms(self) -> list[Alarm]:
        """Alarms about messages that were kept for a group and were deleted in the last hour."""
        return self._kept.alarms()

    @property
    def forced_alarms(self) -> list[Alarm]:
        """Alarms about messages that were deleted in the last hour before they had expired."""
        return self._forced.alarms()

    # rounds

    def tick(self) -> float:
        """Run a slice of the current round of deletions, or begin a round; return the seconds until the next call."""
        if self._round is None:
            self._round = self.steps()
        try:
            next(self._round)
        except StopIteration:
            self._round = None
            return self._files.settings.store.clean_resource_interval_ms / 1000
        except BaseException:
            self._round = None
            raise
        return 0.0

    def run(self) -> None:
        """Run a whole round of deletions without a pause."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Run a round that deletes old files. Each step of the iterator runs a short part of the round, so that other work can
        run between two steps."""
        policy = RetentionPolicy.of(self._files.settings.store)
        space = self.check_space()
        self._bin.empty()  # Delete the files whose deletion failed in earlier rounds.
        self._index_bin.empty()
        yield
        yield from self._clean_commit_log(policy, space)
        self.expire_topics()
        yield
        yield from self._clean_queues()

    def delete_manually(self) -> None:
        """Delete expired files at any hour of the day in the next twenty rounds of deletions. The request
        DELETE_EXPIRED_COMMITLOG (329) calls this method."""
        self.manual_rounds = MANUAL_ROUNDS

    # space

    def check_space(self) -> Space:
        """Measure the use of the store's disks, and set or clear the store's ``disk_full``."""
        files = self._files
        policy = RetentionPolicy.of(files.settings.store)
        log_disks = [
            usage for folder in commit_log_folders(files.settings.store) if (usage := self._usage(folder)) is not None
        ]
        queue_disk = self._usage(files.queues.root)
        space = judge_space(log_disks, queue_disk, policy)
        self.alarms = disks(log_disks, queue_disk, policy)
        files.avoid(full_folders(log_disks, policy))
        if space.full is not None and files.disk_full is None:
            log.error(
                "disk.full",
                "the disk is full, writes are refused: %(measured)s; see %(key)s",
                measured=space.full.measured,
                key=space.full.key,
            )
        elif space.full is None and files.disk_full is not None:
            log.warning("disk.room_again", "there is room on the disk again, writes are accepted")
        files.set_disk_full(space.full)
        return space

    def _usage(self, folder: Path) -> DiskUsage | None:
        try:
            usage = DiskUsage(folder, *self._files.disk.usage(folder))
        except StoreError as error:
            if folder not in self._silent_disks:
                self._silent_disks.add(folder)
                log.error(
                    "disk.not_measured",
                    "nothing is deleted for want of space there, nor are writes refused: %(error)s",
                    error=error,
                )
            return None
        self._silent_disks.discard(folder)
        return usage

    # the commit log

    def _clean_commit_log(self, policy: RetentionPolicy, space: Space) -> Iterator[None]:
        files = self._files
        watermarks = files.log.marks
        now_ms = self._clock.now_ms()
        moment = Moment(
            now_ms,
            time.localtime(now_ms // 1000).tm_hour,
            watermarks.wrote,
            min(watermarks.dispatched, watermarks.flushed),
            space,
            self.manual_rounds > 0,
        )
        self.manual_rounds = max(0, self.manual_rounds - 1)
        deleted = 0
        finder = self._finder(policy)
        for deletion in plan_deletions(self._log_files(), moment, policy):
            contents, start = FileContents(), deletion.file.start_offset_bytes
            is_unexpired = deletion.is_unexpired(now_ms, policy)
            if finder is not None:
                yield from finder.find(deletion.file, contents, counts=is_unexpired)
                self._kept.note_seen(contents.seen, policy)
            unread = contents.unread
            bound = self._kept.bound(deletion, unread, policy)
            held = bool(unread) and is_held(deletion.file, moment.log_end_offset_bytes, policy)
            kept = bound is None and bool(self._kept.named(unread, policy))
            self._warn(deletion, unread, policy, held=held, kept=kept)
            if held or kept or (file := files.detach(start)) is None:
                break
            if bound is not None:
                self._kept.note_lost(start, unread, bound, policy)
            if is_unexpired:
                self._forced.note(deletion.file, contents)
            file.region.close()
            self._bin.put(file.path, file)
            self._warned.pop(file.start, None)
            deleted += 1
            log.info("retention.file_goes", "%(path)s goes: %(reason)s", path=file.path, reason=deletion.reason.value)
        self._bin.empty()
        if deleted == 0 and space.delete and space.forcibly:
            log.warning("disk.nearly_full", "the disk is nearly full, and no commit log file can be deleted")

    def _finder(self, policy: RetentionPolicy) -> UnreadFinder | None:
        """Return an object that finds messages which groups have not consumed; None without consumer groups."""
        if self._offsets is None:
            return None
        files = self._files
        return UnreadFinder(files.queues, self._offsets, policy.keep_for_groups, files.log.reader.message_at)

    def _log_files(self) -> list[LogFile]:
        """Return the files of the commit log that one round may delete, the oldest first, and the file after these files."""
        files = self._files
        oldest = files.files[: DELETE_FILES_MAX + 1]
        by_change = files.settings.store.compat == "strict"
        found = []
        for place, file in enumerate(oldest):
            newest_ms: int | None = None
            if by_change:
                newest_ms = files.disk.modified_ms(file.path)
            elif place + 1 < len(oldest):
                newest_ms = self._first_stored_ms(oldest[place + 1].start)
            found.append(LogFile(file.start, file.size, newest_ms))
        return found

    def _first_stored_ms(self, start_offset_bytes: int) -> int | None:
        """Return the store timestamp of a file's first record, in ms since 1970; None if the file does not begin with a record.

        All records in the preceding file were stored at this time or earlier.
        """
        head = self._files.log.slice(start_offset_bytes, rec.RECORD_MIN_BYTES)
        if head is None or rec.SIZE_AND_MAGIC.unpack_from(head)[1] not in (rec.MAGIC_V1, rec.MAGIC_V2):
            return None
        return self._files.log.store_timestamp_ms(start_offset_bytes)

    # --- warnings about messages that consumer groups would lose ---

    def _warn(
        self, deletion: Deletion, unread: list[Unread], policy: RetentionPolicy, *, held: bool, kept: bool
    ) -> None:
        """Log a warning about unread messages in a file, once if the file is kept and once if the file is deleted."""
        start, kind = deletion.file.start_offset_bytes, "held" if held or kept else "lost"
        named = self._kept.named(unread, policy)
        if held:
            told, what = unread, "it is kept (store.hold_until_consumed)"
        elif kept:
            told, what = named, "it is kept (store.keep_for_groups)"
        else:
            # The warning omits groups in keep_for_groups, because note_lost() logs a separate warning about keep_for_groups.
            told = [one for one in unread if one.group not in policy.keep_for_groups]
            what = (
                "it is deleted all the same (store.hold_max_bytes)"
                if policy.hold_until_consumed
                else "it is deleted (store.hold_until_consumed or store.keep_for_groups would keep it)"
            )
        if told and kind not in self._warned.setdefault(start, set()):
            self._warned[start].add(kind)
            log.warning(
                "retention.unread",
                "commit log file %(file)020d, %(reason)s: %(group)s; %(what)s",
                file=start,
                reason=deletion.reason.value,
                group=describe(told),
                what=what,
            )

    # --- deletion of expired messages from consume queues and from the index ---

    def expire_topics(self) -> None:
        """Raise the minimum queue offset past expired messages in topics that have their own retention (``topic_retention``).

        Call this method once after a start, too, because a recovery sets the minimum to the first message that is still in the
        log.
        """
        files = self._files
        retention_ms = files.settings.store.topic_retention_ms
        for (topic, _queue_id), queue in list(files.queues.queues.items()) if retention_ms else ():
            if topic in retention_ms:
                self._expire(queue, self._is_older(queue, retention_ms[topic]))

    def _is_older(self, queue: QueueReader, retention_ms: int) -> Callable[[int], bool]:
        """Return a function that takes a physical offset, and returns whether the message at this offset has expired by its
        topic's retention and is not kept for a group."""
        policy = RetentionPolicy.of(self._files.settings.store)
        stored_ms, now_ms = self._files.log.store_timestamp_ms, self._clock.now_ms()
        finder = self._finder(policy)
        kept_from = finder.first_kept(queue, all_groups=False) if finder and policy.keep_for_groups else None
        held_from = finder.first_kept(queue, all_groups=True) if finder and policy.hold_until_consumed else None
        kept_ms = max(retention_ms, policy.keep_at_most_ms)
        holds_from = self._files.log.marks.wrote - policy.hold_max_bytes

        def is_older(physical: int) -> bool:
            if held_from is not None and physical >= max(held_from, holds_from):
                return False
            is_kept = kept_from is not None and physical >= kept_from
            return stored_ms(physical) <= now_ms - (kept_ms if is_kept else retention_ms)

        return is_older

    def _clean_queues(self) -> Iterator[None]:
        """Delete the queue files and index files whose messages were all deleted from the log."""
        files = self._files
        min_offset_bytes = files.log.min_offset_bytes
        if min_offset_bytes == self._cleaned_to_bytes:
            return
        complete = True
        for place, key in enumerate(list(files.queues.queues)):
            queue = files.queues.find(*key)
            if queue is not None:
                complete = self._expire(queue, lambda physical: physical < min_offset_bytes) and complete
            if place % _SLICE_QUEUES == _SLICE_QUEUES - 1:
                yield
        if isinstance(files.index, SupportsDeleteBefore):
            files.index.delete_before(min_offset_bytes, self._index_bin.put)
            self._index_bin.empty()
        if complete:
            self._cleaned_to_bytes = min_offset_bytes

    def _expire(self, queue: QueueReader, is_gone: Callable[[int], bool]) -> bool:
        try:
            return queue.expire(is_gone)
        except OSError as error:
            log.error(
                "retention.queue_not_deleted",
                "a file of %(topic)s queue %(queue_id)d could not be deleted: %(error)s",
                topic=queue.topic,
                queue_id=queue.queue_id,
                error=error,
            )
            return False

    def clean_expired_queues(self) -> int:
        """Delete consume queues whose messages are all deleted, and the consumer offsets in these queues; return the number of
        deleted queues.

        The request CLEAN_EXPIRED_CONSUMEQUEUE (306) calls this method. The queues of ``kept_topics`` are not deleted.
        """
        files = self._files
        min_offset_bytes = files.log.min_offset_bytes
        expired = [
            key
            for key, queue in files.queues.queues.items()
            if key[0] not in self._kept_topics and 0 <= queue.max_physical_offset_bytes <= min_offset_bytes
        ]
        for topic, queue_id in expired:
            files.delete_queue(topic, queue_id)
            if self._offsets is not None:
                self._offsets.remove_queue(topic, queue_id)
            log.info(
                "retention.queue_removed",
                "%(topic)s queue %(queue_id)d removed: all of its messages are deleted",
                topic=topic,
                queue_id=queue_id,
            )
        return len(expired)


class FileBin:
    """A queue of files that are deleted in a thread, because a disk may need long to unlink a large file.

    If a file cannot be deleted, it stays first in the queue and :meth:`empty` tries it again. Later files wait, because a log
    that lacks a file between two other files could not be opened. Files that are not deleted before the broker stops belong to
    the log at the next start.

    Args:
        disk: deletes the files.
        executor: runs the deletions; None deletes files on the caller's thread.
    """

    def __init__(self, disk: Disk, executor: Executor | None) -> None:
        self._disk = disk
        self._executor = executor
        self._waiting: deque[tuple[Path, object]] = deque()
        self._lock = threading.Lock()
        self.failures = 0
        """Number of failed attempts to delete a file."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, path: Path, kept_until_then: object = None) -> None:
        """Add a file to the queue of files to delete. The caller calls :meth:`empty` afterwards.

        Args:
            path: the file.
            kept_until_then: object that maps the file into memory. It is released only after the file is deleted, on the thread
                that deletes the file, because unmapping a large file also takes long.
        """
        self._waiting.append((path, kept_until_then))

    def empty(self) -> None:
        """Delete the files that wait for deletion, in a thread if there is an executor."""
        if not self._waiting:
            return
        if self._executor is None:
            self._empty()
        else:
            self._executor.submit(self._empty)

    def _empty(self) -> None:
        with self._lock:
            while self._waiting:
                path, _kept = self._waiting[0]
                try:
                    self._disk.remove(path)
                except (OSError, StoreError) as error:
                    self.failures += 1
                    log.error(
                        "retention.not_deleted",
                        "%(path)s could not be deleted, %(waiting)d files wait: %(error)s",
                        path=path,
                        waiting=len(self._waiting),
                        error=error,
                    )
                    return
                self._waiting.popleft()
                log.info("retention.deleted", "%(path)s deleted", path=path)
