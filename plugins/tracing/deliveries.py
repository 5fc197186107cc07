"""Finds the traced messages in the answer to a pull, and creates a span for each message.

The answer consists of slices of the commit log, whose records are not parsed. The positions of traced messages stored since the
broker's start are known, so most answers cost only one binary search. Slices with older records, or with records copied from a
master, are searched for the property ``traceparent``.
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
    """Sorted physical offsets of the traced messages. Used only on the event loop's thread.

    Args:
        known_from_bytes: physical offset of the log. The caller adds every traced message at or after this offset. None on a
            slave, because the caller adds no messages there. In this case :meth:`may_be_in` always returns True.
    """

    def __init__(self, known_from_bytes: int | None) -> None:
        self._known_from_bytes = known_from_bytes
        self._places = array("q")

    def add(self, position_bytes: int) -> None:
        """Add the physical offset of a traced message, larger than all offsets added before. If there are then more than
        :data:`PLACES_MAX` offsets, remove the :data:`PLACES_MAX` / 2 smallest offsets."""
        places = self._places
        places.append(position_bytes)
        if len(places) > PLACES_MAX:
            del places[: PLACES_MAX // 2]
            if self._known_from_bytes is not None:
                self._known_from_bytes = places[0]

    def may_be_in(self, pieces: Sequence[memoryview]) -> bool:
        """Return whether slices of the log may contain a traced message.

        Args:
            pieces: slices of the log, each with complete records, in the log's order. There may be gaps between the slices.
        """
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
    """Return copies of those slices of a pull's answer that seem to contain a traced message."""
    return [piece for piece in map(bytes, pieces) if MARK in piece and _SAMPLED.search(piece) is not None]


def deliveries(handed_out: HandedOut, piece: bytes, begin_ns: int, end_ns: int, now_ms: int) -> Iterator[Span]:
    """Yield a span for each traced message in one slice of the answer to a pull.

    Args:
        handed_out: the answer to the pull.
        piece: the slice, as returned by :func:`marked_pieces`.
        begin_ns: time at which the lookup of the messages began, in ns since 1970.
        end_ns: time at which the lookup ended, in ns since 1970.
        now_ms: the broker's time in ms since 1970, from which each message's waiting time is computed.
    """
    for values, body_at, topic_at, properties_at, end in _marked_records(piece):
        stored = piece[properties_at:end]
        context = sampled_context(stored)
        if context is None:
            # The record has no property ``traceparent``: the text is in the record's body or in another property.
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
    """Yield the fields of each record with a sampled ``traceparent`` in a slice of the log. Stop at the first damaged
    record."""
    view, at, end = memoryview(piece), 0, 0
    for found in _SAMPLED.finditer(piece):
        if found.start() < end:
            continue  # The record contains ``traceparent`` more than once, and was already yielded at the first occurrence.
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
