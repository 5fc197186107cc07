"""Message properties: a mapping in memory, and one string on disk and on the wire.

The string is ``name 0x01 value 0x02 name 0x01 value``, with or without a final 0x02. Entries without a name or a value are
ignored. See docs/internals/store-format.md, Properties.
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
"""Property with the id of the request that a reply answers."""
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
"""Property with the client id of the client that sent a request and waits for the reply."""
TTL: Final = "TTL"
"""Property with the time that the requester waits for the reply, in ms."""
MSG_TYPE: Final = "MSG_TYPE"
"""Property with the message type: ``reply`` for a reply, absent from other messages."""
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
"""Property with the time at which the broker forwarded a reply, in ms since 1970."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""Property with the time at which a reply arrived at the requester, in ms since 1970."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""Property with the requested delivery time, in ms since 1970."""
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""Property with the time at which a delayed message is due, in ms since 1970; set by the broker."""
KEY_SEPARATOR: Final = " "
_UNIQ_KEY_MARK: Final = b"UNIQ_KEY\x01"
_REMEMBERED_MAX_BYTES: Final = 512
"""Maximum size of properties whose parsed values are cached. Clients determine the size, so larger properties are not
cached."""
_SEPARATOR: Final = ord(PROPERTY_SEPARATOR)
_VALUES_OF: Final = {
    name: re.compile(rb"\x02%b\x01([^\x02]+)" % name) for name in (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"TRAN_MSG")
}
"""Patterns that find a property with a value in stored properties, keyed by the property's name. The patterns search forward,
which is faster than a regex search from the end."""


def string_to_properties(text: str) -> dict[str, str]:
    """Return the properties in a stored string. As in RocketMQ, invalid entries are skipped, and the last duplicate wins."""
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
"""Return a mapping of stored properties. The properties are parsed at the first access, which for most messages never happens.

The mapping is a msgspec class, because objects of such a class are created in half the time and are not tracked by the garbage
collector.
"""


class AlikeProperties(Sequence[bytes]):
    """The stored properties of messages that differ only in the value of UNIQ_KEY, as the messages of one sender often do.

    The common parts are stored and examined once. Immutable. The methods :meth:`of` and :meth:`found_in` create an object,
    after checking that only UNIQ_KEY differs.
    """

    __slots__ = ("before", "behind", "length", "uniq_keys")

    def __init__(self, before: bytes, uniq_keys: Sequence[bytes], behind: bytes) -> None:
        self.before = before
        """The bytes of a message's properties before the value of UNIQ_KEY. These bytes are equal in all messages of this
        object."""
        self.uniq_keys = uniq_keys
        """Values of the messages' UNIQ_KEY, at least one, all ASCII without NUL and of the same length."""
        self.behind = behind
        """The bytes of a message's properties after the value of UNIQ_KEY. These bytes are equal in all messages of this
        object. They are empty, or a separator and further properties."""
        self.length = len(before) + len(uniq_keys[0]) + len(behind)
        """Size of each message's properties, in bytes."""

    @classmethod
    def of(cls, before: bytes, uniq_keys: Sequence[bytes], behind: bytes) -> AlikeProperties | None:
        """Return the stored properties of messages whose properties differ only in the value of UNIQ_KEY.

        The properties of each message are ``before``, one value of ``uniq_keys`` and ``behind``, joined. Return None if a value
        is empty, is not ASCII or contains NUL, or if a parser would find a different value of UNIQ_KEY in the joined bytes.

        Args:
            before: the bytes before the value, up to and including ``UNIQ_KEY`` and the separator between name and value.
            uniq_keys: the value of each message, at least one, all of the same length.
            behind: the bytes after the value: empty, or a separator and further properties.
        """
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
        """Return the stored properties of several messages as one object; None if the properties differ in more than the value
        of UNIQ_KEY."""
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
    """Return the start and end of the first text in stored properties that looks like a value of UNIQ_KEY.

    The two numbers are equal if the properties have no such text. The text can also be part of another property, so callers
    check the result with :meth:`AlikeProperties.of`.
    """
    begin = stored.find(_UNIQ_KEY_MARK) + len(_UNIQ_KEY_MARK)
    if begin < len(_UNIQ_KEY_MARK):
        return 0, 0
    end = stored.find(b"\x02", begin)
    return begin, end if end >= 0 else len(stored)


def with_shared(all_own: Sequence[bytes], shared: bytes) -> Sequence[bytes]:
    """Return the stored properties of messages, each with the shared properties appended."""
    if isinstance(all_own, AlikeProperties) and _UNIQ_KEY_MARK not in shared:
        before, keys, behind = all_own.before, all_own.uniq_keys, all_own.behind
        behind += shared if behind and behind[-1] == _SEPARATOR else b"\x02" + shared
        return AlikeProperties(before, keys, behind)
    parted = b"\x02" + shared
    return [own + (shared if not own or own[-1] == _SEPARATOR else parted) for own in all_own]


