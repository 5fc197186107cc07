"""Members of a group that subscribe to different topics lose messages: the group must know what each of them said."""

from __future__ import annotations

from flintmq.core.broker.conflicts import BROADCASTING, describe_conflicts, odd_members
from flintmq.core.broker.consumers import ConsumerGroupInfo
from flintmq.core.broker.producers import ClientChannelInfo
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.testing.processor_kit import RecordingChannel


def subscription(topic: str, text: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, sub_version=version)


def joined(group: ConsumerGroupInfo, client_id: str, *topics: SubscriptionData) -> RecordingChannel:
    """A member over a connection of its own."""
    channel = RecordingChannel()
    assert group.add_member(ClientChannelInfo(channel, client_id))
    group.update_subscriptions(channel, topics)
    return channel


def test_a_repeated_heartbeat_does_not_add_a_second_member_to_a_consumer_group() -> None:
    """Each new one starts a rebalance of the whole group; a heartbeat must not."""
    group = ConsumerGroupInfo("g")
    channel = joined(group, "one", subscription("T"))
    assert not group.add_member(ClientChannelInfo(channel, "one", last_update_ms=7, last_update_s=8.0))
    found = group.find_member("one")
    assert found is not None
    assert (found.last_update_ms, found.last_update_s) == (7, 8.0)
    second = joined(group, "one", subscription("T"))
    assert group.client_ids == ["one"]
    assert group.channels == [channel, second]
    assert group.find_member("other") is None
    assert group.remove_member(second)
    assert not group.remove_member(second)


def test_if_members_subscribe_to_a_topic_differently_the_group_uses_the_newest_subscription() -> None:
    """RocketMQ's rule: one expression per topic and group, the youngest version's."""
    group = ConsumerGroupInfo("g")
    joined(group, "one", subscription("T", "new", 5))
    joined(group, "two", subscription("T", "old", 4))
    found = group.find_subscription("T")
    assert found is not None
    assert found.sub_string == "new"


def test_a_topic_that_a_member_no_longer_subscribes_to_is_removed_from_the_group() -> None:
    """That is RocketMQ's, too, and why contradictions are reported."""
    group = ConsumerGroupInfo("g")
    one = joined(group, "one", subscription("T"), subscription("U"))
    assert not group.update_subscriptions(one, [subscription("T"), subscription("U")])
    assert group.update_subscriptions(one, [subscription("T")])
    assert group.find_subscription("U") is None


def test_the_report_of_subscription_conflicts_names_the_members_that_differ_from_the_majority() -> None:
    """An operator must find the one client that was not updated."""
    group = ConsumerGroupInfo("g")
    for client_id in ("one", "two"):
        joined(group, client_id, subscription("T"))
    odd = joined(group, "odd", subscription("T", "red"), subscription("%RETRY%g"))
    assert odd_members(group.conflicts()) == ("odd",)
    assert describe_conflicts(group.conflicts()) == "subscription to T: '*' of most, but 'red' of odd"
    group.remove_member(odd)
    assert group.conflicts() == ()


def test_the_report_of_conflicts_names_the_member_whose_message_model_differs_from_the_majority() -> None:
    """A member that broadcasts beside others that share."""
    group = ConsumerGroupInfo("g")
    for client_id in ("one", "two"):
        joined(group, client_id, subscription("T"))
    odd = joined(group, "odd")
    group.update_subscriptions(odd, [subscription("T")], message_model=BROADCASTING)
    assert group.is_broadcasting
    assert [(one.about, odd_members([one])) for one in group.conflicts()] == [("message model", ("odd",))]


def test_a_subscription_to_the_retry_topic_causes_no_conflict() -> None:
    """Clients add it by themselves, some of them only after their start."""
    group = ConsumerGroupInfo("g")
    joined(group, "one", subscription("T"))
    joined(group, "two", subscription("T"), subscription("%RETRY%g"))
    assert group.conflicts() == ()


def test_the_revision_of_a_consumer_group_grows_only_if_its_subscriptions_change() -> None:
    """Values derived from the subscriptions are computed again only after such a change."""
    group = ConsumerGroupInfo("g")
    one = joined(group, "one", subscription("T"))
    before = group.revision
    group.update_subscriptions(one, [subscription("T")])
    assert group.revision == before
    group.update_subscriptions(one, [subscription("U")])
    assert group.revision == before + 1
    group.remove_member(one)
    assert group.revision == before + 2


def test_the_message_model_determines_whether_a_consumer_group_is_broadcasting() -> None:
    """Its consumers keep their own offsets."""
    group = ConsumerGroupInfo("g")
    assert not group.is_broadcasting
    group.message_model = BROADCASTING
    assert group.is_broadcasting
