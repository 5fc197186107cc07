"""Who is connected, and who is told when that changes, decides whether consumers share the queues without gaps."""

from __future__ import annotations

import msgspec
import pytest

from flintmq.core import limits
from flintmq.core.broker import consumers as consumers_module
from flintmq.core.broker import producers as producers_module
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.kept_registrations import KeptGroup
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.subscription import SubscriptionData, kept_bytes
from flintmq.core.errors import RefusedError
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel

T = SubscriptionData(topic="T", sub_string="*", sub_version=1)


def notices(channel: RecordingChannel) -> list[str]:
    return [header["consumerGroup"] for code, header, _ in channel.sent if code == 40]


def test_a_new_consumer_is_announced_to_all_members_of_its_group_and_to_itself() -> None:
    consumers = ConsumerTable(ManualClock())
    a, b = RecordingChannel(), RecordingChannel()
    assert consumers.register("g", a, "a", [T])
    assert notices(a) == ["g"]
    assert consumers.register("g", b, "b", [T])
    assert (notices(a), notices(b)) == (["g", "g"], ["g"])
    assert not consumers.register("g", a, "a", [T])
    assert len(notices(a)) == 2, "a heartbeat that changes nothing says nothing"
    info = consumers.find("g")
    assert info is not None
    assert info.client_ids == ["a", "b"]
    assert consumers.find_member("g", "b") is not None
    assert consumers.find_member("g", "c") is None
    assert consumers.find_member("h", "c") is None


def test_the_remaining_members_are_notified_when_a_member_leaves_or_disconnects() -> None:
    consumers = ConsumerTable(ManualClock())
    a, b, c = RecordingChannel(), RecordingChannel(), RecordingChannel()
    for channel, name in ((a, "a"), (b, "b"), (c, "c")):
        consumers.register("g", channel, name, [T])
    consumers.register("h", c, "c", [T])
    a.sent.clear()
    assert consumers.unregister("g", b)
    assert not consumers.unregister("g", b)
    assert notices(a) == ["g"]
    assert sorted(consumers.close_channel(c)) == ["g", "h"]
    assert notices(a) == ["g", "g"]
    assert consumers.find("h") is None
    assert consumers.close_channel(c) == []
    consumers.unregister("g", a)
    assert len(consumers) == 0


def test_members_of_a_group_are_not_notified_of_membership_changes_if_notifications_are_disabled() -> None:
    consumers = ConsumerTable(ManualClock())
    a = RecordingChannel()
    consumers.register("g", a, "a", [T], notify=False)
    silent = ConsumerTable(ManualClock(), notify_ids_changed=False)
    silent.register("g", a, "a", [T])
    assert notices(a) == []


def test_a_group_keeps_the_newest_subscription_and_drops_topics_that_a_heartbeat_omits() -> None:
    consumers = ConsumerTable(ManualClock())
    a, b = RecordingChannel(), RecordingChannel()
    consumers.register(
        "g", a, "a", [SubscriptionData(topic="T", sub_string="new", sub_version=5), SubscriptionData(topic="U")]
    )
    info = consumers.find("g")
    assert info is not None
    assert consumers.register(
        "g", b, "b", [SubscriptionData(topic="T", sub_string="old", sub_version=4), SubscriptionData(topic="U")]
    )
    found = info.find_subscription("T")
    assert found is not None
    assert found.sub_string == "new"
    a.sent.clear()
    assert not consumers.register(
        "g", a, "a", [SubscriptionData(topic="T", sub_string="newer", sub_version=6), SubscriptionData(topic="U")]
    )
    assert notices(a) == [], "another expression is no other topic"
    assert consumers.register("g", a, "a", [T])
    assert notices(a) == ["g"]
    assert info.find_subscription("U") is None
    assert consumers.which_group_by_topic("T") == {"g"}
    assert consumers.which_group_by_topic("U") == set()


