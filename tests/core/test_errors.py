"""What a server refuses arrives with its reason: programs look for it, not for the words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.errors import RefusedError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    TEXT,
    TEXT.map(lambda text: text.replace(";", ",")),
    st.sampled_from(["", "store.max_message_bytes (maxMessageSize)"]),
)
def test_reason_and_limit_and_setting_of_a_refusal_are_parsed_from_the_response_remark(
    message: str, measured: str, key: str
) -> None:
    """Whatever the message is, which may hold a client's text with brackets of its own."""
    sent = RefusedError(13, message, reason="message.body_too_long", measured=measured, key=key)
    came = RefusedError.of_answer(sent.code, sent.remark)
    brackets = str.maketrans("[]", "()")
    assert (came.code, came.reason) == (13, "message.body_too_long")
    assert (came.measured, came.key) == (measured.translate(brackets), key)
    assert str(came) == came.remark == sent.remark


@pytest.mark.parametrize(
    "remark",
    [
        None,
        "",
        "No topic route info [T]",
        "TopicConfig [topicName=T, perm=RW-]",
        "the broker's [group.missing] is no end",
    ],
)
def test_a_response_remark_without_a_reason_id_becomes_the_text_of_the_refusal_error(remark: str | None) -> None:
    """Its remark stays the message."""
    came = RefusedError.of_answer(17, remark)
    assert (came.reason, str(came)) == ("broker.refused", remark or "response code 17")
