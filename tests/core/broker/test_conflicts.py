"""Members that contradict each other lose messages without an error: each way of it is found, and who differs is named."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.broker.conflicts import (
    CONSUME_FROM_WHERE,
    CONSUME_TYPE,
    MESSAGE_MODEL,
    SUBSCRIPTION,
    Behaviour,
    describe_conflicts,
    find_conflicts,
    odd_members,
)

LAST, FIRST = "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET"


def member(
    *subscriptions: tuple[str, ...], model: str = "CLUSTERING", kind: str = "CONSUME_PASSIVELY", start: str = LAST
) -> Behaviour:
    """Topic and expression, and the type of the expression where it is not TAG."""
    wanted = frozenset((topic, (*more, "TAG")[0], text) for topic, text, *more in subscriptions)
    return Behaviour(wanted, model, kind, start)


USUAL = member(("T", "x"), ("U", "*"))


def test_members_with_equal_subscriptions_and_settings_have_no_conflict() -> None:
    """A group with a single member, or with none that reported, has no conflict either."""
    assert find_conflicts({"a": USUAL, "b": USUAL, "c": USUAL}) == ()
    assert find_conflicts({"a": USUAL}) == find_conflicts({}) == ()
    assert describe_conflicts(()) == ""
    assert odd_members(()) == ()


@pytest.mark.parametrize(
    ("odd", "about", "said"),
    [
        (member(("T", "y"), ("U", "*")), SUBSCRIPTION, "subscription to T: 'x' of most, but 'y' of odd"),
        (member(("T", "x", "SQL92"), ("U", "*")), SUBSCRIPTION, "subscription to T: 'x' of most, but SQL92 'x' of odd"),
        (member(("T", "x")), SUBSCRIPTION, "subscription to U: '*' of most, but nothing of odd"),
        (
            member(("T", "x"), ("U", "*"), ("V", "*")),
            SUBSCRIPTION,
            "subscription to V: nothing of most, but '*' of odd",
        ),
        (
            member(("T", "x"), ("U", "*"), model="BROADCASTING"),
            MESSAGE_MODEL,
            "message model: CLUSTERING of most, but BROADCASTING of odd",
        ),
        (
            member(("T", "x"), ("U", "*"), kind="CONSUME_ACTIVELY"),
            CONSUME_TYPE,
            "consume type: CONSUME_PASSIVELY of most, but CONSUME_ACTIVELY of odd",
        ),
        (
            member(("T", "x"), ("U", "*"), start=FIRST),
            CONSUME_FROM_WHERE,
            f"consume from where: {LAST} of most, but {FIRST} of odd",
        ),
    ],
)
def test_each_kind_of_difference_between_members_of_a_group_has_its_own_conflict_description(
    odd: Behaviour, about: str, said: str
) -> None:
    """Topics, expression, type of expression, message model, consume type, and where consuming begins."""
    found = find_conflicts({"a": USUAL, "odd": odd, "b": USUAL})
    assert [one.about for one in found] == [about]
    assert describe_conflicts(found) == said
    assert odd_members(found) == ("odd",)


def test_a_conflict_between_two_members_names_both_members() -> None:
    """Neither of the two is the majority, so either may be the wrong member."""
    found = find_conflicts({"b": member(("T", "x")), "a": member()})
    assert describe_conflicts(found) == "subscription to T: 'x' of b, nothing of a"


def test_group_members_may_start_at_different_offsets_if_they_pull_messages_or_use_broadcasting() -> None:
    """Who broadcasts keeps offsets of its own, and who pulls begins where it likes."""
    for more in ({"model": "BROADCASTING"}, {"kind": "CONSUME_ACTIVELY"}):
        assert find_conflicts({"a": member(("T", "*"), **more), "b": member(("T", "*"), start=FIRST, **more)}) == ()


def test_a_setting_that_a_member_does_not_report_causes_no_conflict() -> None:
    """A client that reports its subscriptions only, as older ones do."""
    assert find_conflicts({"a": USUAL, "b": Behaviour(USUAL.subscriptions)}) == ()


def test_the_description_of_conflicts_between_group_members_begins_with_the_most_serious_conflict() -> None:
    """A thousand members with a hundred topics each, by names that strangers chose."""
    members = {f"c{n:03}": member(*((f"T{n}-{m}", "x" * 500) for m in range(5))) for n in range(200)}
    members["cb"] = member(model="BROADCASTING")
    found = find_conflicts(members)
    assert [one.about for one in found[:2]] == [MESSAGE_MODEL, SUBSCRIPTION]
    text = describe_conflicts(found)
    assert text.startswith("message model: CLUSTERING of most, but BROADCASTING of cb; subscription to T0-0: nothing")
    assert text.endswith("; and 998 more")
    assert len(text) < 1_000
    crowd = {f"u{n}": member(("T", "*")) for n in range(20)} | {f"o{n:02}": member(("T", "x")) for n in range(13)}
    assert describe_conflicts(find_conflicts(crowd)).endswith("o08, o09 and 3 more")


expressions = st.tuples(st.sampled_from(["TAG", "SQL92"]), st.sampled_from("xy"))
behaviours = st.builds(
    Behaviour,
    st.dictionaries(st.sampled_from("TU"), expressions).map(
        lambda each: frozenset((topic, *expression) for topic, expression in each.items())
    ),
    st.sampled_from(["CLUSTERING", "BROADCASTING", ""]),
    st.sampled_from(["CONSUME_PASSIVELY", "CONSUME_ACTIVELY", ""]),
    st.sampled_from([LAST, FIRST, ""]),
)


@given(st.dictionaries(st.sampled_from("abcdefgh"), behaviours), st.randoms(use_true_random=False))
def test_conflicts_do_not_depend_on_the_order_of_members(members: dict[str, Behaviour], by: random.Random) -> None:
    """What is told is the same at every broker, and after every restart; and everybody stands in one variant at most."""
    shuffled = list(members.items())
    by.shuffle(shuffled)
    found = find_conflicts(members)
    assert find_conflicts(dict(shuffled)) == found
    for one in found:
        named = [client_id for variant in one.variants for client_id in variant.client_ids]
        assert len(named) == len(set(named))
        assert len(one.variants) > 1
        assert len(one.variants[0].client_ids) == max(len(variant.client_ids) for variant in one.variants)


@given(st.integers(3, 12), behaviours)
def test_only_the_member_that_differs_from_all_other_members_is_reported_as_conflicting(
    count: int, odd: Behaviour
) -> None:
    """The operator must be pointed at the wrong member, and not at those that agree."""
    members = {f"m{number}": USUAL for number in range(count)} | {"odd": odd}
    found = find_conflicts(members)
    assert odd_members(found) == (("odd",) if found else ())
    assert bool(found) == (_known(odd) != _known_of(USUAL, odd))


def _known(one: Behaviour) -> tuple[object, ...]:
    """What counts of a member, by itself."""
    return (one.subscriptions, *_settings(one, one))


def _known_of(usual: Behaviour, odd: Behaviour) -> tuple[object, ...]:
    return (usual.subscriptions, *_settings(usual, odd))


def _settings(one: Behaviour, known_of: Behaviour) -> tuple[str, ...]:
    """Of one member what is known of another one, too."""
    shares = known_of.message_model != "BROADCASTING" and known_of.consume_type != "CONSUME_ACTIVELY"
    return (
        one.message_model if known_of.message_model else "",
        one.consume_type if known_of.consume_type else "",
        one.consume_from_where if known_of.consume_from_where and shares else "",
    )
