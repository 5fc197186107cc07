"""Clients find a broker through name servers: they must know each topic soon, and no broker that has left."""

from __future__ import annotations

import asyncio
from pathlib import Path

from flintmq import Broker, NameServer
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, NamesrvConfig, NamesrvSection, StoreSection
from flintmq.plugins.registration.registration import Registration


def config(root: Path, *addresses: str) -> BrokerConfig:
    return BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(root)),
        namesrv=NamesrvSection(addresses=addresses, register_timeout_ms=500),
    )


def test_a_broker_registers_when_it_is_ready_and_leaves_while_it_still_listens(tmp_path: Path) -> None:
    """A name server that cannot be reached is noted, and does not keep the others from knowing the broker."""

    async def live() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as names:
            broker = Broker(config(tmp_path, names.address, "127.0.0.1:1"))
            async with broker:
                registration = broker.state.service(Registration)
                assert registration.registered == {names.address: True, "127.0.0.1:1": False}
                assert names.routes.cluster_info().broker_addr_table
            assert not names.routes.cluster_info().broker_addr_table

    asyncio.run(live())


def test_a_changed_table_of_topics_is_registered_again(tmp_path: Path) -> None:
    """Several changes within one iteration of the loop make one registration."""

    async def live() -> None:
        async with (
            NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as names,
            Broker(config(tmp_path, names.address)) as broker,
        ):
            registration = broker.state.service(Registration)
            rounds: list[int] = []
            done = asyncio.Event()
            register_all = registration.register_all

            async def counted() -> None:
                await register_all()
                rounds.append(1)
                done.set()

            registration.register_all = counted  # type: ignore[method-assign]
            async with asyncio.timeout(30):
                broker.state.topics.changed.publish()
                broker.state.topics.changed.publish()
                await done.wait()
            assert rounds == [1]

    asyncio.run(live())


def test_a_broker_without_name_servers_has_no_registration(tmp_path: Path) -> None:
    """Nothing is sent anywhere then."""

    async def live() -> None:
        async with Broker(config(tmp_path)) as broker:
            assert not list(broker.state.services_with(Registration))

    asyncio.run(live())


def test_a_name_server_that_was_restarted_knows_the_broker_again_at_once(tmp_path: Path) -> None:
    """It begins with empty tables: until the next interval clients of new topics would be sent away."""

    async def live() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as names:
            port = int(names.address.rpartition(":")[2])
            broker = Broker(config(tmp_path, names.address))
            await broker.start()
            registration = broker.state.service(Registration)
            lost = asyncio.Event()
            registration._client.lost.subscribe(lambda _address: lost.set())
        async with asyncio.timeout(10):
            await lost.wait()
        for _ in range(2):  # it is away for a while
            await registration.register_all()
            assert not registration.registered[names.address]
        async with asyncio.timeout(10), NameServer(BrokerConfig(nameserver=NamesrvConfig(port=port))) as again:
            while not again.routes.cluster_info().broker_addr_table:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await broker.stop()

    asyncio.run(live())
