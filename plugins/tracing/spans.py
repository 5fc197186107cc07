"""Defines spans, as they are kept until they are pushed, and the attributes that describe a message.

Names follow OpenTelemetry's semantic conventions for messaging and for RocketMQ
(https://opentelemetry.io/docs/specs/semconv/messaging/). Attributes that the conventions lack begin with ``flintmq.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from flintmq.core.io import chance
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import number_or, parse_long
from flintmq.core.record.properties import string_to_properties
from flintmq.plugins.tracing.trace_context import RANDOM, SAMPLED, TraceContext

Attribute = str | int | list[str]
Attributes = Mapping[str, Attribute]

STORE: Final = "store"
INTAKE: Final = "intake"
APPEND: Final = "append"
FLUSH: Final = "flush"
REPLICATE: Final = "replicate"
ACKNOWLEDGE: Final = "acknowledge"
DISPATCH: Final = "dispatch"
DELIVER: Final = "deliver"
STAGES: Final = (STORE, INTAKE, APPEND, FLUSH, REPLICATE, ACKNOWLEDGE, DISPATCH, DELIVER)
"""Names of all operations for which a traced message gets a span."""
TYPES: Final = {STORE: "send", DELIVER: "receive"}
"""OpenTelemetry's operation types, keyed by operation. Only operations that serve a client's request have a type; the other
operations are internal."""

_TEXT_MAX: Final = 256
_KEYS_MAX: Final = 16


class Span(msgspec.Struct, frozen=True):
    """A finished OpenTelemetry span of a message."""

    operation: str
    context: TraceContext
    """Trace context of the message: the trace id, the flags and the ``tracestate``."""
    span_id: int
    parent_id: int
    """Id of the parent span; 0 for the first span of a trace."""
    begin_ns: int
    """Time at which the operation began, in ns since 1970."""
    end_ns: int
    message: Attributes
    """Attributes of the message, shared by all spans of the message."""
    more: Attributes = {}
    """Attributes of the span's operation, in addition to the attributes of the message."""
    error: str = ""
    """Reason why the operation failed; empty if the operation succeeded."""

    @property
    def attributes(self) -> dict[str, Attribute]:
        """Return all attributes of the span: those of the message, of the operation and of the error."""
        said: dict[str, Attribute] = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": self.operation,
            **self.message,
            **self.more,
        }
        if self.operation in TYPES:
            said["messaging.operation.type"] = TYPES[self.operation]
        if self.error:
            said["error.type"] = self.error
        return said


def new_span_id() -> int:
    """Return a random span id, which is not 0."""
    return chance.bits(64) or 1


def new_context() -> TraceContext:
    """Return the context of a new, sampled trace. Its parent id is the id of the trace's first span."""
    return TraceContext(chance.bits(128) or 1, new_span_id(), SAMPLED | RANDOM)


def message_attributes(
    topic: str, queue_id: int, body_bytes: int, stored: bytes, *, is_held: bool
) -> dict[str, Attribute]:
    """Return the attributes that describe a message in its spans.

    Args:
        topic: the topic under which the message is stored.
        queue_id: the queue in which it is stored.
        body_bytes: the length of its body.
        stored: its properties, encoded as in its record.
        is_held: whether ``topic`` is an internal topic, such as the schedule topic, in which the message waits. Its
            properties then contain its real topic and queue.
    """
    properties = string_to_properties(stored.decode("utf-8", "replace"))
    get = properties.get
    said: dict[str, Attribute] = {
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(queue_id),
        "messaging.message.body.size": body_bytes,
        "messaging.rocketmq.message.type": _type(properties),
    }
    if is_held:
        said["messaging.destination.name"] = get(props.REAL_TOPIC, topic)[:_TEXT_MAX]
        said["messaging.destination.partition.id"] = get(props.REAL_QUEUE_ID, str(queue_id))[:_TEXT_MAX]
        said["flintmq.held_in"] = topic
    if uniq_key := get(props.UNIQ_KEY):
        said["messaging.message.id"] = uniq_key[:_TEXT_MAX]
    if tag := get(props.TAGS):
        said["messaging.rocketmq.message.tag"] = tag[:_TEXT_MAX]
    if keys := get(props.KEYS):
        said["messaging.rocketmq.message.keys"] = [
            key[:_TEXT_MAX] for key in keys.split(props.KEY_SEPARATOR, _KEYS_MAX)[:_KEYS_MAX] if key
        ]
    if (level := number_or(get(props.DELAY), 0)) > 0:
        said["messaging.rocketmq.message.delay_time_level"] = level
    if (due_ms := number_or(get(props.TIMER_OUT_MS) or get(props.TIMER_DELIVER_MS), -1, parse_long)) >= 0:
        said["messaging.rocketmq.message.delivery_timestamp"] = due_ms
    if origin := get(props.RETRY_TOPIC):
        said["flintmq.retry_of"] = origin[:_TEXT_MAX]
    return said


_WAITS: Final = frozenset({props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC})


def _type(properties: Mapping[str, str]) -> str:
    if properties.get(props.TRANSACTION_PREPARED, "").lower() == "true":
        return "transaction"
    is_delayed = properties.get(props.DELAY, "0") != "0" or not _WAITS.isdisjoint(properties)
    return "delay" if is_delayed else "normal"
