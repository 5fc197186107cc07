"""Members that subscribe differently are found by what they report themselves, whatever the broker keeps."""

from __future__ import annotations

from flintmq.core.broker.subscription import SubscriptionData
from flintmq.plugins.cluster_view.conflicts import describe_conflicts, find_conflicts, subscriptions_of
from flintmq.plugins.cluster_view.values import MemberSubscription


def wants(topic: str, expression: str, kind: str = "TAG") -> MemberSubscription:
    return MemberSubscription(topic=topic, expression_type=kind, expression=expression)


def test_members_that_agree_have_no_conflict() -> None:
    """Nor has a group with a single member, or none that reported."""
    assert find_conflicts({"a": (wants("T", "x"),), "b": (wants("T", "x"),)}) == ()
    assert find_conflicts({"a": (wants("T", "x"), wants("U", "*"))}) == ()
    assert find_conflicts({}) == ()
    assert describe_conflicts(()) == ""


def test_another_expression_another_type_and_none_at_all_differ() -> None:
    """The variant of most members comes first, so that the odd ones are named."""
    found = find_conflicts(
        {
            "a": (wants("T", "x"), wants("U", "*")),
            "b": (wants("T", "x"), wants("U", "*")),
            "c": (wants("T", "y"), wants("U", "*")),
            "d": (wants("T", "x", "SQL92"),),
        }
    )
    assert [one.topic for one in found] == ["T", "U"]
    assert [(one.expression_type, one.expression, one.client_ids) for one in found[0].variants] == [
        ("TAG", "x", ("a", "b")),
        ("SQL92", "x", ("d",)),
        ("TAG", "y", ("c",)),
    ]
    assert [one.client_ids for one in found[1].variants] == [("a", "b", "c"), ("d",)]
    assert describe_conflicts(found) == (
        "T: most subscribe to x, but d to x, c to y; U: most subscribe to *, but d to nothing"
    )


def test_many_odd_members_are_counted() -> None:
    """A group has hundreds of members; a sentence has not."""
    members = {f"u{n}": (wants("T", "*"),) for n in range(20)} | {f"o{n:02}": (wants("T", "x"),) for n in range(13)}
    assert describe_conflicts(find_conflicts(members)).endswith("o08, o09 and 3 more to x")


def test_the_retry_topic_does_not_count() -> None:
    """Clients subscribe to it by themselves, some of them only after their start."""
    told = [SubscriptionData(topic="%RETRY%g"), SubscriptionData(topic="T", expression_type="", sub_string="a")]
    assert subscriptions_of(told) == (wants("T", "a"),)
