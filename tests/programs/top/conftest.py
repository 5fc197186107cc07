"""A cluster whose values never change, so that a screen can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from flintmq.core.broker.conflicts import SUBSCRIPTION, Conflict, Variant
from flintmq.programs.cluster_view.values import (
    BrokerView,
    GroupQueue,
    GroupView,
    Member,
    MemberSubscription,
    Overview,
    PlacedAlarm,
    QueueView,
    Setting,
    StuckQueue,
    TopicView,
)

ALARM = PlacedAlarm(
    id="broker.missing", level="critical", subject="broker-b", message="broker-b:0 does not answer: [b]gone[/b]",
    value=0, unit="", limit=0, key="", broker="broker-b", address="10.0.0.2:10911",
)  # fmt: skip
BROKER = BrokerView(
    cluster="Shop", name="broker-a", broker_id=0, address="10.0.0.1:10911", error="", age_s=1.0, version="V4_9_7",
    is_flintmq=True, boot_timestamp_ms=0, put_per_s=20_480.25, get_per_s=19_999.0, put_today=5, got_today=4,
    put_latency_99_ms=0.5, commit_log_bytes=3 << 30, commit_log_min_offset_bytes=0, commit_log_max_offset_bytes=3 << 30,
    dispatch_behind_bytes=0, disk_ratio=0.61, earliest_message_timestamp_ms=0, replication={"role": "master"},
    plugins=({"name": "audit", "errors": 1, "last_error": "[red]no"},), alarms=(), figures={}, config=None,
)  # fmt: skip
AWAY = attrs.evolve(
    BROKER, name="broker-b", address="10.0.0.2:10911", error="nobody answers", put_per_s=0.0, get_per_s=0.0, alarms=()
)


def topic(name: str, put_per_s: float | None, lag: int | None, kind: str = "user") -> TopicView:
    return TopicView(
        name=name, kind=kind, perm="RW-", read_queues=8, write_queues=8, brokers=("broker-a",), missing=(),  # type: ignore[arg-type]
        put_per_s=put_per_s, messages=1_000, last_write_ms=0, groups=("billing",), lag=lag, age_s=1.0, queues=None,
    )  # fmt: skip


def group(name: str, lag: int, **others: object) -> GroupView:
    value = GroupView(
        name=name, kind="user", brokers=("broker-a",), missing=(), members=2, consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING", topics=("Orders",), lag=lag, retry_lag=3, get_per_s=12.5, conflict="", stuck=(),
        age_s=1.0, queues=None, member_list=None, conflicts=None,
    )  # fmt: skip
    return attrs.evolve(value, **others)


STUCK = StuckQueue(
    topic="Orders", broker="broker-a", queue_id=3, consumer_offset=17, lag=900, standing_s=125.0, client_id="10.0.0.9@7"
)


class FixedView:
    """Tells the same every time, unless a test changes it."""

    def __init__(self) -> None:
        self.looks = 0
        self.error = ""
        self.all_brokers: Sequence[BrokerView] = (BROKER, AWAY)
        self.all_topics: Sequence[TopicView] = (
            topic("Orders", 20_000.0, 12_345), topic("[bold red]x[/]", 480.25, 0), topic("Audit", None, None),
            topic("%DLQ%billing", 0.0, 0, "dead_letter"), topic("TBW102", 0.0, 0, "system"),
        )  # fmt: skip
        self.all_groups: Sequence[GroupView] = (
            group("idle", 0, members=0), group("billing", 12_345, stuck=(STUCK,)), group("odd", 7, conflict="a and b"),
        )  # fmt: skip

    async def overview(self) -> Overview:
        self.looks += 1
        return Overview(
            name_servers=("10.0.0.1:9876",), clusters=("Shop",), age_s=1.0, brokers=2, brokers_missing=1, topics=4,
            groups=3, put_per_s=20_480.25, get_per_s=19_999.0, put_latency_99_ms=0.5, lag=12_352, groups_behind=2,
            conflicts=1, stuck=1, alarms=(ALARM,), errors=(self.error,) if self.error else (),
        )  # fmt: skip

    async def brokers(self) -> Sequence[BrokerView]:
        return self.all_brokers

    async def topics(self) -> Sequence[TopicView]:
        return self.all_topics

    async def groups(self) -> Sequence[GroupView]:
        return self.all_groups

    async def broker(self, name: str, broker_id: int = 0) -> BrokerView | None:
        row = next((one for one in self.all_brokers if (one.name, one.broker_id) == (name, broker_id)), None)
        config = (Setting(name="brokerName", value="[b]broker-a", origin=""),)
        return row and attrs.evolve(row, config=config)

    async def topic(self, name: str) -> TopicView | None:
        row = next((one for one in self.all_topics if one.name == name), None)
        queue = QueueView(broker="broker-a", queue_id=0, min_queue_offset=5, max_queue_offset=1_005, last_write_ms=0)
        return row and attrs.evolve(row, queues=(queue,))

    async def group(self, name: str) -> GroupView | None:
        row = next((one for one in self.all_groups if one.name == name), None)
        queue = GroupQueue(
            topic="Orders", broker="broker-a", queue_id=3, consumer_offset=17, max_queue_offset=917, lag=900,
            last_timestamp_ms=0, client_id="10.0.0.9@7",
        )  # fmt: skip
        wanted = MemberSubscription(topic="Orders", expression_type="TAG", expression="[i]new")
        member = Member(
            client_id="10.0.0.9@7", address="10.0.0.9:4711", language="JAVA", version="V4_9_7", subscriptions=(wanted,),
            queues=1, lag=900, consume_ok_per_s=1.0, consume_failed_per_s=0.0, error="",
        )  # fmt: skip
        variants = tuple(
            Variant(expression_type=text and "TAG", value=text, client_ids=(who,))
            for text, who in (("a", "one"), ("", "two"))
        )
        conflict = (
            (Conflict(about=SUBSCRIPTION, topic="Orders", variants=variants),)
            if row is not None and row.conflict
            else ()
        )
        return row and attrs.evolve(row, queues=(queue,), member_list=(member,), conflicts=conflict)


@pytest.fixture
def view() -> FixedView:
    return FixedView()
