"""What consumers notice of a restart: they go on within seconds, also after ``kill -9``."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
from bare_wire import Wire
from broker_process import BrokerProcess

from flintmq.client import Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.ports import free_ports

TOPIC = "Orders"
_WITHIN_S = 4.0


@pytest.mark.slow
@pytest.mark.parametrize("role", ["broker", "namesrv"])
def test_a_killed_server_resets_its_connections(tmp_path: Path, role: str) -> None:
    """At a mere end of the stream Java's clients 4.x wait for the answers to their pulls for 30 s."""
    process = BrokerProcess(tmp_path / "store", role=role)
    process.wait_ready()
    with closing(Wire(process.address)) as wire:
        wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        process.end(signal.SIGKILL)
        with pytest.raises(ConnectionResetError):
            wire.socket.recv(1)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_deliveries_continue_within_seconds_of_a_broker_restart(tmp_path: Path, end: signal.Signals) -> None:
    """The clients are not restarted, and their next heartbeat is half a minute away."""
    names_port, broker_port = free_ports(2)

    def start(role: str, *settings: str) -> BrokerProcess:
        folder = tmp_path / role
        folder.mkdir(exist_ok=True)
        process = BrokerProcess(folder / "store", *settings, role=role)
        process.wait_ready()
        return process

    def start_names() -> BrokerProcess:
        return start("namesrv", f"nameserver.port={names_port}")

    def start_broker() -> BrokerProcess:
        return start("broker", f"listen.port={broker_port}", f"namesrv.addresses=127.0.0.1:{names_port}")

    async def live() -> None:
        names, broker = start_names(), start_broker()
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(message: MessageExt) -> None:
            got.put_nowait(message.body)

        addresses = f"127.0.0.1:{names_port}"
        settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
        async with Producer("shop", addresses) as producer:
            await producer.send(Message(TOPIC, b"first"))
            async with Consumer("billing", addresses, listen, settings=settings) as consumer:
                await consumer.subscribe(TOPIC)
                async with asyncio.timeout(30):
                    assert await got.get() == b"first"
                while not (tmp_path / "broker" / "store" / "flint" / "consumers").exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                broker.end(end)
                await asyncio.to_thread(start_broker)
                begin_s = time.monotonic()
                await producer.send(Message(TOPIC, b"second"))
                async with asyncio.timeout(30):
                    assert await got.get() == b"second"
                assert time.monotonic() - begin_s < _WITHIN_S
                names.end(end)
                await asyncio.to_thread(start_names)
                begin_s = time.monotonic()
                await producer.send(Message(TOPIC, b"third"))
                async with asyncio.timeout(30):
                    assert await got.get() == b"third"
                with closing(Wire(addresses)) as wire:
                    while wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert time.monotonic() - begin_s < _WITHIN_S

    asyncio.run(live())
