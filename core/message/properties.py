"""Message properties: a map on the outside, one string on disk and on the wire (reference: store-format 2.1).

``name 0x01 value 0x02 name 0x01 value`` with or without a last 0x02; an entry without a name or a value is no entry.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import repeat
from typing import Any, Final, cast

import msgspec

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CORRELATION_ID: Final = "CORRELATION_ID"
"""Tells which request a reply answers."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""Client id of who asked."""
TTL: Final = "TTL"
"""How long who asked waits, in ms."""
MSG_TYPE: Final = "MSG_TYPE"
"""``reply`` for a reply."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
"""When the broker passed a reply on, in ms."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""When a reply arrived at who asked, in ms."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""When to deliver, in ms since 1970."""
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""When a waiting message is due, in ms since 1970; set by the broker."""
KEY_SEPARATOR: Final = " "
_UNIQ_KEY_MARK: Final = b"UNIQ_KEY\x01"
_LAST_OF: Final = {
    name: re.compile(rb"(?s:.*)\x02%b\x01([^\x02]+)" % name)
    for name in (b"TAGS", b"KEYS", b"UNIQ_KEY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
}
"""The last entry of a name that has a value, whatever stands around it."""


def string_to_properties(text: str) -> dict[str, str]:
    """Parses the stored form. Lenient like the reference: what is no entry is skipped, the last of equals wins."""
    result: dict[str, str] = {}
    if text:
        for entry in text.split(PROPERTY_SEPARATOR):
            name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
            if value and name:
                result[name] = value
    return result


class _StoredProperties(msgspec.Struct, gc=False):
    stored: bytes
    parsed: dict[str, str] | None = None

    def _properties(self) -> dict[str, str]:
        if self.parsed is None:
            self.parsed = string_to_properties(self.stored.decode("utf-8", "replace"))
        return self.parsed

    def __getitem__(self, name: str) -> str:
        return self._properties()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties())

    def __len__(self) -> int:
        return len(self._properties())

    def __contains__(self, name: object) -> bool:
        return name in self._properties()

    def __eq__(self, other: object) -> bool:
        return self._properties() == other

    def get(self, name: str, default: Any = None) -> Any:
        return self._properties().get(name, default)

    def keys(self) -> KeysView[str]:
        return self._properties().keys()

    def values(self) -> ValuesView[str]:
        return self._properties().values()

    def items(self) -> ItemsView[str, str]:
        return self._properties().items()


Mapping.register(_StoredProperties)
stored_properties: Final = cast("Callable[[bytes], Mapping[str, str]]", _StoredProperties)
"""A map of properties as they are stored, taken apart when somebody looks: nobody does for most messages. (A class of
msgspec's, which costs half of what another does to make, and nothing to collect.)"""


IndexColumns = tuple[Iterable[str], Iterable[str], Iterable[str]]
"""TAGS, KEYS and UNIQ_KEY of messages, empty where there is none."""


def index_columns(all_stored: Sequence[bytes]) -> IndexColumns:
    """What queues and index want to know of many messages' stored properties."""
    alike = _index_columns_alike(all_stored)
    if alike is not None:
        return alike
    tags, keys, uniq_keys = stored_values(all_stored, (b"TAGS", b"KEYS", b"UNIQ_KEY"))
    return tags, keys, uniq_keys


def stored_values(all_stored: Sequence[bytes], names: Sequence[bytes]) -> list[Iterable[str]]:
    """What :func:`stored_value` finds in many messages' properties, a column for each name.

    Nothing is taken apart: that costs by the number of entries, and a batch of 4 MiB has room for two million.
    """
    joined = b"".join(all_stored)
    padded = [b"\x02%b\x02" % stored for stored in all_stored]
    return [[stored_value(one, name) for one in padded] if name + b"\x01" in joined else repeat("") for name in names]


def _index_columns_alike(all_stored: Sequence[bytes]) -> IndexColumns | None:
    """The same at a third of the cost where all are alike but for the UNIQ_KEY, as one sender's are; None where not."""
    count = len(all_stored)
    first = all_stored[0]
    start = first.find(_UNIQ_KEY_MARK) + len(_UNIQ_KEY_MARK)
    if start < len(_UNIQ_KEY_MARK) or count < 2 or set(map(len, all_stored)) != {len(first)}:
        return None
    properties = string_to_properties(first.decode("utf-8", "replace"))
    length = len(properties.get(UNIQ_KEY, ""))
    left, key, right = first[:start], first[start : start + length], first[start + length :]
    if not (length and key.isascii() and key.decode() == properties[UNIQ_KEY]) or _UNIQ_KEY_MARK in right:
        return None
    lefts, keys, rights = zip(*struct.iter_unpack(f"{start}s{length}s{len(right)}s", b"".join(all_stored)), strict=True)
    joined = b"".join(keys)
    if lefts.count(left) != count or rights.count(right) != count or not joined.isascii() or b"\x02" in joined:
        return None
    return repeat(properties.get(TAGS, "")), repeat(properties.get(KEYS, "")), [key.decode("ascii") for key in keys]


def stored_value(padded: bytes, name: bytes) -> str:
    """What :func:`stored_properties` has under a name, empty without it; found without taking the others apart.

    Args:
        padded: the properties as stored, with a separator before and behind them.
        name: one of those that somebody looks for so, in ASCII.
    """
    found = padded.rfind(b"\x02%b\x01" % name)
    if found < 0:
        return ""
    begin = found + len(name) + 2
    end = padded.index(b"\x02", begin)
    if begin == end:  # it has no value, and one before it counts; a stranger may have put a thousand of them in a row
        match = _LAST_OF[name].match(padded)
        if match is None:
            return ""
        begin, end = match.span(1)
    return str(padded[begin:end], "utf-8", "replace")


def properties_to_string(properties: Mapping[str, str]) -> str:
    """The stored form, without a last separator (as 4.9 writes it)."""
    return PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()])
