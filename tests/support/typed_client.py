"""The types that a type checker sees at the front door; ``tools/typecheck.sh`` checks them, nothing runs this.

The methods of the synchronous client are derived from the asynchronous ones: were a type lost on the way, nobody's program
would fail, and nobody's mistake would be found. In strict mode an ignored error that does not occur is an error.
"""

from __future__ import annotations

from typing import assert_type

import flintmq
from flintmq import client as aio
from flintmq.client import sync


async def awaited(producer: aio.Producer, message: aio.Message) -> None:
    """Say the types of the asynchronous library."""
    assert_type(await producer.send(message, sharding_key="k"), aio.SendResult)
    assert_type(await producer.send_all([message]), list[aio.SendResult])
    assert_type(flintmq.Producer("p"), aio.Producer)


def waited_for(consumer: sync.Consumer, pulling: sync.PullConsumer, admin: sync.AdminClient) -> None:
    """Say the types of the synchronous library."""
    with sync.Producer("p", "localhost:9876", retries=1) as producer:
        assert_type(producer, sync.Producer)
        assert_type(producer.send(sync.Message("T", b""), timeout_ms=1), sync.SendResult)
        assert_type(producer.request(sync.Message("T", b"")), sync.MessageExt)
    for message in consumer.messages(timeout_ms=1):
        assert_type(message, sync.MessageExt)
    assert_type(pulling.poll(), list[sync.MessageExt])
    assert_type(pulling.max_offset(sync.MessageQueue("b", 0, "T")), int)
    assert_type(admin.query_by_key("T", "k"), list[sync.MessageExt])


def mistakes(producer: sync.Producer) -> None:
    """Name mistakes that must be found."""
    sync.Producer(1)  # type: ignore[arg-type]
    sync.Producer("p", retries="2")  # type: ignore[arg-type]
    producer.send("text")  # type: ignore[arg-type]
    producer.send(sync.Message("T", b""), timeout=1)  # type: ignore[call-arg]
    producer.close(1)  # type: ignore[call-arg]
