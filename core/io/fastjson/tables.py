"""Large tables of structs, written in pieces by msgspec: an encoder of this package would hold the event loop for seconds.

Other requests, or other threads, get their turn between two pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from flintmq.core.io.fastjson.writer import dumps, dumps_pretty

_ROWS: Final = 500
"""Rows of a piece, which take a fraction of a millisecond."""


def table_pieces(head: Mapping[str, Any], member: str, rows: Iterable[tuple[str, msgspec.Struct]]) -> Iterator[bytes]:
    """Yield an object, in pieces, as :func:`.writer.dumps` writes it.

    Args:
        head: the members before the table.
        member: the table's name.
        rows: names and structs, whose fields are strings, numbers and booleans, in the order of their names.
    """
    yield dumps({**head, member: {}}).encode("utf-8", "replace")[:-2]
    for number, some in enumerate(_parts(rows)):
        yield (b"," if number else b"") + _compact(some)[1:-1]
    yield b"}}"


def pretty_table_pieces(
    head: Mapping[str, Any], member: str, rows: Iterable[tuple[str, msgspec.Struct]]
) -> Iterator[bytes]:
    """Yield the same object, in pieces, as :func:`.writer.dumps_pretty` writes it."""
    yield dumps_pretty({**head, member: {}}).encode("utf-8", "replace")[: -len("}\n}")]
    is_empty = True
    for some in _parts(rows):
        yield (b"" if is_empty else b",") + _pretty(some)
        is_empty = False
    yield b"}\n}" if is_empty else b"\n\t}\n}"


def _parts(rows: Iterable[tuple[str, msgspec.Struct]]) -> Iterator[dict[str, msgspec.Struct]]:
    every = iter(rows)
    while some := dict(itertools.islice(every, _ROWS)):
        yield some


def _compact(rows: dict[str, msgspec.Struct]) -> bytes:
    try:
        return msgspec.json.encode(rows)
    except UnicodeEncodeError:  # half of a surrogate pair, out of a file that was written by hand
        return dumps(rows).encode("utf-8", "replace")


def _pretty(rows: dict[str, msgspec.Struct]) -> bytes:
    """Return the rows as they stand in a table that is a member of the file's object."""
    plain = _compact(rows)
    if b'\\"' in plain or b'": ' in plain:  # the replacement below could change such a text
        return dumps_pretty({"": rows}).encode("utf-8", "replace")[len('{\n\t"":{') : -len("\n\t}\n}")]
    lines = msgspec.json.format(plain, indent=1)[1:-2]
    lines = lines.replace(b'\n  "', b'\n\t\t\t"').replace(b"\n }", b"\n\t\t}").replace(b'\n "', b'\n\t\t"')
    return lines.replace(b'": ', b'":')
