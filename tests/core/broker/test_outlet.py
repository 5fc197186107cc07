"""A pull gets what its group may read, or exactly one reason why not; a wait ends once, by a message or by its time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import pytest

from flintmq.config.rocketmq.system_topics import OFFSET_MOVED_EVENT
from flintmq.core.broker.consumer_group import BROADCASTING, CLUSTERING
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.hold import HeldPull
from flintmq.core.broker.outlet import Empty, Found, Wanted
from flintmq.core.broker.perm import READ_WRITE, WRITE
from flintmq.core.broker.role import SLAVE
from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import HandedOut
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.filters.plugin import tag_filter
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel
from flintmq.testing.store import message, open_store
from flintmq.tests.support.state import state_of

PEER = RecordingChannel("10.0.0.1:4321")


class Outlet:
    """An outlet over a store with the topic ``T`` of four queues, and the waits that were woken."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store = open_store(root)
        self.services: list[Any] = []
        self.state = state_of(
            clock=self.clock,
            store=self.store,
            filters={"TAG": tag_filter, "SQL92": sql92_filter},
            services=lambda: self.services,
        )
        self.state.topics.create_in_send_back("T", 4)
        self.hears = True
        """Whether held pulls are notified of new messages."""
        self.store.reput.arrived.subscribe(lambda batch: self.hears and self.state.outlet.held.arrived(batch))
        self.outlet = self.state.outlet
        self.woken: list[HeldPull] = []

    def put(self, *bodies: str, queue_id: int = 0, topic: str = "T", **properties: str) -> None:
        """Store messages, which makes them visible."""
        self.state.sink.put([message(topic, queue_id, body.encode(), **properties) for body in bodies])  # type: ignore[arg-type]

    def pull(self, **fields: Any) -> Found | Empty:
        """Pull queue 0 of ``T`` from its start, but for what is said."""
        return self.outlet.pull(wanted(**fields))

    def found(self, **fields: Any) -> list[str]:
        """The bodies of what a pull finds."""
        pulled = self.pull(**fields)
        return bodies(pulled) if isinstance(pulled, Found) else [pulled.status]

    def refusal(self, **fields: Any) -> RefusedError:
        """Why a pull is refused."""
        with pytest.raises(RefusedError) as refused:
            self.pull(**fields)
        return refused.value

    def configure(self, **sections: Any) -> None:
        """Change settings of sections while running."""
        config = self.state.config
        changed = {name: attrs.evolve(getattr(config, name), **values) for name, values in sections.items()}
        self.state.update_config(attrs.evolve(config, **changed))

    def subscribe(self, *subscriptions: SubscriptionData, message_model: str = CLUSTERING) -> None:
        """Have the group ``G`` a member with subscriptions."""
        self.state.consumers.register("G", PEER, "C", subscriptions, message_model=message_model)

    def events(self) -> list[Any]:
        """The bodies of the records in OFFSET_MOVED_EVENT."""
        pulled = self.outlet.read(OFFSET_MOVED_EVENT, 0, 0)
        return [json.loads(record.body) for record in pulled.messages()] if isinstance(pulled, Found) else []


def wanted(**fields: Any) -> Wanted:
    """What a group wants of queue 0 of ``T``, from its start."""
    return Wanted(**{"topic": "T", "queue_id": 0, "queue_offset": 0, "group": "G", "peer": PEER} | fields)


def bodies(found: Found) -> list[str]:
    return [record.body.decode() for record in found.messages()]


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Outlet]:
    """An outlet whose store is closed at the end."""
    made = Outlet(tmp_path / "store")
    yield made
    made.store.close()


# --- pull ---


