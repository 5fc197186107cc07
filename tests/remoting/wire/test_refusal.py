"""Users of RocketMQ 5's clients must learn from the refusal what this broker has not, and what to do instead."""

from __future__ import annotations

import pytest

from flintmq.remoting.wire.codes import OF_ROCKETMQ_5, RequestCode
from flintmq.remoting.wire.refusal import unsupported


@pytest.mark.parametrize(
    ("code", "name", "why"),
    [
        (400, "QUERY_ASSIGNMENT", "leave clientRebalance on"),
        (200_050, "POP_MESSAGE", "consume by push or pull"),
        (370, "RECALL_MESSAGE", "a message cannot be recalled"),
        (1002, "CONTROLLER_ELECT_MASTER", "promoted by an operator"),
        (3001, "AUTH_CREATE_USER", "accounts are those of 4.9"),
    ],
)
def test_a_request_code_of_rocketmq_5_is_refused_with_the_reason(code: int, name: str, why: str) -> None:
    """The words of RocketMQ come first: tools look for them."""
    refused = unsupported(code)
    assert (refused.code, refused.reason) == (3, "code.unsupported")
    assert refused.remark.startswith(f" request type {code} not supported ({name}): ")
    assert why in refused.remark


def test_unknown_request_codes_are_refused_with_rocketmqs_remark() -> None:
    """No code may be both answered and refused."""
    assert unsupported(13).remark == " request type 13 not supported [code.unsupported]"
    assert OF_ROCKETMQ_5.keys() & set(map(int, RequestCode)) == set()