def has_nul(all_stored: Sequence[bytes]) -> bool:
    """Return whether the stored properties of any message contain the character NUL."""
    if isinstance(all_stored, AlikeProperties):
        return 0 in all_stored.before or 0 in all_stored.behind
    return b"\0" in b"".join(all_stored)


def nul_error() -> ValueError:
    """Return the error for properties that contain the character NUL."""
    # NUL is refused, because it is the only sign of properties that a crash left incomplete: no checksum covers properties.
    return ValueError("properties cannot hold the character NUL")


_WAITING_MARKS: Final = (b"DELAY\x01", b"TIMER_D", b"TRAN_MSG\x01")
"""Beginnings of the stored properties by which a message asks for a delay, a time of delivery or a transaction."""


def may_wait(all_stored: Sequence[bytes]) -> bool:
    """Return False if no message has a property that asks for a delay, a time of delivery or a transaction.

    True means that a message may have such a property. The names of these properties can also occur in values.
    """
    if isinstance(all_stored, AlikeProperties):
        before, behind = all_stored.before, all_stored.behind
        return (_may_wait if all_stored.length <= _REMEMBERED_MAX_BYTES else _may_wait.__wrapped__)(before, behind)
    return _may_wait.__wrapped__(b"".join(all_stored), b"")


@lru_cache(maxsize=1_024)
def _may_wait(before: bytes, behind: bytes) -> bool:
    """Return whether the bytes before or after the value of UNIQ_KEY contain a property that asks for a delay, a time of
    delivery or a transaction. The result is cached, because these bytes are the same in a sender's batches."""
    return any(mark in before or mark in behind for mark in _WAITING_MARKS)


IndexColumns = tuple[Sequence[str], Sequence[str], Sequence[bytes]]
"""Three columns with an item per message: TAGS, KEYS, and UNIQ_KEY in UTF-8. An item is empty if the message lacks the
property."""


def index_columns(all_stored: Sequence[bytes]) -> IndexColumns:
    """Return the TAGS, KEYS and UNIQ_KEYs in the stored properties of many messages, for the consume queues and the index."""
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
    """Return the values of TAGS and KEYS in the stored properties of messages that differ only in UNIQ_KEY. ``before`` and
    ``behind`` are the bytes before and after the value of UNIQ_KEY. The result is cached, because a sender often sends many
    batches of messages with the same TAGS and KEYS."""
    padded = b"\x02%b-%b\x02" % (before, behind)
    return stored_value(padded, b"TAGS"), stored_value(padded, b"KEYS")


def stored_values(all_stored: Sequence[bytes], names: Sequence[bytes]) -> list[list[str]]:
    """Return the values of some properties in many messages' stored properties, as a column for each name.

    The properties are searched, not parsed: parsing costs time for each entry, and a batch of 4 MiB can have two million.
    """
    joined = b"".join(all_stored)
    padded = [b"\x02%b\x02" % stored for stored in all_stored]
    return [_values(padded, name) if name + b"\x01" in joined else [""] * len(padded) for name in names]


def _values(all_padded: list[bytes], name: bytes) -> list[str]:
    """Return the value of one property in each of many messages' stored properties, as :func:`stored_value` does for one
    message.

    A message can have several entries with the same name. If the last such entry has a value in every message, this function
    takes a third of the time of separate calls of :func:`stored_value`. For each message whose last entry is empty or missing,
    :func:`stored_value` is called, because an earlier entry may have a value.
    """
    mark = b"\x02%b\x01" % name
    # If the property is missing, rpartition(mark) returns the whole text as its last item. The text begins with \x02.
    # The first item of partition() is empty for a text that begins with \x02, so a missing property gets an empty value.
    values = [padded.rpartition(mark)[2].partition(b"\x02")[0] for padded in all_padded]
    if all(values) and b"".join(values).isascii():
        return [value.decode() for value in values]
    return [
        value.decode("utf-8", "replace") if value else stored_value(padded, name)
        for value, padded in zip(values, all_padded, strict=True)
    ]


def stored_value(padded: bytes, name: bytes) -> str:
    """Return the value of one property in stored properties, found by a search; empty if the property is missing.

    Args:
        padded: the stored properties, with a separator before and after them.
        name: one of the names in ``_VALUES_OF``.
    """
    mark = b"\x02%b\x01" % name
    found = padded.rfind(mark)
    if found < 0:
        return ""
    begin = found + len(mark)
    end = padded.index(b"\x02", begin)
    if begin == end:
        # If the last occurrence of the property has no value, an earlier occurrence counts.
        found = padded.rfind(mark, 0, begin - 1)
        if found < 0:
            return ""
        begin = found + len(mark)
        end = padded.index(b"\x02", begin)
    if begin == end:
        # A client can send a property thousands of times without a value. One findall() is faster than many rfind() calls.
        values = _VALUES_OF[name].findall(padded)
        return str(values[-1], "utf-8", "replace") if values else ""
    return str(padded[begin:end], "utf-8", "replace")


def properties_to_string(properties: Mapping[str, str]) -> str:
    """Return properties as a stored string, without a final separator, as RocketMQ 4.9 writes it."""
    return PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()])
