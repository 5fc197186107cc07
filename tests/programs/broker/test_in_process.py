"""A program reads from the broker in its process what a client would get, with the same checks and no connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.core.broker.perm import WRITE
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.client.broker_api import PullStatus


def config(root: Path, *more: str) -> object:
    return flintmq.load_config(None, [f"store.path={root}", "listen.enable=false", *more], {})


def put(broker: flintmq.Broker, *messages: flintmq.Message) -> int:
    """Store messages; return the queue where the first one lies."""
    return broker.put(messages)[0].queue_id


def test_a_thread_other_than_the_event_loop_thread_can_pull_from_an_embedded_broker(tmp_path: Path) -> None:
    """With the edges of the queue, and where to go on; an offset behind the end says so."""
    with flintmq.Broker(config(tmp_path)) as broker:  # type: ignore[arg-type]
        queue_id = put(broker, flintmq.Message("Orders", b"one" * 5_000, keys=["k"]))
        pulled = broker.pull("Orders", queue_id, 0, group="G")
        (message,) = pulled.messages
        assert (message.body, message.keys, message.queue_offset) == (b"one" * 5_000, ("k",), 0)
        assert message.broker_name == "broker-a"
        assert (pulled.status, pulled.next_begin_queue_offset, pulled.max_queue_offset) == (PullStatus.FOUND, 1, 1)
        behind = broker.pull("Orders", queue_id, 1, group="G")
        assert (behind.status, behind.messages) == (PullStatus.NO_NEW_MESSAGE, ())
        assert broker.pull("Orders", queue_id, 7, group="G").status is PullStatus.OFFSET_ILLEGAL


def test_code_on_the_event_loop_thread_can_pull_and_commit_offsets_without_awaiting(tmp_path: Path) -> None:
    """The offset that comes with a pull is its group's."""

    async def run() -> None:
        async with flintmq.Broker(config(tmp_path)) as broker:  # type: ignore[arg-type]
            (stored,) = await broker.put([flintmq.Message("Orders", b"one")])
            pulled = broker.pull("Orders", stored.queue_id, 0, group="G", commit_offset=0)
            assert [message.body for message in pulled.messages] == [b"one"]
            assert broker.state.offsets.query("Orders", "G", stored.queue_id) == 0
            assert broker.state.stats.get_messages == 1

    asyncio.run(run())


def test_an_in_process_pull_filters_by_tags_and_sql92(tmp_path: Path) -> None:
    """By tags, compared as text though a broker compares their hashes (``Aa`` and ``BB`` have the same); by SQL92."""
    with flintmq.Broker(config(tmp_path, "topics.default_queue_nums=1", "pull.property_filter=true")) as broker:  # type: ignore[arg-type]
        put(broker, *(flintmq.Message("Orders", tag.encode(), tags=tag) for tag in ("Aa", "BB", "C")))
        by_tag = broker.pull("Orders", 0, 0, group="G", expression="Aa || C")
        assert [message.body for message in by_tag.messages] == [b"Aa", b"C"]
        by_sql = broker.pull("Orders", 0, 0, group="G", expression="TAGS = 'C'", expression_type="SQL92")
        assert [message.body for message in by_sql.messages] == [b"C"]


def test_an_in_process_pull_is_refused_for_the_same_reasons_as_a_pull_of_a_client(tmp_path: Path) -> None:
    """A broker that has stopped refuses, too."""
    with flintmq.Broker(config(tmp_path)) as broker:  # type: ignore[arg-type]
        with pytest.raises(RefusedError) as refused:
            broker.pull("Nowhere", 0, 0, group="G")
        assert (refused.value.code, refused.value.reason) == (ResponseCode.TOPIC_NOT_EXIST, "topic.missing")
    with pytest.raises(FlintError):
        broker.pull("Nowhere", 0, 0, group="G")
    with flintmq.Broker(config(tmp_path, f"broker.permission={WRITE}")) as broker:  # type: ignore[arg-type]
        with pytest.raises(RefusedError) as refused:
            broker.pull("Nowhere", 0, 0, group="G")
        assert refused.value.reason == "broker.not_readable"
