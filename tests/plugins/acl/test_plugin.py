"""Access is judged by the topic that a record is for, not by the one where it waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from flintmq.core.broker.api import BrokerApi
from flintmq.plugins.acl.plugin import topic_of_record


def api(record: Any) -> BrokerApi:
    outlet = SimpleNamespace(message_at=lambda _offset: record)
    return cast("BrokerApi", SimpleNamespace(outlet=outlet, topics=SimpleNamespace(holding_topics={"WAITING"})))


@pytest.mark.parametrize(
    ("topic", "properties", "known_as"),
    [
        ("T", {}, "T"),
        ("T", {"REAL_TOPIC": "Mine"}, "T"),
        ("WAITING", {"REAL_TOPIC": "Orders"}, "Orders"),
        ("WAITING", {}, "WAITING"),
    ],
)
def test_access_to_a_message_in_an_internal_topic_is_checked_against_its_original_topic(
    topic: str, properties: dict[str, str], known_as: str
) -> None:
    """A client may write REAL_TOPIC into any message: it counts only where a feature keeps messages of others."""
    assert topic_of_record(api(SimpleNamespace(topic=topic, properties=properties)), 7) == known_as


def test_the_access_check_finds_no_topic_for_a_nonexistent_message() -> None:
    """The request is answered as RocketMQ answers it."""
    assert topic_of_record(api(None), 7) is None
