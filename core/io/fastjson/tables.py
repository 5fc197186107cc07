"""Encodes large tables of structs in pieces, between which other requests or threads can run.

msgspec encodes the pieces, because the encoder of this package would block the event loop for seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from flintmq.core.io.fastjson.writer import dumps, dumps_pretty

_ROWS: Final = 500
"""Number of rows of a table that are encoded as one piece, which takes a fraction of a millisecond."""


def table_pieces(head: Mapping[str, Any], member: str, rows: Iterable[tuple[str, msgspec.Struct]]) -> Iterator[bytes]:
    """Yield the content of a JSON file of a broker, such as ``topics.json``, in pieces. Joined, the pieces equal the result of
    :func:`.writer.dumps`. The last member of the JSON object is a large table, whose rows are encoded in groups.

    Args:
        head: the members of the JSON object before the table.
        member: the name of the member whose value is the table.
        rows: the table's rows, as pairs of a key and a struct. A struct's fields must be strings, numbers or booleans, and
            declared in alphabetical order.
    """
    yield dumps({**head, member: {}}).encode("utf-8", "replace")[:-2]
    for number, some in enumerate(_parts(rows)):
        yield (b"," if number else b"") + _compact(some)[1:-1]
    yield b"}}"


def pretty_table_pieces(
    head: Mapping[str, Any], member: str, rows: Iterable[tuple[str, msgspec.Struct]]
) -> Iterator[bytes]:
    """Yield the indented JSON text of an object in pieces. Joined, they equal the result of :func:`.writer.dumps_pretty`.

    The object has the members of ``head``. Its last member, with the name ``member``, is an object with a member for each row.
    The arguments are those of :func:`table_pieces`.
    """
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
    except UnicodeEncodeError:
        # msgspec cannot encode half of a surrogate pair, which dumps() accepts.
        # The file of a table may contain half of a surrogate pair if another program has written the file.
        return dumps(rows).encode("utf-8", "replace")


def _pretty(rows: dict[str, msgspec.Struct]) -> bytes:
    """Return a table's rows as JSON text, indented like the rows of a table in a configuration file of RocketMQ."""
    plain = _compact(rows)
    if b'\\"' in plain or b'": ' in plain:
        # The fast path removes the space after each colon, which would change a string that has a quote or begins with a colon.
        # dumps_pretty() is slower than the fast path, but keeps a string that has a quote or begins with a colon unchanged.
        return dumps_pretty({"": rows}).encode("utf-8", "replace")[len('{\n\t"":{') : -len("\n\t}\n}")]
    lines = msgspec.json.format(plain, indent=1)[1:-2]
    lines = lines.replace(b'\n  "', b'\n\t\t\t"').replace(b"\n }", b"\n\t\t}").replace(b'\n "', b'\n\t\t"')
    return lines.replace(b'": ', b'":')
