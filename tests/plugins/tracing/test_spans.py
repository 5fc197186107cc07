"""What spans say of a message is bounded, and of the types that the conventions want."""

from __future__ import annotations

import pytest

from flintmq.core.record.properties import properties_to_string
from flintmq.plugins.tracing.spans import STAGES, TYPES, Span, message_attributes, new_context


def about(topic: str = "T", *, is_held: bool = False, **properties: str) -> dict[str, object]:
    stored = properties_to_string(properties).encode("utf-8", "surrogatepass")
    return {**message_attributes(topic, 3, 10, stored, is_held=is_held)}


def test_long_message_tags_and_long_lists_of_message_keys_are_truncated_in_span_attributes() -> None:
    """A collector refuses what is too long, and then everything that was pushed with it."""
    said = about(
        TAGS="t" * 9_000, KEYS=" ".join("k" * 300 for _ in range(90)), UNIQ_KEY="u" * 9_000, RETRY_TOPIC="r" * 900
    )
    assert sum(len(str(value)) for value in said.values()) < 7_000
    assert said["messaging.rocketmq.message.tag"] == "t" * 256
    assert len(said["messaging.rocketmq.message.keys"]) == 16  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("properties", "kind", "level"),
    [
        ({}, "normal", None),
        ({"DELAY": "0"}, "normal", None),
        ({"DELAY": "3"}, "delay", 3),
        ({"DELAY": "x"}, "delay", None),
        ({"DELAY": "9" * 30}, "delay", None),
        ({"DELAY": "\N{SUPERSCRIPT TWO}"}, "delay", None),
        ({"TIMER_DELAY_SEC": "5"}, "delay", None),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "transaction", 3),
        ({"TRAN_MSG": "false"}, "normal", None),
    ],
)
def test_a_span_has_an_attribute_with_the_type_of_the_message(
    properties: dict[str, str], kind: str, level: int | None
) -> None:
    """As the conventions for RocketMQ name them; numbers that are none are not said."""
    said = about(**properties)
    assert said["messaging.rocketmq.message.type"] == kind
    assert said.get("messaging.rocketmq.message.delay_time_level") == level


def test_the_span_of_a_delayed_or_half_message_has_the_real_topic_of_the_message() -> None:
    """An operator asks for the topic of the application, not for the broker's own."""
    said = about("SCHEDULE_TOPIC_XXXX", is_held=True, REAL_TOPIC="Orders", REAL_QID="2")
    assert said["messaging.destination.name"] == "Orders"
    assert said["messaging.destination.partition.id"] == "2"
    assert said["flintmq.held_in"] == "SCHEDULE_TOPIC_XXXX"


def test_only_spans_of_client_operations_have_an_operation_type() -> None:
    """The conventions know only these; what else the broker does is its own."""
    for operation in STAGES:
        said = Span(operation, new_context(), 1, 2, 3, 4, {}, error="timeout").attributes
        assert said.get("messaging.operation.type") == TYPES.get(operation)
        assert said["error.type"] == "timeout"
