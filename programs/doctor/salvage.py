"""Copies all undamaged records of a damaged store to a new store, also those after damaged parts.

Three fields of a record may change: its physical offset; its queue offset if messages before it are lost, because a queue has
no gaps; and an invalid port, which becomes 0. Stored consumer and delay offsets are adapted, so that each group continues at
the same message. Offsets that clients store cannot be adapted: message ids with host and physical offset of moved messages, and
the offsets of broadcasting consumers.
"""

from __future__ import annotations

import shutil
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.paths import file_name
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.record import BLANK_MIN_BYTES, Record, check_host, encode_blank
from flintmq.core.record.sys_flag import is_queued
from flintmq.core.record.topic_lives import begins_again, deleted_topic
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes, save_delay_times
from flintmq.programs.doctor.delays import delays_of
from flintmq.programs.doctor.expected import QueueKey, is_lost
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify_config import offsets_of
from flintmq.programs.doctor.walk import walk

_PLACES: Final = struct.Struct(">qq")
_PLACES_AT: Final = 20
"""Position of the field queueOffset in a record. The field physicalOffset follows queueOffset."""
_BORN_HOST_AT: Final = 48
_STORE_TIMESTAMP_BYTES: Final = 8
_PORT_BYTES: Final = 4
_LEAST_FILE_BYTES: Final = 4096
"""Minimum size of a commit log file that a broker accepts. The salvaged log files have at least this size, even if all files of
the store were truncated."""


@attrs.define
class Salvaged:
    """The counts of a salvage, such as the numbers of copied records and of lost bytes."""

    records: int = 0
    bytes: int = 0
    lost_stretches: int = 0
    lost_bytes: int = 0
    moved: int = 0
    """Number of records that have another queue offset in the salvaged log."""
    moved_offsets: int = 0
    """Number of consumer offsets and delay offsets that were adapted to the new queue offsets."""


