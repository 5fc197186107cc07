"""Message properties: a map on the outside, one string on disk and on the wire (docs/internals/store-format.md, Properties).

``name 0x01 value 0x02 name 0x01 value`` with or without a last 0x02; an entry without a name or a value is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from functools import lru_cache
from typing import Any, Final, cast, overload

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
"""The id of the request that a reply answers."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""The client id of the requester."""
TTL: Final = "TTL"
"""How long the requester waits, in ms."""
MSG_TYPE: Final = "MSG_TYPE"
"""``reply`` for a reply."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
"""When the broker passed a reply on, in ms."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""When a reply arrived at the requester, in ms."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""When to deliver, in ms since 1970."""
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""When a waiting message is due, in ms since 1970; set by the broker."""
KEY_SEPARATOR: Final = " "
_UNIQ_KEY_MARK: Final = b"UNIQ_KEY\x01"
_REMEMBERED_MAX_BYTES: Final = 512
"""Longer properties are looked into each time: clients decide about their length."""
_SEPARATOR: Final = ord(PROPERTY_SEPARATOR)
_VALUES_OF: Final = {
    name: re.compile(rb"\x02%b\x01([^\x02]+)" % name) for name in (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"TRAN_MSG")
}
"""The entries of a name that have a value. Searched from the front, as a search from the end looks at each byte in turn."""


def string_to_properties(text: str) -> dict[str, str]:
    """Parse the stored form. Lenient like RocketMQ: what cannot be an entry is skipped, the last of equals wins."""
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
"""A map of properties as they are stored, parsed when it is first read: most messages' never is. (A class of
msgspec's, which costs half of what another does to make, and nothing to collect.)"""


class AlikeProperties(Sequence[bytes]):
    """Properties, as stored, of messages that are alike in all but the value of UNIQ_KEY, as one sender's are.

    What is the same for all is kept, and looked at, once. Immutable; made by :meth:`of`, which proves it.
    """

    __slots__ = ("before", "behind", "length", "uniq_keys")

    def __init__(self, before: bytes, uniq_keys: Sequence[bytes], behind: bytes) -> None:
        self.before = before
        """What stands before the value."""
        self.uniq_keys = uniq_keys
        """The values: at least one, ASCII without NUL, of one length."""
        self.behind = behind
        """What stands behind the value: nothing, or a separator and more."""
        self.length = len(before) + len(uniq_keys[0]) + len(behind)
        """Of each, in bytes."""

    @classmethod
    def of(cls, before: bytes, uniq_keys: Sequence[bytes], behind: bytes) -> AlikeProperties | None:
        """Return properties of these parts, the middle ones of one length; None where taking them apart would find others."""
        first, joined = uniq_keys[0], b"".join(uniq_keys)
        is_found = (
            first
            and (not behind or behind[0] == _SEPARATOR)
            and _UNIQ_KEY_MARK not in behind
            and joined.isascii()
            and _SEPARATOR not in joined
            and 0 not in joined
            and before[-len(_UNIQ_KEY_MARK) :] == _UNIQ_KEY_MARK
            and (len(before) == len(_UNIQ_KEY_MARK) or before[-len(_UNIQ_KEY_MARK) - 1] == _SEPARATOR)
        )
        return cls(before, uniq_keys, behind) if is_found else None

    @classmethod
    def found_in(cls, all_stored: Sequence[bytes]) -> AlikeProperties | None:
        """Return the properties of several messages where they are alike, None where they are not."""
        first = all_stored[0]
        begin, end = uniq_key_place(first)
        count = len(all_stored)
        if begin == end or [*map(len, all_stored)].count(len(first)) != count:
            return None
        before, behind = first[:begin], first[end:]
        for stored in all_stored:
            if not (stored.startswith(before) and stored.endswith(behind)):
                return None
        return cls.of(before, [stored[begin:end] for stored in all_stored], behind)

    def __len__(self) -> int:
        return len(self.uniq_keys)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            keys = self.uniq_keys[index]
            return AlikeProperties(self.before, keys, self.behind) if keys else ()
        return self.before + self.uniq_keys[index] + self.behind

    def __iter__(self) -> Iterator[bytes]:
        before, behind = self.before, self.behind
        return iter([before + key + behind for key in self.uniq_keys])


def uniq_key_place(stored: bytes) -> tuple[int, int]:
    """Return where the first value of UNIQ_KEY seems to begin and to end; the same place twice where there is none."""
    begin = stored.find(_UNIQ_KEY_MARK) + len(_UNIQ_KEY_MARK)
    if begin < len(_UNIQ_KEY_MARK):
        return 0, 0
    end = stored.find(b"\x02", begin)
    return begin, end if end >= 0 else len(stored)


def with_shared(all_own: Sequence[bytes], shared: bytes) -> Sequence[bytes]:
    """Messages' own properties, as stored, with what they share behind them."""
    if isinstance(all_own, AlikeProperties) and _UNIQ_KEY_MARK not in shared:
        before, keys, behind = all_own.before, all_own.uniq_keys, all_own.behind
        behind += shared if behind and behind[-1] == _SEPARATOR else b"\x02" + shared
        return AlikeProperties(before, keys, behind)
    parted = b"\x02" + shared
    return [own + (shared if not own or own[-1] == _SEPARATOR else parted) for own in all_own]


