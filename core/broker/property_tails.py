"""Caches the ends of property strings in parsed form, because the property strings of a sender usually end alike.

A client writes the same properties in the same order for each message, and only the first few values differ::

    KEYS 0x01 order-17 0x02 UNIQ_KEY 0x01 AC11…0A 0x02 WAIT 0x01 true 0x02 TAGS 0x01 TagA
    ────────────────── differs ──────────────────│──────────── the tail: as before ──────

The common end is called the tail. Its stored form, its tags code and whether the sender waits for durability are computed once
for all messages. A string with another structure is not looked up in the cache, but parsed as a whole. So is a string with a
property that a plugin processes before the message is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.record import properties as props
from flintmq.core.record.java_hash import tags_hash
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import About

_KEYS: Final = "KEYS\x01"
_UNIQ_KEY: Final = "UNIQ_KEY\x01"
_KEYS_LENGTH: Final = len(_KEYS)
_UNIQ_KEY_LENGTH: Final = len(_UNIQ_KEY)
_UNUSUAL: Final = frozenset({props.UNIQ_KEY, props.CLUSTER, props.TRANSACTION_PREPARED})
"""Properties that prevent the caching of a tail, the part of a property string after UNIQ_KEY. These properties affect the rest
of the string or the handling of the message."""

TAILS_MAX: Final = 4_096
"""Maximum number of cached tails of property strings. If the cache has this number of tails, it is emptied before the next tail
is cached."""
TAIL_MAX_CHARACTERS: Final = 512
"""Maximum length, in characters, of a tail that is cached. A tail is the part of a message's property string after the value of
UNIQ_KEY. Clients choose the tails, so the cache's memory is bounded only by this maximum and by the maximum number of cached
tails (:data:`TAILS_MAX`)."""
_LEARN_AT_ONCE: Final = 64
"""Number of cache entries below which each new tail is cached at once. A tail is the part of a message's property string after
the property UNIQ_KEY, which is usually equal in all messages of a sender. If the cache has more entries, only some of the new
tails are cached."""
_LEARN_EACH: Final = 8
"""Number of cache misses for each tail that is added, if the cache already has many tails (at least :data:`_LEARN_AT_ONCE`). A
tail is the part of a property string after the value of UNIQ_KEY. Only a miss that adds a tail parses the tail for the cache.
Senders whose messages all have different tails therefore cost little."""


class Tail(msgspec.Struct, frozen=True, gc=False):
    """The tail of a property string, from the separator after UNIQ_KEY on, in parsed form."""

    stored: str
    """The part of a property string after the value of UNIQ_KEY, as the records of the log contain it. In this form, the
    property WAIT is removed, and the property CLUSTER is added."""
    tags_code: int
    keys: str
    wait: bool
    """Whether the sender waits until its messages are durable."""


class PropertyTails:
    """A cache of the parsed tails of property strings, keyed by the tail's text. Used only on the event loop's thread.

    Args:
        stored: returns the stored form of a property string, given the string and its parsed properties.
        steps: the intake steps of plugins. A tail is not cached if it has a property that an intake step processes.
    """

    def __init__(self, stored: Callable[[str, dict[str, str]], str], steps: IntakeSteps) -> None:
        self._stored = stored
        self._steps = steps
        self._tails: dict[str, Tail | None] = {}
        self._missed = 0

    def __len__(self) -> int:
        return len(self._tails)

    def look_up(self, text: str) -> tuple[bytes, About, bool] | None:
        """Return the parsed form of a property string from the cache; None if the caller has to parse the string.

        Returns:
            The string as stored, its tags code and keys for the queues and the index, and whether the sender waits for
            durability.
        """
        keys = ""
        start = 0
        if text.startswith(_KEYS):
            start = text.find("\x02") + 1
            keys = text[_KEYS_LENGTH : start - 1]
        if not text.startswith(_UNIQ_KEY, start) or not text.isascii() or "\0" in text:
            return None
        start += _UNIQ_KEY_LENGTH
        end = text.find("\x02", start)
        if end < 0:
            end = len(text)
        tail_text = text[end:]
        tail = self._tails.get(tail_text)
        if tail is None:
            if tail_text not in self._tails:
                self._learn(tail_text)
            return None
        uniq_key = text[start:end]
        if not uniq_key or "\x01" in uniq_key or "\x01" in keys:
            return None
        return (
            (text[:end] + tail.stored).encode("ascii"),
            (tail.tags_code, tail.keys or keys, uniq_key),  # If a message has two properties KEYS, the last applies.
            tail.wait,
        )

    def _learn(self, tail_text: str) -> None:
        """Parse the tail of a property string, and cache the result for later messages with the same tail."""
        tails = self._tails
        self._missed += 1
        if len(tail_text) > TAIL_MAX_CHARACTERS or (len(tails) >= _LEARN_AT_ONCE and self._missed % _LEARN_EACH):
            return
        if len(tails) >= TAILS_MAX:
            tails.clear()
        found = string_to_properties(tail_text)
        if not _UNUSUAL.isdisjoint(found) or not self._steps.property_names.isdisjoint(found):
            tails[tail_text] = None
            return
        head = f"{_UNIQ_KEY}0"
        stored = self._stored(head + tail_text, {props.UNIQ_KEY: "0", **found})
        tails[tail_text] = (
            Tail(
                stored[len(head) :],
                tags_hash(found.get(props.TAGS, "")),
                found.get(props.KEYS, ""),
                found.get(props.WAIT) != "false",
            )
            if stored.startswith(head)
            else None
        )
