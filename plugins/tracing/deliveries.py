"""Finds the traced messages among those that a pull found, and makes a span of each.

A pull's answer is slices of the log that nobody looks into. Where traced messages lie is known of those that were stored since
the start of the broker, so other answers cost a look at that; what is older, or was copied from a master, is searched.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from flintmq.core.kernel.ports import HandedOut
from flintmq.core.record.layout import HEAD_AT
from flintmq.core.record.record import RECORD_MIN_BYTES, Fields, RecordError, read_fields
from flintmq.plugins.tracing.spans import DELIVER, Attribute, Span, message_attributes, new_span_id
from flintmq.plugins.tracing.trace_context import MARK, sampled_context

_SAMPLED: Final = re.compile(MARK + rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]")
_SIZE: Final = struct.Struct(">i")
_POSITION: Final = struct.Struct(">q")
_POSITION_AT: Final = HEAD_AT["physical_offset"]
PLACES_MAX: Final = 65_536


class TracedPlaces:
    """Where in the log traced messages lie. Loop thread.

    Args:
        known_from_bytes: from this position on all of them will be added; None where they will not be.
    """

    def __init__(self, known_from_bytes: int | None) -> None:
        self._known_from_bytes = known_from_bytes
        self._places = array("q")

    def add(self, position_bytes: int) -> None:
        """Keep the place of another one, behind all others. Of very many those in front are forgotten."""
        places = self._places
        places.append(position_bytes)
        if len(places) > PLACES_MAX:
            del places[: PLACES_MAX // 2]
            if self._known_from_bytes is not None:
                self._known_from_bytes = places[0]

    def may_be_in(self, pieces: Sequence[memoryview]) -> bool:
        """Return whether a traced message may be among records that follow one another in the log, with gaps."""
        (begin_bytes,) = _POSITION.unpack_from(pieces[0], _POSITION_AT)
        if self._known_from_bytes is None or begin_bytes < self._known_from_bytes:
            return True
        places = self._places
        at = bisect_left(places, begin_bytes)
        if at == len(places):
            return False
        last = pieces[-1]
        (last_bytes,) = _POSITION.unpack_from(last, _POSITION_AT)
        return bool(places[at] < last_bytes + len(last))


def marked_pieces(pieces: Sequence[memoryview]) -> list[bytes]:
    """Return copies of the pieces of an answer in which there seems to be a traced message."""
    return [piece for piece in map(bytes, pieces) if MARK in piece and _SAMPLED.search(piece) is not None]


def deliveries(handed_out: HandedOut, piece: bytes, begin_ns: int, end_ns: int, now_ms: int) -> Iterator[Span]:
    """Walk the spans of the traced messages in a piece of an answer.

    Args:
        handed_out: the answer.
        piece: of it, as :func:`marked_pieces` has it.
        begin_ns: when the messages were looked up, in ns since 1970.
        end_ns: when they were found.
        now_ms: the broker's time, to tell how long each has waited.
    """
    for values, body_at, topic_at, properties_at, end in _marked_records(piece):
        stored = piece[properties_at:end]
        context = sampled_context(stored)
        if context is None:  # the mark stands in the body, or in another property
            continue
        body_bytes = topic_at - 1 - body_at
        about = message_attributes(handed_out.topic, handed_out.queue_id, body_bytes, stored, is_held=False)
        more: dict[str, Attribute] = {
            "messaging.consumer.group.name": handed_out.group,
            "flintmq.queue_offset": values[5],
            "flintmq.log_position": values[6],
            "flintmq.wait_ms": max(0, now_ms - values[10]),
            "flintmq.reconsume_times": values[12],
        }
        yield Span(DELIVER, context, new_span_id(), context.parent_id, begin_ns, end_ns, about, more)


def _marked_records(piece: bytes) -> Iterator[Fields]:
    """Walk the fields of the records in which the mark stands. It ends where no record is, as in a log that is damaged."""
    view, at, end = memoryview(piece), 0, 0
    for found in _SAMPLED.finditer(piece):
        if found.start() < end:
            continue  # a second time in one record
        while end <= found.start():
            at = end
            if len(piece) - at < RECORD_MIN_BYTES:
                return
            (size,) = _SIZE.unpack_from(piece, at)
            if size < RECORD_MIN_BYTES:
                return
            end = at + size
        try:
            yield read_fields(view, at)
        except RecordError:
            return
