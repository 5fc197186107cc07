"""A start believes what the file says of consumers: it must be whole, and hold no more than clients may say."""

from __future__ import annotations

import pytest

from flintmq.core.broker import kept_registrations
from flintmq.core.broker.kept_registrations import KeptGroup, decode_kept, encode_kept
from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import StoreFormatError

GROUPS = [
    KeptGroup(
        group_name="g\n\u00e9",
        client_ids=["a@1", "b@2"],
        message_model="BROADCASTING",
        consume_type="CONSUME_ACTIVELY",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscriptions=[build_subscription("T", "red || blue", sub_version=7)],
        locks={"a@1": [MessageQueue("broker-a", 3, "T")]},
    ),
    KeptGroup(group_name="h"),
]


def test_saved_consumer_registrations_survive_encoding_and_decoding() -> None:
    """Tags, versions and locks decide what a consumer gets after the start."""
    raw, left_out = encode_kept(GROUPS)
    assert (decode_kept(raw), left_out) == (GROUPS, 0)
    assert decode_kept(encode_kept([])[0]) == []


def test_groups_beyond_the_size_limit_of_the_registrations_file_are_left_out() -> None:
    """Heartbeats of strangers must not make a file that fills the disk; groups that fit are kept."""
    large = KeptGroup(group_name="large", client_ids=["x" * 500] * 50)
    raw, left_out = encode_kept([large, *GROUPS], max_bytes=2_000)
    assert len(raw) <= 2_000
    assert (decode_kept(raw), left_out) == (GROUPS, 1)
    half = KeptGroup(group_name="half a pair", client_ids=["\ud800"])
    assert encode_kept([half, GROUPS[1]])[1] == 1


WHOLE = encode_kept(GROUPS)[0]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(len(WHOLE)),
        b"\xff\xfe",
        WHOLE[:-20],
        WHOLE.splitlines()[0],
        WHOLE.replace(b'"version":1', b'"version":2'),
        WHOLE.replace(b'"client_ids":["a@1","b@2"]', b'"client_ids":7'),
        b'{"version":1,"groups":1}\n{"group_name":"%s"}\n' % (b"n" * 256),
        b'{"version":1,"groups":1}\n{"group_name":"g","client_ids":["%s"]}\n' % (b"n" * 1_025),
    ],
    ids=["empty", "zeros", "no text", "cut", "head only", "later", "wrong type", "long group", "long id"],
)
def test_a_truncated_or_damaged_registrations_file_is_refused(raw: bytes) -> None:
    """Nothing of it counts then: a part of a group's members would share the queues of all."""
    with pytest.raises(StoreFormatError):
        decode_kept(raw)


def test_a_registrations_file_is_refused_if_it_has_more_entries_than_the_broker_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that somebody wrote by hand must not take all memory."""
    many = [SubscriptionData(topic=f"T{n}") for n in range(3)]
    for name, group in (
        ("CLIENTS_PER_GROUP_MAX", KeptGroup(group_name="g", client_ids=["a", "b", "c"])),
        ("SUBSCRIPTIONS_PER_HEARTBEAT_MAX", KeptGroup(group_name="g", subscriptions=many)),
        ("QUEUE_LOCKS_MAX", KeptGroup(group_name="g", locks={"a": [MessageQueue("b", n, "T") for n in range(3)]})),
    ):
        raw = encode_kept([group])[0]
        assert decode_kept(raw) == [group]
        with monkeypatch.context() as limited:
            limited.setattr(kept_registrations, name, 2)
            with pytest.raises(StoreFormatError):
                decode_kept(raw)
