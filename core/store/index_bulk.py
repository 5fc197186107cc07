"""Index entries in bulk with numpy: hashes, slots and chains of a thousand keys at a time (a third of the cost of a loop).

Used where numpy is installed (``pip install 'flintmq[fast]'``); the loops of :mod:`.index_file` write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.core.message.java_hash import index_key_hash, topic_head_hash

try:
    import numpy
except ImportError:  # the loops do it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Sequence

AVAILABLE: Final = numpy is not None
LEAST: Final = 64
"""Fewer entries are cheaper in a loop."""
_UNIQ_KEY_CHARACTERS: Final = 32


def key_hashes(topics: Sequence[str], keys: Sequence[str]) -> list[int]:
    """:func:`flintmq.core.message.java_hash.index_key_hash` of many (topic, key), as a list.

    Keys of 32 ASCII characters, which every IPv4 sender's UNIQ_KEY has, are hashed together; others one by one.
    """
    assert numpy is not None
    joined = "".join(keys)
    if len(joined) == _UNIQ_KEY_CHARACTERS * len(keys) and joined.isascii() and len(set(map(len, keys))) == 1:
        characters = numpy.frombuffer(joined.encode("ascii"), numpy.uint8).reshape(len(keys), _UNIQ_KEY_CHARACTERS)
        powers = numpy.array(
            [pow(31, _UNIQ_KEY_CHARACTERS - 1 - n, 1 << 32) for n in range(_UNIQ_KEY_CHARACTERS)], numpy.uint32
        )
        hashes = (characters * powers).sum(axis=1, dtype=numpy.uint32)
        power = pow(31, _UNIQ_KEY_CHARACTERS, 1 << 32)
        heads = {topic: topic_head_hash(topic) * power & 0xFFFFFFFF for topic in set(topics)}
        if len(heads) == 1:
            hashes += numpy.uint32(next(iter(heads.values())))
        else:
            hashes += numpy.array([heads[topic] for topic in topics], numpy.uint32)
        signed = hashes.view(numpy.int32).astype(numpy.int64)
        absolute = numpy.abs(signed)
        absolute[absolute == 1 << 31] = 0
        hashed: list[int] = absolute.tolist()
        return hashed
    return list(map(index_key_hash, topics, keys))


def chain(hashes: Any, slots: Any, stored: Any, first_index: int) -> tuple[Any, Any, Any, int]:
    """The chains that new entries make.

    Args:
        hashes: of the entries, in order.
        slots: how many slots there are.
        stored: the slots' values now, valid ones only (0 where there is none), one for each entry.
        first_index: number of the first new entry.

    Returns:
        Per entry the entry before it in its slot; the slots that change; their new values; how many of them were empty.
    """
    assert numpy is not None
    slot = hashes % slots
    order = numpy.argsort(slot, kind="stable")
    in_order = slot[order]
    is_first = numpy.empty(len(order), bool)
    is_first[0] = True
    numpy.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    previous = numpy.empty(len(order), numpy.int64)
    previous[order[1:]] = order[:-1] + first_index
    firsts = order[is_first]
    previous[firsts] = stored[firsts]
    is_last = numpy.empty(len(order), bool)
    is_last[-1] = True
    is_last[:-1] = is_first[1:]
    lasts = order[is_last]
    empty = int((stored[firsts] == 0).sum())
    return previous, slot[lasts], lasts + first_index, empty


def pack_entries(hashes: Any, physical: Any, seconds: Any, previous: Any) -> bytes:
    """Entries as they lie in the file."""
    assert numpy is not None
    packed = numpy.empty(len(hashes), _ENTRY)
    packed["hash"] = hashes
    packed["physical"] = physical
    packed["seconds"] = seconds
    packed["previous"] = previous
    return packed.tobytes()


_ENTRY: Any = (
    numpy.dtype([("hash", ">i4"), ("physical", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
    if numpy is not None
    else None
)
