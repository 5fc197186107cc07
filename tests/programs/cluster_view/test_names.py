"""Lists show users their own topics and groups first: the system's are told apart by name."""

from __future__ import annotations

import pytest

from flintmq.core.broker.groups import BUILT_IN_GROUPS
from flintmq.programs.cluster_view.names import kind_of_group, kind_of_topic

PLACES = [("broker-a", "C")]


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", "user"),
        ("%RETRY%billing", "retry"),
        ("%DLQ%billing", "dead_letter"),
        ("TBW102", "system"),
        ("rmq_sys_wheel_timer", "system"),
        ("broker-a", "system"),
        ("C_REPLY_TOPIC", "system"),
        ("C", "system"),
        ("broker-b", "user"),
        ("<b>", "user"),
    ],
)
def test_retry_and_dead_letter_and_system_topics_are_recognized_by_their_names(topic: str, kind: str) -> None:
    assert kind_of_topic(topic, PLACES) == kind


def test_built_in_groups_are_classified_as_system_groups() -> None:
    assert {kind_of_group(config.group_name) for config in BUILT_IN_GROUPS} == {"system"}
    assert [kind_of_group(group) for group in ("CID_RMQ_SYS_TRANS", "billing", "")] == ["system", "user", "user"]
