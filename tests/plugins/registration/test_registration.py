"""Clients find a broker through name servers: they must know each topic soon, and no broker that has left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from flintmq import Broker, NameServer
from flintmq.config import BrokerConfig
from flintmq.config.sections.models import ListenSection, NamesrvConfig, NamesrvSection, StoreSection
from flintmq.core.broker.role import ASYNC_MASTER, MASTER_ID, SLAVE
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG
from flintmq.plugins.registration.registration import Registration
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.headers_admin import TopicRequestHeader


def config(root: Path, *addresses: str) -> BrokerConfig:
    return BrokerConfig(
        listen=ListenSection(host="127.0.0.1", port=0),
        store=StoreSection(path=str(root)),
        namesrv=NamesrvSection(addresses=addresses, register_timeout_ms=500),
    )


def test_a_broker_registers_when_it_is_ready_and_unregisters_before_it_stops_listening(tmp_path: Path) -> None:
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


def test_two_topic_changes_in_one_event_loop_iteration_cause_only_one_registration(tmp_path: Path) -> None:
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


def test_a_broker_without_name_servers_has_no_registration_service(tmp_path: Path) -> None:
    """Nothing is sent anywhere then."""

    async def live() -> None:
        async with Broker(config(tmp_path)) as broker:
            assert not list(broker.state.services_with(Registration))

    asyncio.run(live())


def test_a_broker_registers_at_once_at_a_restarted_name_server(tmp_path: Path) -> None:
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


class Slow:
    """A name server that answers when it is told to."""

    def __init__(self, registration: Registration) -> None:
        self._invoke = registration._client.invoke
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.answered = 0
        registration._client.invoke = self.invoke  # type: ignore[method-assign]

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.set()
        await self.may_answer.wait()
        answer = await self._invoke(address, command, timeout_ms)
        self.answered += 1
        return answer


def test_a_topic_deletion_waits_for_registrations_under_way(tmp_path: Path) -> None:
    """Tools delete the route next: a registration that was made before, and came after that, would put it back for good."""

    async def live() -> None:
        async with (
            NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as names,
            Broker(config(tmp_path, names.address)) as broker,
            RemotingClient() as client,
        ):
            registration = broker.state.service(Registration)
            settle, settling = registration.settle, asyncio.Event()

            async def settled() -> None:
                settling.set()
                await settle()
                assert slow.answered == 1

            registration.settle = settled  # type: ignore[method-assign]
            slow = Slow(registration)
            broker.state.topics.put(TopicConfig.with_queues("T", 1))
            async with asyncio.timeout(30):
                await slow.asked.wait()
                wanted = request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic="T"))
                deleting = asyncio.create_task(client.invoke(broker.address, wanted, 5_000))
                await settling.wait()
                assert "T" not in broker.state.topics
                slow.may_answer.set()
                assert (await deleting).code == 0
            names.routes.delete_topic("T")
            await registration.register_all()
            assert "T" not in names.routes.topics.topics()

    asyncio.run(live())


def test_a_broker_registers_again_after_each_change_of_its_role(tmp_path: Path) -> None:
    """Clients send to the broker with the id of the master: a former master must not keep it, at its stop neither."""

    async def live() -> None:
        async with NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as names:
            async with Broker(config(tmp_path, names.address)) as broker:
                registration = broker.state.service(Registration)
                registration.master_address = "127.0.0.1:1"
                done = asyncio.Event()
                register_all = registration.register_all

                async def noted() -> None:
                    await register_all()
                    done.set()

                registration.register_all = noted  # type: ignore[method-assign]
                for kind, broker_id in ((SLAVE, 3), (ASYNC_MASTER, MASTER_ID), (SLAVE, 2)):
                    done.clear()
                    broker.state.role.change(kind, broker_id)
                    async with asyncio.timeout(30):
                        await done.wait()
                    (found,) = names.routes.cluster_info().broker_addr_table.values()
                    assert found.broker_addrs == {broker_id: broker.address}
                    assert registration.master_address != "127.0.0.1:1"
            assert not names.routes.cluster_info().broker_addr_table

    asyncio.run(live())


def test_a_topic_keeps_its_order_flag_while_the_broker_waits_for_its_first_name_server_to_answer(
    tmp_path: Path,
) -> None:
    """While the first name server is asked again, the configuration of the second does not count: no topic changes."""

    async def live() -> None:
        async with (
            NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as first,
            NameServer(BrokerConfig(nameserver=NamesrvConfig(port=0))) as second,
            Broker(config(tmp_path, first.address, second.address)) as broker,
        ):
            broker.state.topics.create_in_send_back("T", 1)
            first.kv.put(ORDER_TOPIC_CONFIG, "T", "broker-a:1")
            second.kv.put(ORDER_TOPIC_CONFIG, "U", "broker-a:1")
            registration = broker.state.service(Registration)
            await registration.register_all()
            version = broker.state.topics.data_version.counter
            asked, go_on = asyncio.Event(), asyncio.Event()
            invoke = RemotingClient.invoke

            async def held(self: RemotingClient, address: str, *rest: Any) -> RemotingCommand:
                if address == first.address:
                    asked.set()
                    await go_on.wait()
                return await invoke(self, address, *rest)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RemotingClient, "invoke", held)
                under_way = asyncio.create_task(registration.register_all())
                await asked.wait()
                await registration._register_with((second.address,))
                found = broker.state.topics.data_version.counter
                go_on.set()
                await under_way
            assert found == broker.state.topics.data_version.counter == version

    asyncio.run(live())