def salvage(
    files: StoreFiles,
    target: Path,
    progress: Callable[[int], None] | None = None,
    delay_level_ms: Mapping[int, int] | None = None,
) -> Salvaged:
    """Copy log and configuration to a new folder, and return the counts. ``rebuild`` makes queues and index afterwards.

    Args:
        files: the damaged store.
        target: the new folder.
        progress: called with the number of bytes of the log that are done.
        delay_level_ms: see :func:`flintmq.programs.doctor.rebuild.rebuild`.

    Raises:
        StoreFormatError: the target exists and is not empty, or the store has no log.
        StoreError: the disk is full, or the target cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreFormatError(f"{target}: is not an empty folder; name a new folder for the salvage")
    if target.resolve().is_relative_to(files.root.resolve()):
        raise StoreFormatError(f"{target}: lies inside of the store; name a folder outside of the store")
    if not files.log_bytes:
        raise StoreFormatError(
            f"{files.root}: the store has no commit log to salvage; check store.path and store.commit_log_paths"
        )
    try:
        return _salvage(files, target, progress, delays_of(files, delay_level_ms).times)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written: {error.strerror or error}") from error


def _salvage(files: StoreFiles, target: Path, progress: Callable[[int], None] | None, delays: DelayTimes) -> Salvaged:
    result = Salvaged()
    moved_delays = DelayTimes()
    (target / "commitlog").mkdir(parents=True)
    # If the salvage is interrupted, the file abort keeps a broker from reading the target as a complete store.
    (target / "abort").touch()
    if (files.root / "config").is_dir():
        shutil.copytree(files.root / "config", target / "config")
    numbers = Renumbering()
    with _LogWriter(target / "commitlog", files.log_start, max(files.log_file_bytes, _LEAST_FILE_BYTES)) as writer:
        for piece in walk(files, progress):
            if piece.kind is Kind.DAMAGE:
                result.lost_stretches += 1
                result.lost_bytes += piece.end - piece.start
            if piece.kind is not Kind.RECORD or piece.record is None:
                continue
            record = piece.record
            if is_lost(record):
                continue
            file = files.log_file(piece.start)
            assert file is not None
            raw = bytearray(file.view[piece.start - file.start : piece.end - file.start])
            queue_offset = record.queue_offset
            if is_queued(record.sys_flag):
                if topic := deleted_topic(record):
                    numbers.end_topic(topic)
                queue_offset = numbers.take((record.topic, record.queue_id), record.queue_offset)
                result.moved += queue_offset != record.queue_offset
            place = writer.place_for(len(raw))
            _PLACES.pack_into(raw, _PLACES_AT, queue_offset, place)
            _mend_ports(raw, record)
            if record.topic == SCHEDULE_TOPIC:
                delay_ms = delays.delay_ms(record.queue_id + 1, piece.start)
                if delay_ms is not None:
                    moved_delays.note(record.queue_id + 1, place, delay_ms)
            writer.append(raw)
            result.records += 1
            result.bytes += len(raw)
    if moved_delays.levels:
        save_delay_times(target, moved_delays)
    if numbers.changed():
        result.moved_offsets = translate_offsets(target / "config", numbers)
    (target / "abort").unlink()
    return result


def _mend_ports(raw: bytearray, record: Record) -> None:
    """Set the port of a record's born host or store host to 0 if the port is out of range, because Java readers would refuse
    the record. A damaged port is not detected otherwise, because no checksum covers the ports."""
    end = _BORN_HOST_AT
    for host, before_bytes in ((record.born_host, 0), (record.store_host, _STORE_TIMESTAMP_BYTES)):
        end += before_bytes + len(host)
        try:
            check_host(host)
        except ValueError:
            raw[end - _PORT_BYTES : end] = bytes(_PORT_BYTES)


class _LogWriter:
    """Writes consecutive records to files of one size, with a BLANK record where the next record does not fit."""

    def __init__(self, folder: Path, start: int, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._start = start
        self._at = 0
        self._file = self._open()

    def __enter__(self) -> _LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        file = (self._folder / file_name(self._start)).open("wb")
        file.truncate(self._file_bytes)
        return file

    def place_for(self, size: int) -> int:
        """Return the physical offset that the next record, whose size is given, will have in the new log."""
        if self._at + size + BLANK_MIN_BYTES > self._file_bytes and self._at:
            if self._file_bytes - self._at >= BLANK_MIN_BYTES:
                self._file.write(encode_blank(self._file_bytes - self._at))
            self._file.close()
            self._start += self._file_bytes
            self._at = 0
            self._file = self._open()
        return self._start + self._at

    def append(self, raw: bytearray) -> None:
        self._file.write(raw)
        self._at += len(raw)


class Renumbering:
    """Assigns new queue offsets to messages, consecutive from the first queue offset of each queue. The queue offsets are
    unchanged if no message is lost."""

    def __init__(self) -> None:
        self._steps: dict[QueueKey, list[tuple[int, int]]] = {}
        """Pairs of an old and a new queue offset, keyed by queue. There is a pair for the queue's first message, and one for
        each message at which the difference between the two offsets changes."""
        self._next: dict[QueueKey, tuple[int, int]] = {}
        """(old, new) queue offset of the message that is expected next, keyed by queue."""

    def take(self, key: QueueKey, queue_offset: int) -> int:
        """Return the new queue offset of the next message of a queue."""
        old, new = self._next.get(key, (queue_offset, queue_offset))
        steps = self._steps.setdefault(key, [(queue_offset, queue_offset)])
        if begins_again(queue_offset, old):
            new = 0
        if queue_offset < old:
            # A message with a smaller queue offset than expected means that the topic was deleted and created again.
            # Pairs of old and new offsets of a deleted queue are removed, because consumer offsets refer to the new queue.
            steps.clear()
        if queue_offset != old:
            steps.append((queue_offset, new))
        self._next[key] = (queue_offset + 1, new + 1)
        return new

    def end_topic(self, topic: str) -> None:
        """Record that a topic is deleted. If the topic is created again, its queues are numbered independently of the deleted
        queues."""
        for key in [key for key in self._next if key[0] == topic]:
            del self._next[key], self._steps[key]

    def changed(self) -> bool:
        """Return whether the queue offset of any message has changed."""
        return any(old != new for steps in self._steps.values() for old, new in steps)

    def translate(self, key: QueueKey, queue_offset: int) -> int:
        """Return the new queue offset for an old queue offset. If the message at the old offset is lost, return the new queue
        offset of the next remaining message."""
        steps = self._steps.get(key)
        if not steps:
            return queue_offset
        at = bisect_right(steps, (queue_offset, 2**63)) - 1
        if at < 0:
            return queue_offset if steps[0][0] == steps[0][1] else steps[0][1]
        old, new = steps[at]
        following = steps[at + 1][1] if at + 1 < len(steps) else 2**63
        return min(new + queue_offset - old, following)


def translate_offsets(config: Path, numbers: Renumbering) -> int:
    """Rewrite consumer and delay offsets in a ``config`` folder, and return the number of changed offsets.

    A file that cannot be read is not changed; ``flintmq verify`` reports the file. Raises StoreError if a file cannot be
    written.
    """
    changed = 0
    for name in ("consumerOffset.json", "delayOffset.json"):
        file = JsonFile(config / name)
        try:
            value = file.load()
        except StoreError:
            continue
        changed += _translate(file, value, numbers)
    return changed


def _translate(file: JsonFile, value: Any, numbers: Renumbering) -> int:
    moves: list[tuple[QueueKey, int, int]] = []
    for _who, key, consumer_offset in offsets_of(file.path, value):
        if key is not None and type(consumer_offset) is int:
            moved = numbers.translate(key, consumer_offset)
            if moved != consumer_offset:
                moves.append((key, consumer_offset, moved))
    if not moves:
        return 0
    table = value["offsetTable"]
    for name, queues in table.items():
        if isinstance(queues, dict):
            topic = str(name).partition("@")[0]
            for queue_id, consumer_offset in queues.items():
                if type(consumer_offset) is int and str(queue_id).isdigit():
                    queues[queue_id] = numbers.translate((topic, int(queue_id)), consumer_offset)
        elif type(queues) is int and str(name).isdigit():
            table[name] = numbers.translate((SCHEDULE_TOPIC, int(name) - 1), queues)
    file.save(value)
    return len(moves)
