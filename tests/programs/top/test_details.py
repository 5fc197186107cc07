"""Details name what an operator needs next: who holds the queue, who contradicts whom, what a broker is set to."""

from __future__ import annotations

import asyncio
from typing import Any

from flintmq.programs.top.details import Part, alarm_parts, broker_parts, group_parts, topic_parts


def texts(parts: list[Part]) -> dict[str, list[tuple[str, ...]]]:
    return {part.title: list(part.rows) for part in parts}


def test_group_details_show_the_members_and_the_queues_and_the_stuck_queues(view: Any) -> None:
    shown = texts(group_parts(asyncio.run(view.group("billing"))))
    assert shown["stuck"] == [("Orders", "broker-a:3", "900", "2 min", "10.0.0.9@7")]
    assert shown["queues"] == [("Orders", "broker-a:3", "17", "917", "900", "10.0.0.9@7")]
    assert shown["members"] == [("10.0.0.9@7", "10.0.0.9:4711", "JAVA V4_9_7", "1", "900", "Orders [i]new")]
    assert "members contradict each other" not in shown


def test_group_details_show_conflicting_subscriptions(view: Any) -> None:
    shown = texts(group_parts(asyncio.run(view.group("odd"))))
    assert shown["members contradict each other"] == [("Orders", "'a'", "one"), ("Orders", "nothing", "two")]
    assert ("conflict", "a and b") in shown["group odd"]


def test_topic_details_show_queues_and_groups(view: Any) -> None:
    shown = texts(topic_parts(asyncio.run(view.topic("Orders"))))
    assert shown["queues"] == [("broker-a:0", "5", "1,005", "-")]
    assert shown["groups"] == [("billing",)]


def test_broker_details_show_the_disk_and_the_settings_and_the_plugins(view: Any) -> None:
    shown = texts(broker_parts(asyncio.run(view.broker("broker-a"))))
    assert ("disk", "61% used") in shown["broker broker-a:0"]
    assert shown["settings"] == [("brokerName", "[b]broker-a", "")]
    assert shown["plugins"] == [("audit", "1", "[red]no")]


def test_alarm_details_show_the_level_and_the_id_and_the_message(view: Any) -> None:
    (part,) = alarm_parts(asyncio.run(view.overview()))
    assert part.rows == (
        ("critical", "broker.missing", "broker-b broker-b", "broker-b:0 does not answer: [b]gone[/b]"),
    )
