"""The index service (``IndexService`` of RocketMQ): finds messages by topic, key and time, in a sequence of index files.

Records are gathered, and their entries are written together: at a query, at a flush, or when enough records are gathered. If
the process dies, gathered records have no entries, and the next start dispatches these records again from the log.

See docs/internals/store-format.md, Index file; docs/internals/algorithms.md, Dispatch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from flintmq.core.errors import StoreError, StoreExhaustedError, StoreFormatError, is_exhausted
from flintmq.core.io.clock import Clock
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import AppendUnit, DispatchRequest, RecordBatch, StoreFolder, count_messages, requests_of
from flintmq.core.kernel.ports.queues import IndexCheckpoint
from flintmq.core.log_events import event_log
from flintmq.core.record.bulk_texts import index_key_hashes
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.sys_flag import indexed
from flintmq.core.steps import run_steps
from flintmq.dispatchers.index import index_bulk
from flintmq.dispatchers.index.index_file import IndexEntry, IndexFile

log = event_log("flintmq.store")

_GATHER_ENTRIES: Final = 2_048
"""Number of gathered index entries at which the index service writes the entries. Writing this number of entries takes about 4
ms without numpy."""
_GATHER_COLUMNS: Final = 262_144
"""Number of index entries, gathered from bulk reads of the log, at which the index service writes the entries. The number is
large, so that each written page of an index file has many changed slots."""


def make_index(folder: StoreFolder) -> IndexService:
    """Return the index of a store, with its existing index files. Files that a crash may have left incomplete are deleted and
    rebuilt later.

    Raises:
        StoreFormatError: an index file has an unexpected size.
    """
    settings = folder.config.index
    index = IndexService(
        folder.disk,
        folder.root / "index",
        settings.max_hash_slot_num,
        settings.max_index_num,
        folder.checkpoint,
        folder.clock,
        folder.sync_failed,
    )
    try:
        index.load(clean=folder.was_stopped, same_boot=folder.same_boot)
    except BaseException:
        index.close()
        raise
    return index


class IndexService:
    """The built-in index, which the dispatcher ``index`` uses unless a plugin replaces it. For the loop thread only."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        slots: int,
        entries: int,
        checkpoint: IndexCheckpoint,
        clock: Clock,
        sync_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self._slots = slots
        self._entries = entries
        self._checkpoint = checkpoint
        self._clock = clock
        self.files: list[IndexFile] = []
        self._waiting: list[AppendUnit] = []
        self._waiting_messages = 0
        self._waiting_entries = 0
        self._has_batches = False
        """Whether the gathered records whose index entries are not written yet may include batch sends."""
        self._waiting_columns: list[index_bulk.EntryColumns] = []
        """Index entries, not written yet, of records that were read in bulk. The list is empty while ``_waiting``, the list of
        records that were gathered in another way, has elements."""
        self._gathered_until_bytes = 0
        """Physical end of the last record whose index entries were gathered. It is 0 before the first record, and after the end
        of the log was cut off."""
        self._spoiled = ""
        """Error text of the first failed sync of the index; empty if no sync has failed."""
        self._is_complete = True
        """Whether the index files contain the entries of all records that were dispatched before this start of the broker, as
        after a clean stop."""
        self._sync_failed = sync_failed

    # --- writes ---

    def dispatch(self, batch: RecordBatch) -> None:
        """Gather records, in log order, and write their index entries if enough records are gathered.

        A batch contains numpy columns, dispatch requests, or records in the units in which they were appended (single records
        and batch sends). All three forms lead to the same bytes in the index files.
        """
        known = self._gathered_until_bytes
        if batch.begin_offset_bytes < known:
            # If a batch is dispatched again because another dispatcher failed, records that are already gathered are skipped.
            batch = RecordBatch.of_requests([r for r in batch.requests() if r.commit_log_offset_bytes >= known])
        if batch.has_columns:
            self._gather_columns(batch)
        else:
            self._gather(batch)
        if self._waiting_entries >= _GATHER_ENTRIES or (
            self._waiting_columns and sum(map(len, self._waiting_columns)) >= _GATHER_COLUMNS
        ):
            self.build()

    def _gather_columns(self, batch: RecordBatch) -> None:
        if self._waiting:
            self.build()
        self._waiting_columns.append(index_bulk.EntryColumns.of_records(batch.columns()))
        self._gathered_until_bytes = batch.end_offset_bytes

    def _gather(self, batch: RecordBatch) -> None:
        units = batch.units()
        kept = indexed(units)
        if not kept:
            return
        if self._waiting_columns:
            self.build()
        messages = len(batch) if len(kept) == len(units) else count_messages(kept)
        entries = messages + "".join([one.keys for one in kept]).count(" ")
        if self._waiting and self._waiting_entries + entries > _GATHER_ENTRIES:
            self.build()
        self._waiting += kept
        self._has_batches = self._has_batches or not batch.has_requests
        self._waiting_messages += messages
        self._waiting_entries += entries
        self._gathered_until_bytes = batch.end_offset_bytes

    def build(self) -> None:
        """Write the index entries of all gathered records, except entries that the files already have.

        Raises:
            StoreFullError: the disk has no space; the records stay gathered.
        """
        if self._waiting_columns:
            self._build_columns()
        if not self._waiting:
            return
        if index_bulk.is_worth_it(self._waiting_messages):
            columns = index_bulk.EntryColumns
            self._waiting_columns.append(
                columns.of_units(self._waiting)
                if self._has_batches
                else columns.of_requests(cast("list[DispatchRequest]", self._waiting))
            )
            self._forget_waiting()
            self._build_columns()
            return
        waiting = requests_of(self._waiting)
        taken_until = self._end()
        entries = self._entries_of(waiting, taken_until)
        if entries and entries[0][1] == taken_until:
            # The index may have only some entries of the last indexed record, because an index file was deleted or was full.
            # The entries that the index already has are not added again.
            have = self._count_at_end(taken_until)
            entries = [entry for at, entry in enumerate(entries) if at >= have or entry[1] != taken_until]
        while entries:
            if not self.files or self.files[-1].full:
                self._roll()
            taken = self.files[-1].put(entries)
            entries = entries[taken:]
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        self._waiting = []
        self._waiting_messages = self._waiting_entries = 0
        self._has_batches = False

    def _build_columns(self) -> None:
        taken_until = self._end()
        entries = index_bulk.EntryColumns.joined(self._waiting_columns).from_physical(taken_until)
        if len(entries) and entries.at(0)[1] == taken_until:
            have = self._count_at_end(taken_until)
            same = int((entries.physical == taken_until).sum())
            entries = entries.part(min(have, same))
        while len(entries):
            if not self.files or self.files[-1].full:
                self._roll()
            entries = entries.part(self.files[-1].put_columns(entries))
        self._waiting_columns = []

    @staticmethod
    def _entries_of(waiting: Sequence[DispatchRequest], taken_until: int) -> list[IndexEntry]:
        """Return the index entries for all keys of the gathered records from a physical offset on."""
        keyed = [(one, key) for one in waiting if one.commit_log_offset_bytes >= taken_until for key in index_keys(one)]
        topics, keys = [one.topic for one, _ in keyed], [key for _, key in keyed]
        if index_bulk.is_worth_it(len(keys)):
            hashes = index_key_hashes(topics, keys)
        else:
            hashes = list(map(index_key_hash, topics, keys))
        return [
            (key_hash, one.commit_log_offset_bytes, one.store_timestamp_ms)
            for key_hash, (one, _) in zip(hashes, keyed, strict=True)
        ]

    def _count_at_end(self, physical_offset_bytes: int) -> int:
        """Return the number of index entries of the last indexed record. These entries can be in more than one file."""
        count = 0
        for file in reversed(self.files):
            here = file.count_at_end(physical_offset_bytes)
            count += here
            if here < file.index_count - 1:
                break
        return count

    def _roll(self) -> None:
        previous = self.files[-1] if self.files else None
        if previous is not None:
            # Like RocketMQ, sync an index file when the file is full, and only then move the checkpoint's index time.
            self._sync(previous)
            if not self._spoiled:
                self._checkpoint.index_msg_timestamp_ms = previous.end_timestamp_ms
        file = IndexFile(self._disk, self._new_path(), self._slots, self._entries, create=True)
        if previous is not None:
            file.seed(previous.end_timestamp_ms, previous.end_physical_offset_bytes)
        self.files.append(file)

    def _sync(self, file: IndexFile) -> None:
        try:
            file.sync()
        except OSError as error:
            if is_exhausted(error):
                # If the process lacks memory or file descriptors, no sync was attempted, so the index file is not damaged.
                # The next write of entries syncs an index file that could not be synced.
                raise StoreExhaustedError(f"{file.path}: cannot be synced now: {error.strerror}") from error
            self._spoiled = f"{file.path}: cannot be synced: {error.strerror}"
            known_ms = self._checkpoint.index_msg_timestamp_ms
            self._checkpoint.index_msg_timestamp_ms = min(known_ms, file.end_timestamp_ms - 1)
            self._sync_failed()
            raise StoreError(self._spoiled) from error

    def _new_path(self) -> Path:
        """Return the path of a new index file. The file is named after the current time in milliseconds, or after a later
        millisecond if a file with this name exists."""
        now_ms = self._clock.now_ms()
        while True:
            local = time.localtime(now_ms // 1000)
            path = self.folder / f"{time.strftime('%Y%m%d%H%M%S', local)}{now_ms % 1000:03d}"
            if self.files and path.name <= self.files[-1].path.name:
                # The names of index files must ascend. If the clock was set back, the new name is the last file's name plus 1.
                path = self.folder / str(int(self.files[-1].path.name) + 1)
            if not self._disk.exists(path):
                return path
            now_ms += 1

    # --- reads ---

    def query(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> tuple[list[int], int, int]:
        """Find records by key, following one chain of entries in each file of the time range.

        See :meth:`flintmq.core.kernel.ports.IndexBuilder.query`.
        """
        return run_steps(self.query_steps(topic, key, max_num, begin_timestamp_ms, end_timestamp_ms))

    def query_steps(
        self, topic: str, key: str, max_num: int, begin_timestamp_ms: int, end_timestamp_ms: int
    ) -> Generator[None, None, tuple[list[int], int, int]]:
        """Find records like :meth:`query`, as a generator that yields regularly, so that other work can run in between."""
        self.build()
        found: list[int] = []
        key_hash = index_key_hash(topic, key)
        for file in self.files[::-1]:
            if file.closed:
                break  # A closed file and all older files were deleted during the search, so the search ends.
            if file.covers(begin_timestamp_ms, end_timestamp_ms):
                found += yield from file.select(key_hash, max_num - len(found), begin_timestamp_ms, end_timestamp_ms)
            if len(found) >= max_num or (file.index_count > 1 and file.begin_timestamp_ms < begin_timestamp_ms):
                break
        last = self.files[-1] if self.files else None
        return (
            found,
            last.end_timestamp_ms if last else 0,
            last.end_physical_offset_bytes if last else 0,
        )

    # --- files ---

    def load(self, *, clean: bool, same_boot: bool = False) -> None:
        """Map the index files. After a power failure, files that are not full, or that the checkpoint does not cover, are
        deleted.

        Args:
            clean: whether the store was stopped cleanly.
            same_boot: whether the machine has run without a reboot since the store was last used. In this case all writes of a
                killed process exist, so all index files are used.

        See docs/internals/algorithms.md, Abnormal recovery.
        """
        self._is_complete = clean
        expected = IndexFile.size_bytes(self._slots, self._entries)
        paths = self._disk.list_files(self.folder)
        if not clean and paths:
            self._disk.sync_folder(self.folder)
        trusted = True
        for path in paths:
            size = self._disk.size(path)
            if size == 0 and not clean:
                log.warning("store.empty_file", "%(path)s is empty: a crash interrupted its creation", path=path)
                self._disk.remove(path)
                continue
            if size != expected:
                raise StoreFormatError(
                    f"{path} has {size} bytes, but the configured size is {expected}: set index.max_hash_slot_num "
                    "(maxHashSlotNum) and index.max_index_num (maxIndexNum) to the values with which the store was created"
                )
            file = IndexFile(self._disk, path, self._slots, self._entries, create=False)
            if not clean:
                # After a crash of the machine, only full index files are trusted, because only full files were synced.
                vouched = file.full and file.end_timestamp_ms <= self._checkpoint.index_msg_timestamp_ms
                trusted = trusted and (same_boot or (vouched and path != paths[-1]))
                if not trusted or file.index_count <= 1:
                    file.close()
                    self._disk.remove(path)
                    continue
                file.settle()
            self.files.append(file)

    @property
    def ends(self) -> tuple[int, ...]:
        """The physical offset of the last indexed record of each index file, oldest file first."""
        return tuple(file.end_physical_offset_bytes for file in self.files)

    def truncate(self, end_offset_bytes: int) -> None:
        """Delete the index files with entries of records at or after a physical offset at which the log was cut."""
        self._gathered_until_bytes = 0
        while self.files and self.files[-1].end_physical_offset_bytes >= end_offset_bytes:
            file = self.files.pop()
            file.close()
            self._disk.remove(file.path)
            self._is_complete = False

    def committed_below(self, end_offset_bytes: int) -> int | None:
        """Return the value that :meth:`committed` will return after the log is cut at a physical offset."""
        kept = [end for end in self.ends if end < end_offset_bytes]
        if self._is_complete and len(kept) == len(self.files):
            return None
        return kept[-1] if kept else 0

    def committed(self) -> int | None:
        """Return the physical offset of the last record that the index contains, or 0 if the index is empty. A start adds the
        log's records from this offset on to the index again. Return None if the index has all records, as after a clean stop;
        the start then adds no records again."""
        return None if self._is_complete else self._end()

    def _end(self) -> int:
        return self.files[-1].end_physical_offset_bytes if self.files else 0

    def flush(self) -> None:
        """Write the index entries of all gathered records, and sync every changed index file.

        Raises:
            StoreError: a sync failed, now or earlier. A later successful sync does not prove that the files are complete, so
                the next start must not trust the files.
            StoreFullError: the disk has no space.
        """
        self.build()
        if self._spoiled:
            raise StoreError(self._spoiled)
        for file in self.files:
            if file.dirty:
                self._sync(file)

    def delete_before(self, min_physical_offset_bytes: int, remove: Callable[[Path, object], None]) -> int:
        """Remove the index files that only have entries of deleted messages, except the last file; return the number of removed
        files.

        ``remove`` is called with the path of each file and the object that keeps it mapped.
        """
        count = 0
        while len(self.files) > 1 and self.files[0].end_physical_offset_bytes < min_physical_offset_bytes:
            file = self.files.pop(0)
            file.close()
            remove(file.path, file)
            count += 1
        return count

    def evict(self) -> Iterator[None]:
        """Unmap the entries of the index files from the process's memory, yielding after each file."""
        for file in self.files[:]:
            file.evict_entries()
            yield

    def close(self) -> None:
        """Unmap all index files. Idempotent."""
        for file in self.files:
            file.close()
        self.files = []
