"""Clients find a broker through the door they came in by: real sockets, real name server, real routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flintmq
from flintmq.config import load_config
from flintmq.core.record.host import unpack_host
from flintmq.remoting.client import AdminClient, Message, Producer

EVERYWHERE = ("listen.host=0.0.0.0", "nameserver.host=0.0.0.0", "listen.insecure=true", "listen.vip=false")


@asynccontextmanager
async def serving(
    folder: Path, *overrides: str, listeners: str = "", name_server_host: str = "127.0.0.1"
) -> AsyncIterator[tuple[flintmq.NameServer, flintmq.Broker]]:
    settings = [*EVERYWHERE, f"store.path={folder}", "store.commit_log_file_bytes=1MiB", "listen.port=0", *overrides]
    own = ["nameserver.port=0", *([f"nameserver.listeners={listeners}"] if listeners else [])]
    async with flintmq.NameServer(load_config(None, [*settings, *own], environ={})) as name_server:
        addresses = f"namesrv.addresses={name_server_host}:{name_server.port}"
        async with flintmq.Broker(load_config(None, [*settings, addresses], environ={})) as broker:
            yield name_server, broker


async def told(name_server: str) -> str:
    """The broker's address as a client of that name server hears it."""
    async with AdminClient(name_server) as admin:
        route = await admin.topic_route("TBW102")
        info = await admin.cluster_info()
    (address,) = {data.broker_addrs[0] for data in route.broker_datas}
    assert [data.broker_addrs[0] for data in info.broker_addr_table.values()] == [address]
    return address


def test_a_broker_can_advertise_the_host_through_which_the_client_reached_the_name_server(tmp_path: Path) -> None:
    """Any address of 127.0.0.0/8 is this machine's, as the addresses of several networks would be."""

    async def run() -> None:
        async with serving(tmp_path, "listen.advertised_host=client") as (name_server, broker):
            for host in ("127.0.0.1", "127.0.0.2", "127.9.9.9"):
                assert await told(f"{host}:{name_server.port}") == f"{host}:{broker.port}"
                async with Producer("p", f"{host}:{name_server.port}") as producer:
                    assert (await producer.send(Message("T", b"x"))).queue.topic == "T"

    asyncio.run(run())


def test_clients_of_a_named_network_listener_get_the_address_advertised_for_that_listener(tmp_path: Path) -> None:
    """The container: inside by its own address, outside by what is mapped to it."""

    async def run() -> None:
        listen = "listen.advertised=outside=mq.example.com:20911"
        async with serving(tmp_path, "listen.advertised_host=127.0.0.1", listen, listeners="outside=0") as (
            name_server,
            broker,
        ):
            outside = name_server.listeners["outside"].rpartition(":")[2]
            assert await told(f"127.0.0.1:{name_server.port}") == f"127.0.0.1:{broker.port}"
            assert await told(f"127.0.0.1:{outside}") == "mq.example.com:20911"

    asyncio.run(run())


def test_routes_contain_the_advertised_host_name_and_stored_records_contain_the_ip_address_of_that_host(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with serving(tmp_path, "listen.advertised_host=localhost", "listen.advertised_port=7777") as (
            name_server,
            broker,
        ):
            assert broker.address == "localhost:7777"
            assert broker.port not in (0, 7777)
            assert await told(f"127.0.0.1:{name_server.port}") == "localhost:7777"
            assert unpack_host(broker.state.store_host) in {("127.0.0.1", 7777), ("::1", 7777)}

    asyncio.run(run())


def test_a_broker_starts_with_an_advertised_host_name_that_does_not_resolve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with serving(tmp_path, "listen.advertised_host=mq.invalid") as (name_server, broker):
            assert await told(f"127.0.0.1:{name_server.port}") == f"mq.invalid:{broker.port}"

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "mq.invalid cannot be resolved here" in caplog.text


def test_a_broker_that_listens_on_one_interface_advertises_only_the_address_of_that_interface(tmp_path: Path) -> None:
    """A broker that listens at one address has no other to tell."""

    async def run() -> None:
        overrides = ("listen.host=127.0.0.1", "listen.advertised_host=client")
        async with serving(tmp_path, *overrides) as (name_server, broker):
            assert await told(f"127.0.0.2:{name_server.port}") == f"127.0.0.1:{broker.port}"

    asyncio.run(run())