def test_contradictory_subscriptions_of_group_members_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    consumers = ConsumerTable(ManualClock())
    channels = [RecordingChannel() for _ in range(3)]
    for number, channel in enumerate(channels):
        consumers.register("g", channel, f"c{number}", [T])
    consumers.register("g", channels[2], "c2", [T, SubscriptionData(topic="%RETRY%g")])
    assert list(consumers.contradictory()) == [], "a client's own retry topic is not the user's doing"
    odd = [SubscriptionData(topic="T", sub_string="A", sub_version=9)]
    consumers.register("g", channels[1], "c1", odd)
    consumers.register("g", channels[1], "c1", odd)
    assert consumers.contradictions_seen == 1
    assert caplog.text.count("contradict each other") == 1
    assert "subscription to T: '*' of most, but 'A' of c1" in caplog.text
    consumers.register("g", RecordingChannel(), "c9", [T, SubscriptionData(topic="U")])
    assert consumers.contradictions_seen == 2
    assert "but 'A' of c1; subscription to U: nothing of most, but '*' of c9" in caplog.text
    assert consumers.runtime_info() == {"contradictorySubscriptions": "g: c1, c9"}
    info = consumers.find("g")
    assert info is not None
    for channel in [channel for channel, member in info.members.items() if member.client_id in ("c1", "c9")]:
        consumers.close_channel(channel)
    assert list(consumers.contradictory()) == []
    assert consumers.runtime_info() == {}
    assert info.conflicts() == ()


