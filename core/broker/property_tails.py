"""What one sender's messages have in common, remembered: the end of their properties.

A client writes the same properties in the same order for each message, and only the first few values differ::

    KEYS 0x01 order-17 0x02 UNIQ_KEY 0x01 AC11…0A 0x02 WAIT 0x01 true 0x02 TAGS 0x01 TagA
    ────────────────── differs ──────────────────│──────────── the tail: as before ──────

So what follows from a tail (how it is stored, its tags code, whether the sender waits) is found out once. A text of another
shape, or with a property that asks for more than to be stored, is left to the code that takes it apart.
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
"""These, in a tail, decide about more than the tail."""

TAILS_MAX: Final = 4_096
TAIL_MAX_CHARACTERS: Final = 512
"""Both bound what clients can make the broker remember."""
_LEARN_AT_ONCE: Final = 64
_LEARN_EACH: Final = 8
"""Senders whose tails all differ shall not pay for each of them."""


class Tail(msgspec.Struct, frozen=True, gc=False):
    """The end of properties, from the separator behind UNIQ_KEY on."""

    stored: str
    """As stored: without WAIT, with CLUSTER."""
    tags_code: int
    keys: str
    wait: bool
    """False when the sender does not wait for durability."""


class PropertyTails:
    """Tails by their text. Loop thread.

    Args:
        stored: how a whole text of properties is stored, given the text and what is in it.
        steps: know which properties ask for more than to be stored.
    """

    def __init__(self, stored: Callable[[str, dict[str, str]], str], steps: IntakeSteps) -> None:
        self._stored = stored
        self._steps = steps
        self._tails: dict[str, Tail | None] = {}
        self._missed = 0

    def __len__(self) -> int:
        return len(self._tails)

    def look_up(self, text: str) -> tuple[bytes, About, bool] | None:
        """Return what follows from a text of properties: how it is stored, what queues and index want of it, and
        whether the sender waits for durability. None when it has to be taken apart."""
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
            (tail.tags_code, tail.keys or keys, uniq_key),  # the last of equals wins
            tail.wait,
        )

    def _learn(self, tail_text: str) -> None:
        """Remember what follows from a tail, for the next message that has it."""
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
