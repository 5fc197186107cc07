"""A message says when it is to be delivered in words that people use, and goes out with the property that brokers know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from flintmq.core.errors import InvalidArgumentError
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.prepared import Preparer
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        ("2h", 7_200_000),
        ("500ms", 500),
        (" 90s ", 90_000),
        ("1d", 86_400_000),
        ("0s", 0),
        (timedelta(minutes=3), 180_000),
        (timedelta(0), 0),
    ],
)
def test_a_delay_given_as_text_or_as_a_timedelta_is_sent_in_milliseconds(delay: Any, delay_ms: int) -> None:
    message = Message("T", b"x", delay=delay)
    assert message.delay == delay
    assert message.properties == {"TIMER_DELAY_MS": str(delay_ms)}
    assert f"TIMER_DELAY_MS\x01{delay_ms}" in message.wire_text("id")


@pytest.mark.parametrize("moment", [NOON, NOON_MS, NOON.astimezone(), NOON.astimezone().replace(tzinfo=None)])
def test_deliver_at_accepts_a_datetime_or_a_number(moment: Any) -> None:
    message = Message("T", b"x", properties={"a": "b"}, deliver_at=moment)
    assert message.properties == {"a": "b", "TIMER_DELIVER_MS": str(NOON_MS)}


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"delay": "2 hours"}, "delay is '2 hours', and must be a duration with its unit"),
        ({"delay": "5"}, "duration with its unit"),
        ({"delay": 5}, "duration with its unit"),
        ({"delay": ""}, "duration with its unit"),
        ({"delay": "-5s"}, "duration with its unit"),
        ({"delay": timedelta(seconds=-1)}, "duration with its unit"),
        ({"deliver_at": 1_769_860_800}, "in milliseconds, not in seconds"),
        ({"deliver_at": 1_769_860_800.5}, "deliver_at is 1769860800.5, and must be a datetime, or a whole number"),
        ({"deliver_at": "2026-01-31"}, "deliver_at is '2026-01-31', and must be a datetime"),
        ({"deliver_at": True}, "must be a datetime"),
        ({"deliver_at": -1}, "must be a datetime"),
        ({"delay": "5s", "deliver_at": NOON}, "a message can have only one of them"),
        ({"delay": "5s", "properties": {"TIMER_DELAY_SEC": "9"}}, "properties has TIMER_DELAY_SEC"),
        ({"delay": "5s", "delay_level": 3}, "delay_level is 3, and the message has"),
    ],
)
def test_an_invalid_delivery_time_is_refused_when_the_message_is_created(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        Message("T", b"x", **fields)


def test_a_copy_of_a_message_keeps_its_delivery_time() -> None:
    message = attrs.evolve(Message("T", b"x", delay="2h"), body=b"y")
    assert message.properties == {"TIMER_DELAY_MS": "7200000"}
    assert attrs.evolve(message, properties={"a": "b"}).properties == {"a": "b", "TIMER_DELAY_MS": "7200000"}


def test_a_delayed_message_is_not_sent_in_a_batch() -> None:
    """A batch is stored at once, all of it: one that is asked for by the program is refused."""
    message = Message("T", b"x", delay="2h")
    assert not Preparer().goes_in_batch(message)
    for refused in (Preparer().batch, Preparer().batches):
        with pytest.raises(InvalidArgumentError, match="a batch cannot be delayed"):
            refused([Message("T", b"x"), message])


@pytest.mark.parametrize("options", [{}, {"linger_ms": 1}, {"trace": True}])
def test_a_delayed_message_is_sent_with_its_delay_or_delivery_time_as_a_message_property(
    options: dict[str, Any],
) -> None:
    cluster = FakeCluster(Choices(1), brokers=1)
    broker = cluster.brokers["broker-0"]

    async def main() -> None:
        await cluster.start()
        async with Producer("p", cluster.address, clock=cluster.clock, **options) as producer:
            await producer.send(Message("T", b"x", delay="2h"))
        async with TransactionProducer(
            "t", cluster.address, check=lambda _: TransactionState.COMMIT, clock=cluster.clock
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x", deliver_at=NOON), lambda *_: TransactionState.COMMIT)

    cluster.loop.run(main())
    sent = [broker.sent_properties(asked) for asked in broker.peer.of_code(310)]
    assert sent[0]["TIMER_DELAY_MS"] == "7200000"
    assert sent[-1]["TIMER_DELIVER_MS"] == str(NOON_MS)
