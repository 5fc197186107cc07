"""One file of a log, as bytes: what ends it, where it holds anything, and where records may begin in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Protocol

from flintmq.core.record import record as rec

_CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_BYTES)
_MAGICS: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (rec.MAGIC_V1, rec.MAGIC_V2, rec.MAGIC_BLANK))
)


class LogPart(Protocol):
    """One file of a log."""

    @property
    def start(self) -> int:
        """Physical offset of its first byte."""
        ...

    @property
    def view(self) -> memoryview:
        """All of it."""
        ...

    def next_data(self, position: int) -> int:
        """Return a place at or behind another before which there are only zeros; the file's size where nothing follows."""
        ...


def is_file_end(view: memoryview, at: int) -> bool:
    """Return whether a file ends at a place: too little is left of it, or a blank lies there, of whatever size it says
    it is."""
    return len(view) - at < rec.BLANK_MIN_BYTES or rec.SIZE_AND_MAGIC.unpack_from(view, at)[1] == rec.MAGIC_BLANK


def is_blank(view: memoryview, at: int) -> bool:
    """Return whether a file ends at a place, with a blank that says how long it is."""
    left = len(view) - at
    return left < rec.BLANK_MIN_BYTES or rec.SIZE_AND_MAGIC.unpack_from(view, at) == (left, rec.MAGIC_BLANK)


def data_in(part: LogPart, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield (place, bytes) of what is not zero in a part of a file, in chunks; holes of the file are not read."""
    at = begin
    while at < end and (at := part.next_data(at)) < end:
        chunk = bytes(part.view[at : min(end, at + _CHUNK_BYTES)])
        if chunk != _ZEROS and (stripped := chunk.rstrip(b"\0")):
            yield at, stripped
        at += _CHUNK_BYTES


def is_zero(part: LogPart, begin: int, end: int) -> bool:
    """Return whether a part of a file holds nothing but zeros."""
    return next(data_in(part, begin, end), None) is None


def magics(part: LogPart, begin: int) -> Iterator[int]:
    """Yield every place of a file, from one on, with a magic where a record or a blank has it; in order."""
    at, size = begin, len(part.view)
    while at < size and (at := part.next_data(at)) < size:
        chunk = bytes(part.view[at + 4 : at + 4 + _CHUNK_BYTES + 3])
        if chunk != _ZEROS:
            yield from (at + match.start() for match in _MAGICS.finditer(chunk))
        at += _CHUNK_BYTES
