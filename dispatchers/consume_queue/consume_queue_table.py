"""The dispatcher ``consume_queue``: all consume queues of a store. See docs/internals/store-format.md, Consume queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

from flintmq.core.errors import StoreError
from flintmq.core.event import Event
from flintmq.core.io.disk import Disk, evict_slices
from flintmq.core.io.paths import queue_folder, topic_folder
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, DispatchRequest, RecordBatch, StoreFolder, requests_of
from flintmq.core.log.mapped_file_queue import OS_PAGE_BYTES, MappedFile
from flintmq.core.record.bulk_columns import RecordColumns
from flintmq.core.record.queue_unit import UNIT, UNIT_BYTES
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.rows import rows_struct
from flintmq.core.record.sys_flag import queued
from flintmq.core.record.topic_lives import DELETIONS, begins_again, deleted_topic
from flintmq.dispatchers.consume_queue import queue_units
from flintmq.dispatchers.consume_queue.consume_queue import FILLER, ConsumeQueue
from flintmq.dispatchers.consume_queue.consume_queue_ext import FOLDER as EXT
from flintmq.dispatchers.consume_queue.consume_queue_ext import ConsumeQueueExt, ExtFiles
from flintmq.dispatchers.consume_queue.queues_by_key import QueuesByKey

_QUEUE_OFFSET: Final = attrgetter("queue_offset")
AnyUnit = TypeVar("AnyUnit", DispatchRequest, AppendUnit)


def make_consume_queues(folder: StoreFolder) -> ConsumeQueueTable:
    """Return the consume queues of a store; each ends after its last valid unit.

    Raises:
        StoreFormatError: a queue file has an unexpected size or name.
    """
    settings = folder.config.store
    table = ConsumeQueueTable(
        folder.disk,
        folder.root / "consumequeue",
        settings.consume_queue_file_bytes,
        ExtFiles(folder.root / EXT, settings.consume_queue_ext_file_bytes, settings.consume_queue_ext_enable),
        fills_gaps=settings.compat == "safe",
        gone_below_bytes=folder.min_offset_bytes,
    )
    try:
        table.load(crashed=not folder.was_stopped)
        table.recover()
    except BaseException:
        table.close()
        raise
    return table


class ConsumeQueueTable:
    """The essential dispatcher ``consume_queue``: all consume queues of a store. For the loop thread only, except
    :meth:`flush`, which any thread may call.

    Ordinary and committed records get a unit; prepared and rolled back records do not. See
    :class:`flintmq.core.kernel.ports.ConsumeQueues`.

    Args:
        disk: the disk interface.
        root: the folder of the queues.
        file_bytes: the size of a queue file.
        ext: the location of the extension files with tags codes and bit maps; None: they are neither read nor written.
        fills_gaps: whether messages lost in a damaged log get filler units in their queues, so that later messages keep their
            queue offsets. RocketMQ appends later messages without filler units.
        gone_below_bytes: the physical start of the log when the store was opened.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        file_bytes: int,
        ext: ExtFiles | None = None,
        *,
        fills_gaps: bool = True,
        gone_below_bytes: int = 0,
    ) -> None:
        self._disk = disk
        self.root = root
        self._fills_gaps = fills_gaps
        self._file_bytes = -(-file_bytes // UNIT_BYTES) * UNIT_BYTES
        self._ext = ext
        self._writes_ext = ext is not None and ext.writes
        self.queues = QueuesByKey()
        self._gone_below_bytes = gone_below_bytes
        self.last_store_timestamp_ms = 0
        """Store time of the newest message with a consume queue unit, in ms since 1970."""
        self.deleted: Event[[str, int]] = Event()
        """Event published with the topic and the queue id after a consume queue was deleted. If a message has queue offset 0
        again, the old queue is deleted, and a new queue begins."""

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the consume queue of a topic and queue id; None if the queue does not exist."""
        return self.queues.get((topic, queue_id))

    def dispatch(self, batch: RecordBatch) -> None:
        """Add consume queue units for the visible records of a batch, with one write per queue. Records already in a queue are
        skipped.

        A batch contains its records in one of three forms: numpy columns, dispatch requests, or append units. A dispatch
        request describes a single record. An append unit describes all records that were appended together: a single record or
        a whole batch send. All three forms lead to the same bytes in the queue files.

        Columns and append units are used for a queue only if the queue offsets of the new records continue at the queue's end.
        Otherwise the queue's records are added as requests. If extension files are written or the batch deletes a topic, all
        records of the batch are added as requests.

        Raises:
            StoreFullError: the disk has no space for the next queue file.
        """
        if batch.has_columns and not self._writes_ext:
            self._put_columns(batch.columns())
        elif batch.has_requests or self._writes_ext:
            requests = queued(batch.requests())
            if requests:
                self._put_requests(requests)
        else:
            units = queued(batch.units())
            if units:
                self._put_units(units)

    def _put_lives(self, requests: Sequence[DispatchRequest]) -> None:
        """Add units for records. At a record that deletes a topic, delete the topic's queues with their earlier units."""
        begin = 0
        for at, request in enumerate(requests):
            if topic := deleted_topic(request):
                self._put_groups(_by_queue(requests[begin:at]))
                self.end_topic(topic, request.commit_log_offset_bytes)
                begin = at
        self._put_groups(_by_queue(requests[begin:]))

    def end_topic(self, topic: str, physical_offset_bytes: int) -> None:
        """Delete the queues of a topic that was deleted at a physical offset.

        If all units of a queue refer to later records, the queue is kept. If a queue has units of earlier and of later records,
        the whole queue is deleted, because the later records are dispatched again.
        """
        for key in self.queues_of(topic):
            queue = self.queues[key]
            newer = queue.first_from(lambda physical: physical < physical_offset_bytes)
            if newer > queue.min_queue_offset or newer == queue.max_queue_offset:
                self.delete_queue(*key)

    def _put_requests(self, requests: Sequence[DispatchRequest]) -> None:
        groups = _by_queue(requests)
        if DELETIONS in groups:
            self._put_lives(requests)
        else:
            self._put_groups(groups)
        self.last_store_timestamp_ms = requests[-1].store_timestamp_ms

    def _put_groups(self, groups: Mapping[tuple[str, int], list[DispatchRequest]]) -> None:
        queues = self.queues
        for key, group in groups.items():
            queue = queues.get(key)
            if queue is None:
                queue = queues[key] = self._new_queue(*key)
            seen = queue.max_physical_offset_bytes
            if group[0].commit_log_offset_bytes + group[0].message_size_bytes <= seen:
                group = [r for r in group if r.commit_log_offset_bytes + r.message_size_bytes > seen]
                if not group:
                    continue
            next_offset = queue.max_queue_offset
            if [*map(_QUEUE_OFFSET, group)] != [*range(next_offset, next_offset + len(group))]:
                self._put_with_gaps(queue, group)
            else:
                self._put_plain(queue, group)

    def _put_units(self, units: Sequence[AppendUnit]) -> None:
        groups = _by_queue(units)
        if DELETIONS in groups:
            self._put_requests(requests_of(units))
            return
        for key, group in groups.items():
            queue = self.queues.get(key)
            if queue is not None and _goes_on(queue, group):
                last = group[-1]
                end = last.commit_log_offset_bytes + last.message_size_bytes
                queue.put([*map(_units_of, group)], group[0].queue_offset, end)
            else:
                self._put_requests(requests_of(group))
        self.last_store_timestamp_ms = units[-1].store_timestamp_ms

    def _put_columns(self, columns: RecordColumns) -> None:
        rows = queue_units.visible_rows(columns)
        if not len(rows):
            return
        groups = [*queue_units.by_queue(columns, rows)]
        if any(key == DELETIONS for key, _group in groups):
            self._put_requests(columns.requests(rows))
            return
        for (topic, queue_id), group in groups:
            queue = self.queues.get((topic, queue_id))
            if queue is not None:
                new = queue_units.behind(columns, group, queue.max_physical_offset_bytes)
                if not len(new):
                    continue
                first, end = queue_units.first_of_run(columns, new), queue.max_queue_offset
                if first == end or (first > 0 and not self._fills_gaps):
                    last_end = int(columns.physical[new[-1]] + columns.size[new[-1]])
                    queue.put([queue_units.units(columns, new)], int(columns.queue_offset[new[0]]), last_end)
                    continue
            self._put_requests(columns.requests(group))
        self.last_store_timestamp_ms = int(columns.store_timestamp_ms[rows[-1]])

    def _put_with_gaps(self, queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        """Add units whose queue offsets do not all follow the queue's end without a gap.

        If a message has queue offset 0 again, the queue is replaced by a new queue. If units are missing, filler units replace
        them, but only if that many records fit into the log between the messages before and after the gap.
        """
        begin = 0
        known = queue.max_physical_offset_bytes
        if self._fills_gaps and 0 < group[0].queue_offset < queue.max_queue_offset:
            unit = queue.unit(group[0].queue_offset)
            if known < 0:
                # The queue's first files were lost, so its other files are deleted, and all its units are written again.
                queue.files.destroy()
            elif known <= self._gone_below_bytes and unit is not None and unit[0] < self._gone_below_bytes:
                # The message to which ``unit`` refers was deleted, because it was before the start of the log.
                # ``unit`` and all later units of the queue are removed, so that the dispatched messages' units can be written.
                queue.cut(group[0].queue_offset)
                known = queue.max_physical_offset_bytes
        expected = queue.max_queue_offset if queue.files.files else group[0].queue_offset
        for at, request in enumerate(group):
            gap = request.queue_offset - expected
            if begins_again(request.queue_offset, expected):
                self.delete_queue(queue.topic, queue.queue_id)
                queue = self.queues[queue.topic, queue.queue_id] = self._new_queue(queue.topic, queue.queue_id)
                begin, expected = at, 0
            elif self._fills_gaps and 0 < gap <= (request.commit_log_offset_bytes - max(known, 0)) // RECORD_MIN_BYTES:
                self._put_plain(queue, group[begin:at])
                queue.put([FILLER] * gap, expected, queue.max_physical_offset_bytes)
                begin = at
                expected += gap
            expected += 1
            known = request.commit_log_offset_bytes + request.message_size_bytes
        self._put_plain(queue, group[begin:])

    def _put_plain(self, queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        if not group:
            return
        if self._writes_ext:
            self._put_with_ext(queue, group)
            return
        pack = UNIT.pack
        last = group[-1]
        queue.put(
            [pack(r.commit_log_offset_bytes, r.message_size_bytes, r.tags_code) for r in group],
            group[0].queue_offset,
            last.commit_log_offset_bytes + last.message_size_bytes,
        )

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(self._disk, self.root, topic, queue_id, self._file_bytes)
        if self._writes_ext:
            self._load_ext(queue)
            queue.end_ext()  # Existing extension units belong to a deleted queue of the same name, so they are removed.
        return queue

    def _load_ext(self, queue: ConsumeQueue, *, crashed: bool = False) -> None:
        """Give a consume queue its extension files, and load existing ones. A queue without extension files gets none if the
        configuration switches them off."""
        files = self._ext
        if files is None or not (
            files.writes or self._disk.exists(queue_folder(files.root, queue.topic, queue.queue_id))
        ):
            return
        queue.ext = ConsumeQueueExt(self._disk, files.root, queue.topic, queue.queue_id, files.file_bytes)
        queue.ext.load(crashed=crashed)

    @staticmethod
    def _put_with_ext(queue: ConsumeQueue, group: Sequence[DispatchRequest]) -> None:
        """Add units to a consume queue, with their extension units. If adding fails, the extension units are removed again,
        because the caller adds the same units later."""
        last = group[-1]
        assert queue.ext is not None
        try:
            queue.put(
                [
                    UNIT.pack(request.commit_log_offset_bytes, request.message_size_bytes, code)
                    for request, code in zip(group, queue.ext.put(group), strict=True)
                ],
                group[0].queue_offset,
                last.commit_log_offset_bytes + last.message_size_bytes,
            )
        except StoreError:
            queue.end_ext()
            raise

    def load(self, *, crashed: bool = False) -> None:
        """Map the files of all consume queues on disk, including queues of topics that ``topics.json`` does not contain.

        If ``crashed`` is set, the folders are synced first, because file names may not have reached the disk before the crash.
        """
        topic_paths = self._disk.list_folders(self.root)
        for folder in (self.root, *topic_paths) if crashed and topic_paths else ():
            self._disk.sync_folder(folder)
        for topic_path in topic_paths:
            for queue_path in self._disk.list_folders(topic_path):
                if queue_path.name.isdigit():
                    queue = ConsumeQueue(self._disk, self.root, topic_path.name, int(queue_path.name), self._file_bytes)
                    queue.load(crashed=crashed)
                    self._load_ext(queue, crashed=crashed)
                    self.queues[(topic_path.name, int(queue_path.name))] = queue

    def recover(self) -> None:
        """Set the end of every consume queue to its first invalid unit."""
        for queue in self.queues.values():
            queue.recover()
            queue.end_ext()

    def truncate(self, end_offset_bytes: int) -> None:
        """Remove the units whose messages end after a physical offset from all consume queues; removed units are overwritten
        with zeros."""
        for queue in self.queues.values():
            if queue.max_physical_offset_bytes > end_offset_bytes:
                queue.truncate_physical(end_offset_bytes)
                queue.end_ext()

    def correct_min_offsets(self, min_physical_offset_bytes: int) -> None:
        for queue in self.queues.values():
            queue.correct_min_offset(min_physical_offset_bytes)

    def flush(self, least_pages: int) -> None:
        """Sync queue files with at least ``least_pages`` dirty pages (0: all modified files).

        Raises OSError; a file whose sync failed still counts as unsynced.
        """
        for key, queue in list(self.queues.items()):
            for file in self._files(queue):
                dirty = file.wrote // OS_PAGE_BYTES - file.flushed // OS_PAGE_BYTES
                if least_pages == 0:
                    due = file.flushed < file.wrote or file.unsynced
                else:
                    due = file.flushed < file.wrote and (dirty >= least_pages or file.wrote == file.size)
                if due:
                    try:
                        file.flush()
                    except (OSError, ValueError):
                        # The event loop's thread may delete a queue, and close the maps of its files, during this loop.
                        if self.queues.get(key) is queue:
                            raise

    def evict(self) -> Iterator[None]:
        """Unmap synced parts of queue files from the process's memory. The generator yields after each part; queues may change
        while it is suspended."""
        for queue in list(self.queues.values()):
            for file in self._files(queue):
                yield from evict_slices(file.region, file.flushed)

    @staticmethod
    def _files(queue: ConsumeQueue) -> list[MappedFile]:
        """Return a queue's files in the order in which they are synced. The extension files are first, because units in the
        queue files refer to them."""
        return [*(queue.ext.files.files if queue.ext is not None else ()), *queue.files.files]

    def extend(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Append filler units, which stand for no message, to a queue up to a queue offset. Implements
        :class:`flintmq.core.kernel.ports.SupportsExtend`."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self.queues[topic, queue_id] = self._new_queue(topic, queue_id)
        missing = queue_offset - queue.max_queue_offset if queue.files.files else 0
        queue.put([FILLER] * missing, queue_offset - missing, queue.max_physical_offset_bytes)

    def queues_of(self, topic: str) -> list[tuple[str, int]]:
        """Return the pairs (topic, queue id) of a topic's queues, without a search through the queues of other topics."""
        return [(topic, queue_id) for queue_id in sorted(self.queues.ids_of(topic))]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete one consume queue with its files. Raises OSError; the queue then stays with its remaining files."""
        queue = self.queues.get((topic, queue_id))
        if queue is not None:
            # The queue leaves the table first, so that a sync on another thread can distinguish a deletion from a failed sync.
            del self.queues[topic, queue_id]
            try:
                queue.destroy()
            except OSError:
                self.queues[topic, queue_id] = queue
                raise
            self._disk.remove_folder(topic_folder(self.root, topic))
            self.deleted.publish(topic, queue_id)

    def close(self) -> None:
        """Unmap the files of all consume queues. Idempotent."""
        for queue in self.queues.values():
            queue.close()
        self.queues.clear()


def _goes_on(queue: ConsumeQueue, group: Sequence[AppendUnit]) -> bool:
    """Return whether the queue offsets of new records begin at a queue's end and have no gaps. The result is False if the queue
    already has the first record.

    Args:
        queue: the queue.
        group: the records, each a single record or a batch send.
    """
    if group[0].commit_log_offset_bytes < queue.max_physical_offset_bytes:
        return False
    expected = queue.max_queue_offset
    for unit in group:
        if unit.queue_offset != expected:
            return False
        expected += len(unit) if isinstance(unit, AppendedBatch) else 1
    return True


def _by_queue(units: Sequence[AnyUnit]) -> dict[tuple[str, int], list[AnyUnit]]:
    """Group single records and batch sends by their queue, in order. This is fast, because adjacent records usually belong to
    the same queue."""
    grouped: dict[tuple[str, int], list[AnyUnit]] = {}
    topic, queue_id = "", -1
    group: list[AnyUnit] = []
    for unit in units:
        if unit.queue_id != queue_id or unit.topic != topic:
            topic, queue_id = unit.topic, unit.queue_id
            group = grouped.setdefault((topic, queue_id), [])
        group.append(unit)
    return grouped


def _units_of(appended: AppendUnit) -> bytes:
    if not isinstance(appended, AppendedBatch):
        return UNIT.pack(appended.commit_log_offset_bytes, appended.message_size_bytes, appended.tags_code)
    count, sizes, tags_codes = len(appended), appended.sizes, appended.tags_codes
    if sizes.count(sizes[0]) == tags_codes.count(tags_codes[0]) == count:
        # If all records have the same size and tag, the units differ only in the position, so a faster way packs the units.
        alike: list[bytes | int] = [0, UNIT.pack(0, sizes[0], tags_codes[0])[8:]] * count
        alike[0::2] = appended.positions
        return rows_struct(count, "q12s").pack(*alike)
    fields = [0, 0, 0] * count
    fields[0::3], fields[1::3], fields[2::3] = appended.positions, sizes, tags_codes
    return rows_struct(count, "qiq").pack(*fields)
