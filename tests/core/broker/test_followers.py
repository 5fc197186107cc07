"""A service that follows messages hears of each append, answer and pull; whatever it does wrong, clients are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq import hookimpl
from flintmq.client import MessageQueue, PullConsumer
from flintmq.core.errors import PluginError
from flintmq.core.kernel.ports import HandedOut, StoredMessages
from flintmq.core.record.record import decode_records


class Follower:
    """Keeps what it is told; raises where it is told to."""

    def __init__(self, raises: bool = False) -> None:
        self.heard: list[str] = []
        self._raises = raises

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def on_stored(self, stored: StoredMessages) -> None:
        bodies = [bytes(one.body) for one in stored.messages]  # type: ignore[union-attr]
        offsets = [one.queue_offset for one in stored.results]  # type: ignore[union-attr]
        self._note(f"stored {bodies} at {offsets}, durable {stored.durable.status is not None}")

    def on_answered(self) -> None:
        self._note("answered")

    def on_handed_out(self, handed_out: HandedOut) -> None:
        records = [record.body for piece in handed_out.records for record in decode_records(piece)]
        self._note(f"{handed_out.group} has {records} of {handed_out.topic} {handed_out.queue_id}")

    def _note(self, what: str) -> None:
        self.heard.append(what)
        if self._raises:
            raise RuntimeError(what)


class Plugin:
    plugin_name = "follows"

    def __init__(self, service: Any) -> None:
        self._service = service

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("follower", lambda context: self._service)


async def traffic(root: Path, follower: Any) -> dict[str, str]:
    """Send and pull a message over connections; return the figures of request 28."""
    settings = [f"store.path={root}", "listen.enable=false"]
    async with flintmq.Broker(flintmq.load_config(None, settings, {}), plugins=[Plugin(follower)]) as broker:
        async with flintmq.client.Producer("P", broker) as producer:
            result = await producer.send(
                flintmq.Message("Orders", b"hello"), queue=MessageQueue("broker-a", 1, "Orders")
            )
        assert result.queue.queue_id == 1
        async with PullConsumer("C", broker) as consumer:
            pulled = await consumer.pull(MessageQueue("broker-a", 1, "Orders"), 0)
        assert [one.body for one in pulled.messages] == [b"hello"]
        return broker.api.figures.texts()


@pytest.mark.parametrize("raises", [False, True])
def test_a_plugin_is_notified_when_a_message_is_stored_and_when_a_message_is_pulled(
    tmp_path: Path, raises: bool
) -> None:
    """The answer follows what is stored, and a pull what is visible; errors are counted for the plugin."""
    follower = Follower(raises)
    figures = asyncio.run(traffic(tmp_path, follower))
    assert follower.heard == [
        "stored [b'hello'] at [0], durable True",
        "answered",
        "C has [b'hello'] of Orders 1",
    ]
    assert figures.get("pluginErrors_follows", "0") == ("3" if raises else "0")


def test_the_broker_does_not_start_if_a_plugin_hook_for_stored_messages_is_a_coroutine_function(tmp_path: Path) -> None:
    """Nobody would ever await it, and nothing would be followed."""

    class Late(Follower):
        async def on_stored(self, stored: StoredMessages) -> None: ...  # type: ignore[override]

    with pytest.raises(PluginError, match="on_stored"):
        asyncio.run(traffic(tmp_path, Late()))
