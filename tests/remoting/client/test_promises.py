"""What docs/client.md and the reference promise, and a program found not to be so."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from flintmq.client import sync
from flintmq.core.errors import FlintError, InvalidArgumentError
from flintmq.programs.cli.query import _by_place as by_place
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message, MessageExt
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState

SOON = ConsumerSettings(
    consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.01, error_delay_s=0.02, commit_interval_s=60
)


def test_two_consumers_of_one_group_cannot_use_one_client_instance(fake_peer: Any, fake_broker: Any) -> None:
    """Brokers take them for one member, and each would get every message."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            client = ClientInstance(peer.address)
            async with Consumer("g", client=client) as first:
                second = Consumer("g", client=client)
                with pytest.raises(InvalidArgumentError, match="g has a member on this client already"):
                    await second.start()
                assert not second.is_started
                await second.close()
                assert first.is_started
                assert "g" in client.consumers
                async with Consumer("other", client=client):
                    pass
            async with Consumer("g", client=client):
                pass  # one after the other they may
            await client.close()

    asyncio.run(run())


def test_two_transaction_producers_of_one_group_cannot_use_one_client_instance(
    fake_peer: Any, fake_broker: Any
) -> None:
    async def check(_message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            client = ClientInstance(peer.address)
            async with TransactionProducer("p", client=client, check=check) as first:
                await first.start()
                second = TransactionProducer("p", client=client, check=check)
                with pytest.raises(ValueError, match="p has a transaction producer on this client already"):
                    await second.start()
                await second.close()
                assert client.transaction_checks["p"] == first._asked
            assert not client.transaction_checks
            await client.close()

    asyncio.run(run())


def test_a_group_stays_registered_until_its_last_producer_closes(fake_peer: Any, fake_broker: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            client = ClientInstance(peer.address)
            async with Producer("p", client=client) as first:
                await first.send(Message("T", b"x"))
                async with Producer("p", client=client) as second:
                    await second.start()
                assert client.producer_groups == {"p"}
                assert not peer.of_code(35)
            assert client.producer_groups == set()
            assert len(peer.of_code(35)) == 1
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
@pytest.mark.parametrize("wrong", [print, 9876, None, {"a:1": 1}.items()])
def test_a_consumer_refuses_a_listener_passed_in_place_of_the_name_server_addresses(kind: Any, wrong: Any) -> None:
    async def run() -> None:
        client = ClientInstance("127.0.0.1:1")
        for options in ({}, {"client": client}):
            with pytest.raises(InvalidArgumentError, match=r"name_servers is .*listener="):
                kind("g", wrong, **options)
        await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("orderly", [False, True])
def test_no_message_is_delivered_to_a_listener_after_its_consumer_is_suspended(
    fake_peer: Any, fake_broker: Any, orderly: bool
) -> None:
    """A pull that the broker holds is answered after the call; its messages are pulled again after resume."""

    async def run() -> None:
        async with fake_peer() as peer:
            broker = fake_broker(peer)
            got: list[bytes] = []

            async def listen(message: MessageExt) -> None:
                got.append(message.body)

            async with Consumer("g", peer.address, listen, settings=attrs.evolve(SOON, orderly=orderly)) as consumer:
                broker.members["g"] = [consumer.client.client_id]
                await consumer.subscribe("T")
                await peer.until(lambda: len(broker.held) >= 2)
                consumer.suspend()
                broker.put("T", 0, b"1")
                held, broker.held = broker.held, []
                for asked in held:
                    answer = broker.pull(asked)
                    if answer is not None:
                        peer.push(answer)
                pulls = len(peer.of_code(11))
                await asyncio.sleep(0.05)
                assert got == []
                assert len(peer.of_code(11)) == pulls
                consumer.resume()
                await peer.until(lambda: got == [b"1"])

    asyncio.run(run())


def test_every_invalid_argument_raises_a_flint_error(fake_peer: Any, fake_broker: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("p", peer.address) as producer:
                queue = (await producer.queues("T"))[0]
                wrong = [
                    lambda: producer.send(Message("T", bytes(5 << 20))),
                    lambda: producer.send(Message("T", b"x"), queue, sharding_key="k"),
                    lambda: producer.send_batch([]),
                    lambda: producer.send_batch([Message("T", b""), Message("U", b"")]),
                    lambda: producer.send(Message("T", b"x", tags="a\x01b")),
                ]
                for call in wrong:
                    with pytest.raises(FlintError) as failure:
                        await call()
                    assert isinstance(failure.value, ValueError)

    asyncio.run(run())
    for made in (
        lambda: Producer("p", ""),
        lambda: Producer("p", "a:1", namespace="%"),
        lambda: Producer("p", "a:1", linger_ms=-1),
    ):
        with pytest.raises(FlintError):
            made()


def test_a_message_is_found_by_its_id_after_its_broker_moved_to_another_address(
    fake_peer: Any, fake_broker: Any
) -> None:
    """The id of a message holds the address that its broker had; nobody answers there any more."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("p", peer.address) as producer, AdminClient(peer.address) as admin:
                sent = await producer.send(Message("T", b"x"))
                assert peer.address != "127.0.0.1:10911"  # which is what the fake's ids say
                assert (await by_place(admin, sent.offset_msg_id)).body == b"x"
                with pytest.raises(ValueError, match=r"."):
                    await by_place(admin, "no id")

    asyncio.run(run())