def test_the_consumer_table_stores_the_group_settings_and_the_client_version_from_a_heartbeat() -> None:
    consumers = ConsumerTable(ManualClock())
    consumers.register(
        "g",
        RecordingChannel(),
        "a",
        [T],
        language="GO",
        version=317,
        consume_type="CONSUME_ACTIVELY",
        message_model="BROADCASTING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    info = consumers.find("g")
    assert info is not None
    assert info.is_broadcasting
    assert (info.consume_type, info.consume_from_where) == ("CONSUME_ACTIVELY", "CONSUME_FROM_FIRST_OFFSET")
    member = info.find_member("a")
    assert member is not None
    assert (member.language, member.version) == ("GO", 317)


def test_silent_consumers_expire_and_the_remaining_members_of_the_group_are_notified() -> None:
    clock = ManualClock()
    consumers = ConsumerTable(clock)
    a, b = RecordingChannel(), RecordingChannel()
    consumers.register("g", a, "a", [T])
    consumers.register("g", b, "b", [T])
    clock.advance_ms(119_000)
    consumers.register("g", a, "a", [T])
    a.sent.clear()
    clock.set_wall_clock(5)
    assert consumers.remove_expired() == [], "the wall clock does not count"
    clock.advance_ms(2_000)
    assert consumers.remove_expired() == [b]
    assert notices(a) == ["g"]


def test_a_client_registration_beyond_a_limit_on_members_or_groups_or_subscriptions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers_module, "CLIENTS_PER_GROUP_MAX", 2)
    monkeypatch.setattr(producers_module, "GROUPS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(consumers_module, "SUBSCRIPTIONS_PER_HEARTBEAT_MAX", 1)
    consumers = ConsumerTable(ManualClock())
    a = RecordingChannel()
    consumers.register("g", a, "a", [T])
    consumers.register("g", RecordingChannel(), "b", [T])
    with pytest.raises(RefusedError):
        consumers.register("g", RecordingChannel(), "c", [T])
    consumers.register("g", a, "a", [T])
    with pytest.raises(RefusedError):
        consumers.register("h", a, "a", [T, SubscriptionData(topic="U")])
    consumers.register("h", a, "a", [T])
    with pytest.raises(RefusedError) as refused:
        consumers.register("i", a, "a", [T])
    assert refused.value.reason == "connection.groups"
    producers = ProducerTable(ManualClock())
    for group in ("p", "q", "p"):
        producers.register(group, a, "a")
    with pytest.raises(RefusedError, match="too many producer groups"):
        producers.register("r", a, "a")
    with pytest.raises(RefusedError, match="longer than 255 bytes"):
        producers.register("r" * 256, RecordingChannel(), "a")
    assert len(producers) == 2, "who is refused leaves nothing behind"
    assert limits.CLIENTS_PER_GROUP_MAX > 2


def test_a_registered_producer_is_found_by_its_client_id_until_it_disconnects_or_expires() -> None:
    clock = ManualClock()
    producers = ProducerTable(clock)
    a, b = RecordingChannel(), RecordingChannel()
    assert producers.register("pg", a, "a")
    assert not producers.register("pg", a, "a")
    assert producers.register("pg", b, "b", "CPP", 333)
    assert producers.find_channel("b") is b
    b.is_open = False
    assert producers.find_channel("b") is None
    b.is_open = True
    clock.advance_ms(100_000)
    producers.register("pg", a, "a")
    clock.advance_ms(21_000)
    assert producers.remove_expired() == [b]
    assert [member.client_id for member in producers.members("pg")] == ["a"]
    assert producers.find_channel("b") is None
    producers.close_channel(a)
    assert producers.members("pg") == []
    assert list(producers.groups()) == []
    assert not producers.unregister("pg", a)


def test_a_reconnected_producer_is_found_at_its_new_connection() -> None:
    producers = ProducerTable(ManualClock())
    old, new = RecordingChannel(), RecordingChannel()
    producers.register("pg", old, "a")
    producers.register("pg", new, "a")
    producers.close_channel(old)
    assert producers.find_channel("a") is new
    producers.register("pg", new, "renamed")
    assert producers.find_channel("a") is None
    assert len(producers) == 1


def test_transaction_checks_rotate_over_the_connected_producers_of_a_group() -> None:
    producers = ProducerTable(ManualClock())
    channels = [RecordingChannel() for _ in range(3)]
    for number, channel in enumerate(channels):
        producers.register("pg", channel, f"p{number}")
    channels[1].is_open = False
    seen = [producers.next_channel("pg") for _ in range(4)]
    assert {id(channel) for channel in seen} == {id(channels[0]), id(channels[2])}
    assert producers.next_channel("missing") is None


def kept(*client_ids: str, group: str = "g") -> KeptGroup:
    return KeptGroup(group_name=group, client_ids=client_ids, subscriptions=[T])


def test_consumers_that_reconnect_after_a_broker_restart_cause_no_rebalance() -> None:
    """A rebalance after each heartbeat of the first half minute would move queues to and fro."""
    consumers = ConsumerTable(ManualClock())
    named: list[str] = []
    consumers.registered.subscribe(lambda group, _subscriptions: named.append(group))
    consumers.keep(kept("a", "b"))
    info = consumers.find("g")
    assert info is not None
    assert (info.client_ids, info.channels, info.find_subscription("T"), named) == (["a", "b"], [], T, ["g"])
    assert consumers.which_group_by_topic("T") == {"g"}
    assert consumers.find_member("g", "a") is None, "there is no connection to it"
    a = RecordingChannel()
    assert not consumers.register("g", a, "a", [T])
    assert notices(a) == []
    assert sorted(info.client_ids) == ["a", "b"]
    c = RecordingChannel()
    assert consumers.register("g", c, "c", [T])
    assert (notices(a), notices(c)) == (["g"], ["g"])
    assert sorted(info.client_ids) == ["a", "b", "c"]


def test_consumers_that_do_not_reconnect_after_a_restart_are_removed_and_their_groups_are_notified() -> None:
    """Their queues would be nobody's."""
    consumers = ConsumerTable(ManualClock())
    gone: list[str] = []
    consumers.unregistered.subscribe(gone.append)
    consumers.keep(kept("a", "b"))
    consumers.keep(kept("x", group="h"))
    a = RecordingChannel()
    consumers.register("g", a, "a", [T])
    assert consumers.drop_kept() == {"g": ["b"], "h": ["x"]}
    info = consumers.find("g")
    assert info is not None
    assert (info.client_ids, notices(a), gone) == (["a"], ["g"], ["h"])
    assert consumers.find("h") is None
    assert consumers.drop_kept() == {}
    assert notices(a) == ["g"]


def test_a_consumer_registered_before_a_restart_can_unregister_without_a_heartbeat() -> None:
    """It stopped while the broker was away, or before its first heartbeat."""
    consumers = ConsumerTable(ManualClock())
    consumers.keep(kept("a", "b"))
    a, other = RecordingChannel(), RecordingChannel()
    consumers.register("g", a, "a", [T])
    assert not consumers.unregister("g", other, "nobody")
    assert consumers.unregister("g", other, "b")
    assert notices(a) == ["g"]
    assert consumers.unregister("g", a, "a")
    assert consumers.find("g") is None


def test_a_disconnecting_member_does_not_remove_members_that_have_yet_to_reconnect_after_a_restart() -> None:
    """The connection of the one that came back may be lost again."""
    consumers = ConsumerTable(ManualClock())
    consumers.keep(kept("a", "b"))
    a = RecordingChannel()
    consumers.register("g", a, "a", [T])
    consumers.close_channel(a)
    info = consumers.find("g")
    assert info is not None
    assert info.client_ids == ["b"]


def test_the_change_counter_of_consumer_registrations_grows_only_when_a_registration_changes() -> None:
    """A heartbeat that says nothing new must not have the file written again."""
    consumers = ConsumerTable(ManualClock())
    a = RecordingChannel()
    seen = [consumers.changes]

    def grew() -> bool:
        seen.append(consumers.changes)
        return seen[-1] > seen[-2]

    consumers.register("g", a, "a", [T])
    assert grew()
    consumers.register("g", a, "a", [T])
    assert not grew()
    for said in ([T, SubscriptionData(topic="U")], [T], [SubscriptionData(topic="T", sub_version=9)]):
        consumers.register("g", a, "a", said)
        assert grew()
    consumers.register("g", a, "a", [SubscriptionData(topic="T", sub_version=9)], message_model="BROADCASTING")
    assert grew()
    consumers.close_channel(a)
    assert grew()


def test_a_client_id_shared_by_two_processes_is_logged_only_once(caplog: pytest.LogCaptureFixture) -> None:
    """Both get the same queues, and every message is consumed twice."""
    clock = ManualClock()
    consumers = ConsumerTable(clock)
    one, two = RecordingChannel("10.0.0.1:1"), RecordingChannel("10.0.0.2:2")
    consumers.register("g", one, "a", [T])
    clock.advance_ms(20_000)
    with caplog.at_level("WARNING", "flintmq"):
        consumers.register("g", two, "a", [T])
        assert list(consumers.shared_ids()) == [], "the first one may have lost its connection"
        consumers.heard("g", one)
        consumers.heard("g", one)
        clock.advance_ms(10_000)
        consumers.register("g", one, "a", [T])
        consumers.register("g", two, "a", [T])
    assert list(consumers.shared_ids()) == [("g", "a", ("10.0.0.1:1", "10.0.0.2:2"))]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "10.0.0.1:1, 10.0.0.2:2" in told[0]
    consumers.close_channel(one)
    assert list(consumers.shared_ids()) == []


def test_a_client_id_used_in_heartbeats_of_two_connections_is_reported_immediately() -> None:
    """No client gives a connection up within a second."""
    consumers = ConsumerTable(ManualClock())
    for address in ("10.0.0.1:1", "10.0.0.2:2"):
        consumers.register("g", RecordingChannel(address), "a", [T])
    assert list(consumers.shared_ids()) == [("g", "a", ("10.0.0.1:1", "10.0.0.2:2"))]


def test_broadcasting_consumers_may_share_a_client_id() -> None:
    """Java's broadcasting consumers of one host have the same id unless they are given others."""
    consumers = ConsumerTable(ManualClock())
    for address in ("10.0.0.1:1", "10.0.0.2:2"):
        consumers.register("g", RecordingChannel(address), "a", [T], message_model="BROADCASTING")
    assert list(consumers.shared_ids()) == []


def test_a_client_id_is_not_reported_as_used_twice_after_the_client_reconnected() -> None:
    """Its first connection is still open at this end, and silent."""
    clock = ManualClock()
    consumers = ConsumerTable(clock)
    lost, new = RecordingChannel("10.0.0.1:1"), RecordingChannel("10.0.0.1:2")
    consumers.register("g", lost, "a", [T])
    for _ in range(3):
        clock.advance_ms(30_000)
        consumers.register("g", new, "a", [T])
    assert list(consumers.shared_ids()) == []


def test_the_size_of_subscriptions_is_limited_per_connection_and_over_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection could be in 4,096 groups with 1 MB of subscriptions in each: no rights are needed for that."""
    monkeypatch.setattr(consumers_module, "SUBSCRIPTIONS_PER_CONNECTION_MAX_BYTES", 10_000)
    monkeypatch.setattr(consumers_module, "SUBSCRIPTIONS_MAX_BYTES", 15_000)
    consumers = ConsumerTable(ManualClock())
    a, b = RecordingChannel(), RecordingChannel()
    long = [SubscriptionData(topic="T", sub_string="x" * 4_000)]
    for group in ("g", "h"):
        consumers.register(group, a, "a", long)
    for channel, group in ((a, "i"), (b, "huge")):
        with pytest.raises(RefusedError, match="are too large") as refused:
            consumers.register(group, channel, "c", long * 3)
        assert refused.value.reason == "subscription.too_large"
        assert consumers.find(group) is None
    consumers.register("h", a, "a", [T])
    consumers.register("i", a, "a", long)
    consumers.register("g", b, "b", long)
    with pytest.raises(RefusedError, match="all connections"):
        consumers.register("h", b, "b", long)
    consumers.close_channel(a)
    consumers.register("h", b, "b", long)
    consumers.close_channel(b)
    assert (consumers._bytes, consumers._sizes, consumers._bytes_of, consumers._members) == (0, {}, {}, 0)


def test_the_computed_memory_size_of_a_subscription_includes_all_of_its_fields() -> None:
    """Tags come as lists of their own, and need not be those of the expression."""
    plain = kept_bytes([T])
    assert kept_bytes([T, T]) == 2 * plain
    for more in ({"topic": "T" * 1_000}, {"sub_string": "x" * 1_000}, {"expression_type": "Y" * 1_000}):
        assert kept_bytes([msgspec.structs.replace(T, **more)]) > plain + 900
    for tags in ({"tags_set": frozenset(map(str, range(100)))}, {"code_set": frozenset(range(100))}):
        assert kept_bytes([msgspec.structs.replace(T, **tags)]) > plain + 5_000


def test_the_total_number_of_members_of_all_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 groups for each of thousands of connections are more than memory has."""
    monkeypatch.setattr(producers_module, "MEMBERSHIPS_MAX", 3)
    producers, consumers = ProducerTable(ManualClock()), ConsumerTable(ManualClock())
    a, b = RecordingChannel(), RecordingChannel()
    for number in range(3):
        producers.register(f"p{number}", a, "a")
        consumers.register(f"g{number}", a, "a", [T])
    producers.register("p0", a, "a")
    for register in (lambda: producers.register("p", b, "b"), lambda: consumers.register("g", b, "b", [T])):
        with pytest.raises(RefusedError, match="too many members") as refused:
            register()
        assert refused.value.reason == "members.full"
    producers.close_channel(a)
    consumers.close_channel(a)
    producers.register("p", b, "b")
    consumers.register("g", b, "b", [T])