def test_a_pull_returns_messages_from_its_queue_offset(at: Outlet) -> None:
    """The answer also has the first and last offset of the queue, and the offset of the next pull."""
    at.put("first", "second", "third")
    pulled = at.pull(queue_offset=1)
    assert isinstance(pulled, Found)
    assert bodies(pulled) == ["second", "third"]
    assert (pulled.next_queue_offset, pulled.min_queue_offset, pulled.max_queue_offset) == (3, 0, 3)
    assert (pulled.code, pulled.status, pulled.message_count) == (0, "FOUND", 2)
    assert pulled.size_bytes == sum(map(len, pulled.records))
    assert at.found(queue_offset=1, max_count=1) == ["second"]


@pytest.mark.parametrize(
    ("fields", "code", "status", "next_offset", "may_wait"),
    [
        ({"queue_id": 1}, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0, True),
        ({"queue_id": 1, "queue_offset": 3}, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0, False),
        ({"queue_offset": 2}, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2, True),
        ({"queue_offset": 9}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 2, False),
        ({"queue_offset": -1}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, False),
        ({"expression": "A"}, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", 2, False),
    ],
)
def test_a_pull_response_without_messages_contains_the_next_queue_offset_to_pull(
    at: Outlet, fields: dict[str, Any], code: int, status: str, next_offset: int, may_wait: bool
) -> None:
    """A wait is worth it only if nothing is there yet."""
    at.put("1", "2")
    pulled = at.pull(**fields)
    assert isinstance(pulled, Empty)
    assert (pulled.code, pulled.status, pulled.next_queue_offset, pulled.may_wait) == (
        code,
        status,
        next_offset,
        may_wait,
    )
    assert (pulled.records, pulled.size_bytes) == ((), 0)
    assert at.state.stats.get_missed == 1


def test_pulled_messages_are_counted_in_the_statistics_and_reported_to_plugins(at: Outlet) -> None:
    """A pull that finds nothing is counted as such, and told to nobody."""
    heard: list[HandedOut] = []
    at.put("one", "two")
    follower: Any = SimpleNamespace(on_handed_out=heard.append)
    at.state.followers.add(follower)
    at.pull(queue_offset=2)
    pulled = at.pull()
    assert [(one.topic, one.group, one.queue_id, one.records) for one in heard] == [("T", "G", 0, pulled.records)]
    stats = at.state.stats
    assert (stats.get_found, stats.get_missed, stats.get_messages, stats.get_bytes) == (1, 1, 2, pulled.size_bytes)


def test_the_commit_offset_of_a_pull_is_stored_except_on_a_slave(at: Outlet) -> None:
    """Zero as well; none if it brings none, and none by a slave."""
    query = at.state.offsets.query
    at.pull()
    assert query("T", "G", 0) == -1
    at.put("one")
    for committed in (0, 7):
        at.pull(commit_offset=committed)
        assert query("T", "G", 0) == committed
    at.state.role.change(SLAVE, 1)
    at.pull(commit_offset=9)
    assert query("T", "G", 0) == 7


# --- refusals ---


def mended(at: Outlet) -> list[tuple[Callable[[], object], str, int, str]]:
    """What repairs one fault after the other, and the refusal of each before: its reason, code and remark."""
    state = at.state
    old = build_subscription("T", "A", sub_version=3)
    return [
        (
            lambda: at.configure(broker={"permission": READ_WRITE}),
            "broker.not_readable",
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1:10911] pulling message is forbidden",
        ),
        (
            lambda: state.groups.put(SubscriptionGroupConfig(group_name="G", consume_enable=False)),
            "group.missing",
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group [G] does not exist",
        ),
        (
            lambda: state.groups.put(SubscriptionGroupConfig(group_name="G", consume_broadcast_enable=False)),
            "group.disabled",
            ResponseCode.NO_PERMISSION,
            "subscription group no permission, G",
        ),
        (
            lambda: state.topics.put(msgspec.structs.replace(state.topics.create_in_send_back("New", 4), perm=WRITE)),
            "topic.missing",
            ResponseCode.TOPIC_NOT_EXIST,
            "topic[New] not exist, apply first please!",
        ),
        (
            lambda: state.topics.put(
                msgspec.structs.replace(state.topics.create_in_send_back("New", 4), perm=READ_WRITE, read_queue_nums=2)
            ),
            "topic.not_readable",
            ResponseCode.NO_PERMISSION,
            "the topic[New] pulling message is forbidden",
        ),
        (
            lambda: state.topics.put(
                msgspec.structs.replace(state.topics.create_in_send_back("New", 4), read_queue_nums=3)
            ),
            "queue.illegal",
            ResponseCode.SYSTEM_ERROR,
            "queueId[2] is illegal, topic:[New] topicConfig.readQueueNums:[2] consumer:[10.0.0.1:4321]",
        ),
        (
            lambda: at.subscribe(old, message_model=BROADCASTING),
            "subscription.no_group",
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's group info not exist",
        ),
        (
            lambda: at.state.groups.put(SubscriptionGroupConfig(group_name="G")),
            "group.no_broadcast",
            ResponseCode.NO_PERMISSION,
            "the consumer group[G] can not consume by broadcast way",
        ),
        (
            lambda: at.subscribe(msgspec.structs.replace(old, topic="New")),
            "subscription.missing",
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "the consumer's subscription not exist",
        ),
        (
            lambda: at.subscribe(build_subscription("New", "a > 1", "SQL92", 5)),
            "subscription.old",
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        ),
        (
            lambda: at.configure(pull={"property_filter": True}),
            "filter.off",
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        ),
    ]


