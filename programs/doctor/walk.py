"""Reads the commit log part by part, and continues after damaged parts; see :mod:`flintmq.core.record.log_walk`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.record.log_part import LogPart
from flintmq.core.record.log_walk import Kind, LogWalk, Stretch, WalkPolicy
from flintmq.core.record.record import Record
from flintmq.programs.doctor.files import StoreFiles

_SECTOR_BYTES: Final = 512
_REASONS: Final = {Kind.UNUSED: "", Kind.STALE: "older records, which an earlier recovery cut off"}
_REPORT_EVERY: Final = 4 * 1024 * 1024


@attrs.frozen
class Piece:
    """A part of the commit log: a record, a blank, damage or the unused end."""

    kind: Kind
    start: int
    """Physical offset of the first byte of this part of the log."""
    end: int
    record: Record | None = None
    reason: str = ""
    """The reason why this part of the log is neither a valid record nor a valid end of a file (BLANK record); empty without an
    error."""


def walk(files: StoreFiles, progress: Callable[[int], None] | None = None) -> Iterator[Piece]:
    """Yield the parts of the whole commit log: records, blanks, damage and the unused end. The cost is proportional to the
    log's size.

    Args:
        files: the store.
        progress: called from time to time with the number of bytes read.
    """
    next_queue_offsets: dict[tuple[str, int], int] = {}
    told = files.log_start
    for found in stretches(files.log, files.log_start, next_queue_offsets):
        if found.run is None:
            yield Piece(found.kind, found.start, found.end, None, _REASONS.get(found.kind, found.reason))
        else:
            base = found.end - found.run.end
            for record, (begin, end) in zip(found.run.records(), found.run.bounds(), strict=True):
                next_queue_offsets[(record.topic, record.queue_id)] = record.queue_offset + 1
                yield Piece(found.kind, base + begin, base + end, record)
        if progress is not None and found.end - told >= _REPORT_EVERY:
            told = found.end
            progress(told - files.log_start)
    if progress is not None:
        progress(files.log_bytes)


def stretches(
    parts: Sequence[LogPart], begin_offset_bytes: int, next_queue_offsets: Mapping[tuple[str, int], int] | None = None
) -> Iterator[Stretch]:
    """Yield the parts of a log to which nobody writes. Doctor and backup use the same rules for a complete record.

    Args:
        parts: the files of the log, in order.
        begin_offset_bytes: the physical offset to begin at, in the first file.
        next_queue_offsets: see :class:`flintmq.core.record.log_walk.WalkPolicy`.
    """
    policy = WalkPolicy(trusted_ms=-1, is_torn=is_torn, next_queue_offsets=next_queue_offsets)
    return LogWalk(parts, policy).stretches(0, begin_offset_bytes - parts[0].start if parts else 0)


def is_torn(properties: bytes, end_offset_bytes: int) -> bool:
    """Return whether the properties of a record contain zeros up to the end of a sector or of the record. No checksum covers
    properties.

    A power cut can leave these zeros in a record. A client may also have sent a message with zeros in its properties.
    """
    start = end_offset_bytes - len(properties)
    at = properties.find(0)
    while at >= 0:
        until = min(len(properties), at + _SECTOR_BYTES - (start + at) % _SECTOR_BYTES)
        if not properties[at:until].strip(b"\0"):
            return True
        at = properties.find(0, at + 1)
    return False
