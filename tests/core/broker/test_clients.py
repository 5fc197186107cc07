"""Who is connected, and who is told when that changes, decides whether consumers share the queues without gaps."""

from __future__ import annotations

import pytest

from flintmq.core import limits
from flintmq.core.broker import consumers as consumers_module
from flintmq.core.broker import producers as producers_module
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.errors import RefusedError
from flintmq.core.testing.clock import ManualClock
from flintmq.core.testing.processor_kit import RecordingChannel

T = SubscriptionData(topic="T", sub_string="*", sub_version=1)


def notices(channel: RecordingChannel) -> list[str]:
    return [header["consumerGroup"] for code, header, _ in channel.sent if code == 40]


def test_a_new_member_is_announced_to_all_and_to_itself() -> None:
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


def test_leaving_and_losing_a_connection_is_announced_to_the_rest() -> None:
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


def test_a_group_that_wants_no_notice_gets_none() -> None:
    consumers = ConsumerTable(ManualClock())
    a = RecordingChannel()
    consumers.register("g", a, "a", [T], notify=False)
    silent = ConsumerTable(ManualClock(), notify_ids_changed=False)
    silent.register("g", a, "a", [T])
    assert notices(a) == []


def test_the_newest_version_wins_and_missing_topics_go() -> None:
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


def test_contradictory_subscriptions_are_reported(caplog: pytest.LogCaptureFixture) -> None:
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


def test_what_the_heartbeat_says_of_the_group_is_kept() -> None:
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


def test_silent_consumers_expire_and_the_rest_hears_of_it() -> None:
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


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_producers_register_expire_and_are_found_for_replies() -> None:
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


def test_transaction_checks_go_round_the_group() -> None:
    producers = ProducerTable(ManualClock())
    channels = [RecordingChannel() for _ in range(3)]
    for number, channel in enumerate(channels):
        producers.register("pg", channel, f"p{number}")
    channels[1].is_open = False
    seen = [producers.next_channel("pg") for _ in range(4)]
    assert {id(channel) for channel in seen} == {id(channels[0]), id(channels[2])}
    assert producers.next_channel("missing") is None
