"""The intake step ``tracing``: records the messages to trace, before another step moves them to another topic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flintmq.core.io import chance
from flintmq.core.limits import PROPERTIES_MAX_BYTES
from flintmq.core.record.properties import UNIQ_KEY, AlikeProperties
from flintmq.plugins.tracing.spans import new_context
from flintmq.plugins.tracing.trace_context import (
    MARK,
    TRACEPARENT,
    TraceContext,
    TraceContextError,
    is_unsampled,
    read_context,
)

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.core.kernel.ports import Sent
    from flintmq.core.record.batch import MessageBatch
    from flintmq.core.record.record import MessageExtBrokerInner

_NOTED_MAX: Final = 8_192
"""Maximum number of messages whose trace contexts are kept from the intake to the append of the message. If a message is
refused after the intake step, its trace context stays until newer trace contexts displace it."""
_BATCHES_MAX: Final = 256
_ENTRY_BYTES: Final = len(MARK) + 56
_KEY_MAX: Final = 64


class Noted(msgspec.Struct, frozen=True):
    """The data that :class:`TraceStep` records about a message to trace, before the message is stored."""

    began_ns: int
    """Time at which the intake of the message began, in ns since 1970; 0 if the message is not traced."""
    context: TraceContext | None
    """Trace context of the message; None if the message is not traced because its ``traceparent`` is malformed."""
    is_first: bool = False
    """Whether the broker began the trace of the message. If so, the first span of the trace is the broker's."""


class TraceStep:
    """Records messages with a sampled ``traceparent`` for tracing, and adds a ``traceparent`` to a share of the other messages.
    Used only on the event loop's thread.

    The class is an intake step (:class:`flintmq.core.kernel.ports.IntakeStep`), which the broker calls before it stores a
    message. It never redirects or refuses a message.

    Args:
        api: the broker. Its setting ``tracing.sample_one_in`` gives the share of messages without ``traceparent`` to trace.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._topics = api.topics
        self._one_in = api.settings.current.tracing.sample_one_in
        self.property_names = frozenset({TRACEPARENT})
        self.topic_prefixes: tuple[str, ...] = ("",) if self._one_in else ()
        self._noted: dict[tuple[str, str], Noted] = {}
        self._batches: dict[int, dict[int, Noted]] = {}
        """Trace data (:class:`Noted`) of the messages of batches, keyed by the ``id()`` of the batch's properties, then by the
        message's index in the batch. The trace data of a refused batch stays until a later batch has the same ``id()``, or
        until trace data of newer batches displaces it."""
        self.has_batches = False
        """Whether trace data of the messages of any batch was recorded and not yet removed by :meth:`noted_of_batch`. If false,
        callers need not call that method for a stored batch."""
        self.malformed = 0
        """Number of messages that were not traced because their ``traceparent`` was malformed."""

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Record a client's message if it is to be traced. Always return False, so that the other intake steps run, too."""
        if sent is None:
            return False
        value = message.properties.get(TRACEPARENT)
        if value is not None:
            if is_unsampled(value):
                return False
            noted = self._read(message.properties_bytes)
        elif self._is_chosen(message.topic, len(message.properties_bytes)):
            noted = Noted(time.time_ns(), new_context(), is_first=True)
            assert noted.context is not None
            value = noted.context.traceparent
            message.properties = {**message.properties, TRACEPARENT: value}
            message.properties_bytes = _with_parent(message.properties_bytes, value)
        else:
            return False
        if noted is not None:
            if len(self._noted) >= _NOTED_MAX:
                del self._noted[next(iter(self._noted))]
            self._noted[_key(message.properties)] = noted
        return False

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Record the messages of a batch that are to be traced. Never refuse a batch."""
        all_stored = batch.stored_properties
        if self.has_batches:
            self._batches.pop(id(all_stored), None)
        members: dict[int, Noted] = {}
        if TRACEPARENT in shared or _are_marked(all_stored):
            found = ((at, self._read(stored)) for at, stored in enumerate(all_stored) if MARK in stored)
            members = {at: noted for at, noted in found if noted is not None}
        elif self._one_in:
            longest = all_stored.length if isinstance(all_stored, AlikeProperties) else max(map(len, all_stored))
            chosen = [at for at in range(len(all_stored)) if self._is_chosen(batch.topic, longest)]
            if chosen:
                members = {at: Noted(time.time_ns(), new_context(), is_first=True) for at in chosen}
                batch.stored_properties = all_stored = [
                    _with_parent(stored, members[at].context.traceparent) if at in members else stored  # type: ignore[union-attr]
                    for at, stored in enumerate(all_stored)
                ]
        if members:
            if len(self._batches) >= _BATCHES_MAX:
                del self._batches[next(iter(self._batches))]
            self._batches[id(all_stored)] = members
            self.has_batches = True

    def noted(self, message: MessageExtBrokerInner) -> Noted | None:
        """Remove and return what was recorded about a message to trace; None if nothing was recorded, for example because the
        broker itself put the message."""
        return self._noted.pop(_key(message.properties), None) if self._noted else None

    def noted_of_batch(self, batch: MessageBatch) -> Mapping[int, Noted]:
        """Remove and return what was recorded about a batch's messages to trace, keyed by their index in the batch."""
        found = self._batches.pop(id(batch.stored_properties), None)
        self.has_batches = bool(self._batches)
        return found or {}

    def _read(self, stored: bytes) -> Noted | None:
        """Return what to record about a message that has a ``traceparent``; None if the producer's span is not sampled."""
        try:
            context = read_context(stored)
        except TraceContextError:
            self.malformed += 1
            return Noted(0, None)
        is_wanted = context is not None and context.is_sampled
        return Noted(time.time_ns(), context) if is_wanted else None

    def _is_chosen(self, topic: str, properties_bytes: int) -> bool:
        return (
            self._one_in > 0
            and chance.below(self._one_in) == 0
            and properties_bytes + _ENTRY_BYTES <= PROPERTIES_MAX_BYTES
            and not self._topics.is_system_topic(topic)
        )


def _are_marked(all_stored: Sequence[bytes]) -> bool:
    """Return whether one of the messages of a batch may have a ``traceparent``."""
    # The messages of AlikeProperties differ only in UNIQ_KEY, so the first message shows whether all have ``traceparent``.
    if isinstance(all_stored, AlikeProperties):
        return MARK in all_stored[0]
    return MARK in b"".join(all_stored)


def _with_parent(stored: bytes, value: str) -> bytes:
    parted = stored if not stored or stored.endswith(b"\x02") else stored + b"\x02"
    return parted + MARK + value.encode()


def _key(properties: Mapping[str, str]) -> tuple[str, str]:
    return properties.get(TRACEPARENT, "")[:_KEY_MAX], properties.get(UNIQ_KEY, "")[:_KEY_MAX]
