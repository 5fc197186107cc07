"""Where records begin, by walking from one to the next.

Nothing but the end of the record before tells where a record begins: a body may hold bytes that look like a record, at the
very position they claim (docs/large-stores.md). Looking for the magic in all the bytes at once is much faster than a step per
record, and safe when every place found is the end of the one before.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from flintmq.core.record.record import BLANK_MIN_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_MIN_BYTES
from flintmq.plugins.spark.decoder.heads import Ints

Bytes = npt.NDArray[np.uint8]

_SIZE_AND_MAGIC: Final = struct.Struct(">iI")
_V1_AS_READ: Final = int.from_bytes(MAGIC_V1.to_bytes(4, "big"), "little")
_V2_AS_READ: Final = int.from_bytes(MAGIC_V2.to_bytes(4, "big"), "little")
_FIRST_BYTE: Final = MAGIC_V1 >> 24


@attrs.frozen
class Chain:
    """A run of consecutive records."""

    starts: Ints
    end: int
    """Where the last of them ends; where the walk began when there are none."""
    why: str
    """What ended it: ``end`` of the bytes, ``blank``, ``zero``, or ``bad`` bytes that begin no record."""


def walk(data: Bytes, start: int, end: int) -> Chain:
    """Find the records in ``data[start:end]``; a record must begin at ``start``, and lie in it wholly to count."""
    found: list[Ints] = []
    at = start
    while True:
        run = _linked(data, at, end)
        if len(run):
            found.append(run)
            at = int(run[-1]) + _size(data, int(run[-1]))
        why = _ends_at(data, at, end)
        if why:
            starts = np.concatenate(found) if found else np.empty(0, np.int64)
            return Chain(starts, at, why)
        step = _stepped(data, at, end)
        found.append(np.array(step, np.int64))
        at = step[-1] + _size(data, step[-1])


def _size(data: Bytes, at: int) -> int:
    return int(_SIZE_AND_MAGIC.unpack_from(data.data, at)[0])


def _ends_at(data: Bytes, at: int, end: int) -> str:
    """Why no record is at a place; empty when one is."""
    if at == end:
        return "end"
    if end - at < BLANK_MIN_BYTES:
        return "bad"
    size, magic = _SIZE_AND_MAGIC.unpack_from(data.data, at)
    if magic in (MAGIC_V1, MAGIC_V2):
        return "" if RECORD_MIN_BYTES <= size <= end - at else "bad"
    if magic == MAGIC_BLANK:
        return "blank"
    return "zero" if magic == 0 and size == 0 else "bad"


_STEPS: Final = 1_000
_STRETCH_BYTES: Final = 8 * 1024 * 1024


def _stepped(data: Bytes, at: int, end: int) -> list[int]:
    """A number of records, one after the other; at least the one that is known to be there."""
    found: list[int] = []
    while len(found) < _STEPS and not _ends_at(data, at, end):
        found.append(at)
        at += _size(data, at)
    return found


def _linked(data: Bytes, start: int, end: int) -> Ints:
    """The first records from a place on for which the magic is found where the one before ends."""
    runs: list[Ints] = []
    at = start
    while at + RECORD_MIN_BYTES <= end:
        stop = min(end, at + _STRETCH_BYTES)
        places = _magics(data, at, stop)
        if not len(places) or places[0] != at:
            break
        sizes = np.ndarray((len(data) - 3,), ">i4", data, 0, (1,))[places].astype(np.int64)
        whole = (sizes >= RECORD_MIN_BYTES) & (places + sizes <= end)
        linked = whole[:-1] & (places[:-1] + sizes[:-1] == places[1:])
        good = len(linked) if linked.all() else int(np.argmin(linked))
        if good < len(linked) or not whole[-1]:
            runs.append(places[:good])
            break
        runs.append(places)
        at = int(places[-1] + sizes[-1])
    return np.concatenate(runs) if runs else np.empty(0, np.int64)


def _magics(data: Bytes, start: int, end: int) -> Ints:
    """Every place between two at which a record could begin, going by its magic; ascending."""
    candidates = np.flatnonzero(data[start + 4 : end - 3] == _FIRST_BYTE)
    words = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))[candidates + (start + 4)]
    places: Ints = candidates[(words == _V1_AS_READ) | (words == _V2_AS_READ)] + start
    return places