def test_a_pull_with_several_errors_gets_the_response_code_and_remark_that_rocketmq_returns(at: Outlet) -> None:
    """Everything is wrong with the pull at first, and one thing less each time."""
    at.configure(broker={"permission": WRITE}, groups={"auto_create": False})
    fields: dict[str, Any] = {"topic": "New", "queue_id": 2, "expression": None, "sub_version": 5}
    for repair, reason, code, remark in mended(at):
        refused = at.refusal(**fields)
        assert (refused.reason, refused.code) == (reason, code)
        assert refused.remark.startswith(f"{remark} [{reason}")
        repair()
    assert isinstance(at.pull(**fields), Empty)
    assert (at.state.stats.get_found, at.state.stats.get_missed) == (0, 1)


@pytest.mark.parametrize(
    ("expression", "kind", "code", "reason"),
    [
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "subscription.blank"),
        ("|| ||", "TAG", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "subscription.empty"),
        ("a >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "filter.syntax"),
        ("x", "REGEX", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "filter.unknown"),
    ],
)
def test_a_pull_with_an_invalid_expression_is_refused(
    at: Outlet, expression: str, kind: str, code: int, reason: str
) -> None:
    """A pull that brings its expression is told at once."""
    at.configure(pull={"property_filter": True})
    refused = at.refusal(expression=expression, expression_type=kind)
    assert (refused.code, refused.reason) == (code, reason)


# --- the slave policy ---


