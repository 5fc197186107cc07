"""A filter that a plugin brings works for real consumers, whatever ``pull.property_filter`` says about SQL92."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.hookspecs import RegisterFilter, hookimpl
from flintmq.core.record.java_hash import tags_hash
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, MessageExt, Producer

Configure = Callable[..., Any]


class Modulo:
    """``3`` wants messages whose property ``n`` is a multiple of 3, and of these the tagged ones only."""

    needs_properties = True

    def __init__(self, expression: str) -> None:
        if not expression.isdigit():
            raise RefusedError(23, f"{expression} is no number", reason="filter.syntax")
        self._by = int(expression)

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code == tags_hash("yes")

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        return int(properties.get("n", "1")) % self._by == 0


class ModuloPlugin:
    """Registers the type MODULO."""

    plugin_name = "modulo"

    @hookimpl
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        register("MODULO", lambda context: lambda expression, codes: Modulo(expression))


@pytest.mark.parametrize("more", [(), ("pull.calc_filter_bitmap=true", "store.consume_queue_ext_enable=true")])
def test_a_message_filter_of_a_plugin_selects_messages_while_sql92_filtering_is_switched_off(
    configure: Configure, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Heartbeat, check at the start, pull and held pull, with tags and properties; SQL92 stays switched off."""

    async def live() -> list[int]:
        async with flintmq.NameServer(configure()) as name_server:
            address = f"namesrv.addresses={name_server.address}"
            async with flintmq.Broker(configure(address, *more), plugins=[ModuloPlugin()]):
                done, seen = asyncio.Event(), list[int]()

                async def listen(message: MessageExt) -> None:
                    seen.append(int(message.body))
                    if message.body == b"18":
                        done.set()

                settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
                async with (
                    Producer("p", name_server.address) as producer,
                    Consumer("g", name_server.address, listen, settings=settings) as consumer,
                ):
                    await producer.send(Message("T", b"0", tags="yes", properties={"n": "0"}))
                    await consumer.subscribe("T", "3", "MODULO")
                    for n in range(1, 19):
                        tags = "" if n % 9 == 6 else "yes"
                        await producer.send(Message("T", b"%d" % n, tags=tags, properties={"n": str(n)}))
                    await asyncio.wait_for(done.wait(), 10)
                    for kind, expression in (("SQL92", "n > 1"), ("MODULO", "x"), ("NOBODYS", "x")):
                        with pytest.raises(RefusedError):
                            await consumer.subscribe("U", expression, kind)
                return seen

    assert sorted(asyncio.run(live())) == [0, 3, 9, 12, 18]