def has_nul(all_stored: Sequence[bytes]) -> bool:
    """Return whether the character NUL is in the properties of any message."""
    if isinstance(all_stored, AlikeProperties):
        return 0 in all_stored.before or 0 in all_stored.behind
    return b"\0" in b"".join(all_stored)


def nul_error() -> ValueError:
    """Return why such properties are not stored."""
    # Only this detects properties of which a crash left a part: no checksum covers them.
    return ValueError("properties cannot hold the character NUL")


_WAITING_MARKS: Final = (b"DELAY\x01", b"TIMER_D", b"TRAN_MSG\x01")
"""The beginnings of entries by which a message asks for a delay, a time of delivery or a transaction."""


def may_wait(all_stored: Sequence[bytes]) -> bool:
    """Return False if no message has a property that asks for a delay, a time of delivery or a transaction.

    True says nothing: the marks are also found within values.
    """
    if isinstance(all_stored, AlikeProperties):
        before, behind = all_stored.before, all_stored.behind
        return (_may_wait if all_stored.length <= _REMEMBERED_MAX_BYTES else _may_wait.__wrapped__)(before, behind)
    return _may_wait.__wrapped__(b"".join(all_stored), b"")


@lru_cache(maxsize=1_024)
def _may_wait(before: bytes, behind: bytes) -> bool:
    """Return whether either has such a mark. The properties of one sender are the same in each batch."""
    return any(mark in before or mark in behind for mark in _WAITING_MARKS)


IndexColumns = tuple[Sequence[str], Sequence[str], Sequence[bytes]]
"""TAGS, KEYS and UNIQ_KEY (UTF-8) of messages, empty where there is none."""


def index_columns(all_stored: Sequence[bytes]) -> IndexColumns:
    """Return what queues and index want to know of many messages' stored properties."""
    if isinstance(all_stored, AlikeProperties):
        count = len(all_stored)
        before, behind = all_stored.before, all_stored.behind
        is_usual = len(before) + len(behind) <= _REMEMBERED_MAX_BYTES
        same = (_tags_and_keys if is_usual else _tags_and_keys.__wrapped__)(before, behind)
        return [same[0]] * count, [same[1]] * count, all_stored.uniq_keys
    tags, keys, uniq_keys = stored_values(all_stored, (b"TAGS", b"KEYS", b"UNIQ_KEY"))
    return tags, keys, [key.encode() for key in uniq_keys]


@lru_cache(maxsize=1_024)
def _tags_and_keys(before: bytes, behind: bytes) -> tuple[str, str]:
    """Return TAGS and KEYS of what stands around a value of UNIQ_KEY; those of one sender are the same in each batch."""
    padded = b"\x02%b-%b\x02" % (before, behind)
    return stored_value(padded, b"TAGS"), stored_value(padded, b"KEYS")


def stored_values(all_stored: Sequence[bytes], names: Sequence[bytes]) -> list[list[str]]:
    """Return what :func:`stored_value` finds in many messages' properties, a column for each name.

    Nothing is taken apart: that costs by the number of entries, and a batch of 4 MiB has room for two million.
    """
    joined = b"".join(all_stored)
    padded = [b"\x02%b\x02" % stored for stored in all_stored]
    return [_values(padded, name) if name + b"\x01" in joined else [""] * len(padded) for name in names]


def _values(all_padded: list[bytes], name: bytes) -> list[str]:
    """:func:`stored_value` of each, at a third of the cost where the last entry of the name has a value."""
    mark = b"\x02%b\x01" % name
    # Where there is none, all of it is what lies behind, and begins with a separator: the value is empty, too.
    values = [padded.rpartition(mark)[2].partition(b"\x02")[0] for padded in all_padded]
    if all(values) and b"".join(values).isascii():
        return [value.decode() for value in values]
    return [
        value.decode("utf-8", "replace") if value else stored_value(padded, name)
        for value, padded in zip(values, all_padded, strict=True)
    ]


def stored_value(padded: bytes, name: bytes) -> str:
    """Return what :func:`stored_properties` has under a name, empty without it; found without taking the others apart.

    Args:
        padded: the properties as stored, with a separator before and behind them.
        name: one of the names that are looked for so, in ASCII.
    """
    mark = b"\x02%b\x01" % name
    found = padded.rfind(mark)
    if found < 0:
        return ""
    begin = found + len(mark)
    end = padded.index(b"\x02", begin)
    if begin == end:  # it has no value, and one before it counts
        found = padded.rfind(mark, 0, begin - 1)
        if found < 0:
            return ""
        begin = found + len(mark)
        end = padded.index(b"\x02", begin)
    if begin == end:  # a stranger may have put a thousand of them in a row
        values = _VALUES_OF[name].findall(padded)
        return str(values[-1], "utf-8", "replace") if values else ""
    return str(padded[begin:end], "utf-8", "replace")


def properties_to_string(properties: Mapping[str, str]) -> str:
    """Return the stored form, without a last separator (as 4.9 writes it)."""
    return PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()])