def test_a_slave_refuses_pulls_if_slave_reads_are_disabled_and_its_master_is_registered(
    at: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer pulls again from the same offset, of the master; nothing is skipped, counted or stored."""
    at.put("one")
    at.state.role.change(SLAVE, 1)
    has_master = True
    monkeypatch.setattr(at.state, "has_master", lambda: has_master)
    pulled = at.pull(queue_offset=5, commit_offset=3)
    assert pulled == Empty(5, 0, 0, 0, ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert at.state.stats.get_missed == 0
    has_master = False
    assert at.found() == ["one"]
    has_master = True
    at.configure(pull={"slave_read": True})
    assert at.found() == ["one"]


def test_a_group_that_is_far_behind_is_directed_to_its_configured_slave(at: Outlet) -> None:
    """The slave is suggested only if slave reads are enabled; otherwise the master is."""
    at.put("one")
    group = SubscriptionGroupConfig(group_name="G", broker_id=4, which_broker_when_consume_slowly=6)
    at.state.groups.put(group)
    assert at.pull().suggested_broker_id == 0
    at.configure(pull={"slave_read": True})
    assert at.pull().suggested_broker_id == 4
    at.configure(store={"access_in_memory_ratio": 0})
    assert at.pull().suggested_broker_id == 6


# --- filters ---


def test_a_pull_with_an_expression_gets_only_matching_messages(at: Outlet) -> None:
    """Expressions select by tag, and by properties if property filters are enabled."""
    at.put("a", tags="A", color="red")
    at.put("b", tags="B", color="blue")
    assert at.found(expression="") == ["a", "b"]
    assert at.found(expression="B || C") == ["b"]
    at.configure(pull={"property_filter": True})
    assert at.found(expression="color = 'red'", expression_type="SQL92") == ["a"]


def test_a_pull_without_an_expression_uses_the_subscription_of_its_group(at: Outlet) -> None:
    at.put("a", tags="A")
    at.put("b", tags="B")
    at.subscribe(build_subscription("T", "A"))
    assert at.found(expression=None) == ["a"]


# --- what is not there any more ---


def test_the_broker_stores_an_offset_moved_event_after_a_pull_beyond_the_end_of_a_queue(at: Outlet) -> None:
    """One in ten seconds for the same question of the same group; with ``compat: strict`` one for each pull."""
    at.put("one")
    at.pull(queue_offset=9)
    at.pull(queue_offset=9)
    pulled = at.outlet.read(OFFSET_MOVED_EVENT, 0, 0)
    assert isinstance(pulled, Found)
    (record,) = pulled.messages()
    assert record.body == (
        b'{"consumerGroup":"G","messageQueue":{"brokerName":"%s","queueId":0,"topic":"T"},"offsetNew":1,"offsetRequest":9}'
        % at.state.config.broker.name.encode()
    )
    assert record.properties == {"KEYS": "G", "TAGS": "G", "DELAY": "0"}
    at.pull(queue_offset=8)
    at.pull(queue_offset=9, group="H")
    assert [(one["consumerGroup"], one["offsetRequest"]) for one in at.events()] == [("G", 9), ("G", 8), ("H", 9)]
    at.clock.advance_ms(10_000)
    at.pull(queue_offset=8)
    assert len(at.events()) == 4
    at.configure(store={"compat": "strict"})
    at.pull(queue_offset=8)
    assert len(at.events()) == 5


def test_a_pull_at_an_invalid_offset_is_answered_even_if_an_event_about_the_pull_cannot_be_stored(
    at: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is no reason to leave a consumer at an offset that is not there."""

    def full(_messages: object) -> None:
        raise RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "full", reason="store.full")

    at.put("one")
    monkeypatch.setattr(at.state.sink, "put", full)
    assert at.pull(queue_offset=9).next_queue_offset == 1


# --- hold and wake ---


def test_a_held_pull_is_woken_once_by_a_message_that_matches_its_filter(at: Outlet) -> None:
    """Not by one that its filter does not let pass, nor by one of another queue."""
    held = at.outlet.hold(wanted(expression="A"), 15_000, at.woken.append)
    at.put("other queue", queue_id=1, tags="A")
    at.put("other tag", tags="B")
    assert at.woken == []
    at.put("it", "another", tags="A")
    assert at.woken == [held]
    assert at.found(expression="A") == ["it", "another"]


def test_a_held_pull_ends_at_its_timeout(at: Outlet) -> None:
    """Its own; without long polling that of the setting. A wait of years ends within a day."""
    own = at.outlet.hold(wanted(), 2_000, at.woken.append)
    at.configure(pull={"long_polling": False, "short_polling_ms": 1_000})
    short = at.outlet.hold(wanted(), 2_000, at.woken.append)
    at.configure(pull={"long_polling": True})
    at.outlet.hold(wanted(), 2**62, at.woken.append)
    at.clock.advance_ms(1_000)
    at.state.outlet.held.expire()
    assert at.woken == [short]
    at.clock.advance_ms(1_000)
    at.state.outlet.held.expire()
    assert at.woken == [short, own]
    at.clock.advance_ms(24 * 3_600_000)
    at.state.outlet.held.expire()
    assert len(at.woken) == 3


