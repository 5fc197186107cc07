"""Tag codes must be Java's, or the broker filters away what a consumer subscribed to."""

from __future__ import annotations

import pytest

from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.errors import RefusedError
from flintmq.core.io import fastjson
from flintmq.core.io.typed_json import read_as
from flintmq.core.kernel.ports import MessageFilter
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.filters.plugin import TagFilter, tag_filter


def test_the_tag_codes_of_a_subscription_are_javas_string_hashes() -> None:
    built = build_subscription("T", "A || B||", sub_version=7)
    assert built == SubscriptionData(
        topic="T",
        sub_string="A || B||",
        expression_type="TAG",
        tags_set=frozenset("AB"),
        code_set=frozenset({65, 66}),
        sub_version=7,
    )
    for everything in (None, "", "  ", "*"):
        assert build_subscription("T", everything).code_set == frozenset()
    assert build_subscription("T", "x > 1", "SQL92").expression_type == "SQL92"


@pytest.mark.parametrize(("expression", "kind"), [("||", "TAG"), (" ", "SQL92"), (None, "SQL92")])
def test_missing_or_empty_subscription_expressions_are_refused(expression: str | None, kind: str) -> None:
    with pytest.raises(RefusedError) as caught:
        build_subscription("T", expression, kind)
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_subscription_survives_encoding_and_decoding() -> None:
    one = build_subscription("T", "A || B", sub_version=3)
    written = fastjson.dumps(one)
    assert list(fastjson.loads(written)) == sorted(fastjson.loads(written))
    assert read_as(fastjson.loads(written), SubscriptionData) == one
    assert read_as({"topic": "T", "tagsSet": None}, SubscriptionData).is_tag_type


def test_a_tag_filter_compares_tag_codes() -> None:
    some: MessageFilter = tag_filter("A", frozenset())
    assert some.matches_tags_code(65)
    assert not some.matches_tags_code(66)
    assert some.matches_properties({})
    assert not some.needs_properties
    assert tag_filter("ignored", frozenset({66})).matches_tags_code(66)
    assert TagFilter(frozenset()).matches_tags_code(1)
    assert tag_filter("*", frozenset()).matches_tags_code(1)
