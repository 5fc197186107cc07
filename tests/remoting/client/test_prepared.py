"""Messages beyond the limits of a batch become several, none is lost on the way, and none is longer than is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.limits import BATCH_MAX_MESSAGES
from flintmq.core.record.batch import decode_batch
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.prepared import Preparer


@given(lengths=st.lists(st.integers(0, 300), max_size=40), limit_bytes=st.integers(500, 2_000))
def test_a_message_list_is_split_into_as_few_batches_as_the_maximum_batch_size_allows(
    lengths: list[int], limit_bytes: int
) -> None:
    messages = [Message("T", b"%03d" % number + bytes(length)) for number, length in enumerate(lengths)]
    parts = Preparer(None, limit_bytes).batches(messages)
    items = [decode_batch(part.body) for part in parts]
    assert [item.body for part in items for item in part] == [message.body for message in messages]
    assert all(len(part.body) <= limit_bytes for part in parts)
    for part, following in zip(parts, items[1:], strict=False):
        assert len(part.body) + following[0].size_bytes > limit_bytes, "the next one's first message would have fitted"
    assert [part.messages for part in parts] == [len(part) for part in items]
    assert [len(part.msg_id.split(",")) for part in parts] == [part.messages for part in parts]


def test_no_batch_has_more_than_the_maximum_number_of_messages() -> None:
    parts = Preparer().batches([Message("T", b"")] * (2 * BATCH_MAX_MESSAGES + 1))
    assert [part.messages for part in parts] == [BATCH_MAX_MESSAGES, BATCH_MAX_MESSAGES, 1]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Message("T", b"")] * 9 + [Message("T", bytes(1_000))], "at most 1000 are sent"),
        ([Message("T", b"")] * 9 + [Message("U", b"")], "the same topic"),
        ([Message("T", b"")] * 9 + [Message("T", b"", delay_level=1)], "delayed"),
    ],
)
def test_a_list_with_an_invalid_message_is_refused_as_a_whole(messages: list[Message], said: str) -> None:
    """Before anything is sent: half of a list that was wrong from the start is the worst of both."""
    with pytest.raises(ValueError, match=said):
        Preparer(None, 1_000).batches(messages)