def test_canceling_a_held_pull_or_closing_its_connection_removes_the_held_pull(at: Outlet) -> None:
    """Nobody is woken then; cancelling again does nothing."""
    held = at.outlet.hold(wanted(), 15_000, at.woken.append)
    at.outlet.cancel(held)
    at.outlet.cancel(held)
    at.outlet.hold(wanted(), 15_000, at.woken.append)
    at.outlet.hold_any("T", at.woken.append, 15_000, peer=PEER)
    assert at.state.outlet.held.close_channel(PEER) == 2
    at.put("one")
    assert at.woken == []
    assert len(at.state.outlet.held) == 0


# --- any queue of a topic ---


def test_a_long_poll_on_all_queues_of_a_topic_is_woken_by_a_new_message_in_any_of_the_queues(at: Outlet) -> None:
    """The wait must also see queues that nobody has read and topics created later."""
    at.put("before", queue_id=3)
    first = at.outlet.hold_any("T", at.woken.append, 15_000)
    later = at.outlet.hold_any("Later", at.woken.append, 15_000)
    at.state.outlet.held.check()
    assert at.woken == []
    at.put("one", queue_id=2)
    assert at.woken == [first]
    at.state.topics.create_in_send_back("Later", 2)
    at.put("two", topic="Later", queue_id=1)
    assert at.woken == [first, later]
    assert at.state.offsets.which_group_by_topic("T") == set()
    assert len(at.state.outlet.held) == 0


def test_the_periodic_check_wakes_a_long_poll_on_all_queues_if_a_message_notification_was_lost(at: Outlet) -> None:
    """The periodic check compares the ends of the topic's queues with those at the beginning of the wait."""
    at.put("before")
    held = at.outlet.hold_any("T", at.woken.append, 15_000)
    at.hears = False
    at.put("one", queue_id=3)
    assert at.woken == []
    at.state.outlet.held.check()
    assert at.woken == [held]


def test_a_long_poll_on_all_queues_of_a_topic_obeys_its_timeout_and_its_message_filter(at: Outlet) -> None:
    message_filter = at.outlet.filter_of(build_subscription("T", "A"))
    held = at.outlet.hold_any("T", at.woken.append, 1_000, message_filter=message_filter)
    at.put("b", tags="B", queue_id=1)
    assert at.woken == []
    at.clock.advance_ms(1_000)
    at.state.outlet.held.expire()
    assert at.woken == [held]


# --- for features ---


def test_reading_a_queue_inside_the_broker_needs_no_consumer_group_and_no_read_permission(at: Outlet) -> None:
    """Nothing is checked, made or counted; a queue that does not exist is empty."""
    at.put("one", "two", tags="A")
    at.configure(broker={"permission": WRITE})
    found = at.outlet.read("T", 0, 1)
    assert isinstance(found, Found)
    assert bodies(found) == ["two"]
    nothing = at.outlet.read("Nowhere", 9, 0)
    assert isinstance(nothing, Empty)
    assert nothing.may_wait
    only = at.outlet.filter_of(build_subscription("T", "B"))
    assert at.outlet.read("T", 0, 0, 5, only).next_queue_offset == 2
    assert (at.state.stats.get_found, at.state.stats.get_missed) == (0, 0)
    assert "G" not in at.state.groups


def test_reading_by_physical_offset_returns_a_message_only_at_the_exact_start_of_its_record(at: Outlet) -> None:
    at.put("one", "two")
    found = at.outlet.read("T", 0, 1)
    assert isinstance(found, Found)
    (record,) = found.messages()
    assert at.outlet.message_at(record.commit_log_offset_bytes) == record
    assert at.outlet.message_at(record.commit_log_offset_bytes, record.size_bytes) == record
    assert at.outlet.message_at(record.commit_log_offset_bytes, record.size_bytes + 1) is None
    assert at.outlet.message_at(record.commit_log_offset_bytes + 1) is None
