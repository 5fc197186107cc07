"""The master's port: who may connect, who is sent away, and what is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from flintmq.core.broker.log_copy import LogCopy
from flintmq.core.io.clock import SYSTEM_CLOCK
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.master import HaMasterService
from flintmq.plugins.replication.slave import HaSlaveService
from flintmq.plugins.replication.store_log import SlaveStoreLog, StoreLog
from flintmq.testing.store import message, opened
from flintmq.tests.support.log_parts import view_of

SETTINGS = LinkSettings(heartbeat_s=0.2, housekeeping_s=5.0, batch_bytes=1000, secret=b"known to both ends")


async def until(is_true: Callable[[], object]) -> None:
    """Waits for what another coroutine does."""
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110 - sockets are not ours to wait for
            await asyncio.sleep(0.001)


@asynccontextmanager
async def master_of(store: MessageStore, **changes: float) -> AsyncIterator[tuple[HaMasterService, int]]:
    """A master's port over a store."""
    most = int(changes.pop("max_slaves", 4))
    settings = attrs.evolve(SETTINGS, **changes)  # type: ignore[arg-type]
    log = StoreLog(LogCopy(store), view_of(store), "broker-a", "here:1")
    service = HaMasterService(log, settings, SYSTEM_CLOCK, gate=None, max_slaves=most, on_progress=lambda: None)
    sock = socket.create_server(("127.0.0.1", 0))
    await service.start(sock)
    store.appended.subscribe(service.wake)
    try:
        yield service, sock.getsockname()[1]
    finally:
        await service.stop()


@asynccontextmanager
async def slave_of(store: MessageStore, port: int) -> AsyncIterator[HaSlaveService]:
    """A slave over a store."""

    async def find() -> str:
        return f"127.0.0.1:{port}"

    service = HaSlaveService(
        SlaveStoreLog(LogCopy(store), view_of(store), "broker-a", "there:1"),
        SETTINGS,
        SYSTEM_CLOCK,
        find_master=find,
        reconnect_s=0.02,
        on_appended=lambda _messages, _bytes: None,
    )
    service.start()
    try:
        yield service
    finally:
        await service.stop()


def test_a_master_refuses_a_slave_beyond_the_configured_maximum_until_another_slave_disconnects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on trying, and takes the place of one that leaves."""

    async def run(master: MessageStore, first: MessageStore, second: MessageStore) -> None:
        async with master_of(master, max_slaves=1) as (_service, port), slave_of(first, port) as one:
            await until(lambda: one.is_following)
            async with slave_of(second, port) as two:
                await until(lambda: "ha.max_slaves" in caplog.text)
                master.put([message("T")])
                await until(lambda: first.watermarks.wrote == master.watermarks.wrote)
                assert second.watermarks.wrote == 0
                await one.stop()
                await until(lambda: second.watermarks.wrote == master.watermarks.wrote)
                assert two.is_following

    with opened(tmp_path / "m") as master, opened(tmp_path / "1") as first, opened(tmp_path / "2") as second:
        asyncio.run(run(master, first, second))


def test_the_connection_of_a_silent_replication_peer_is_closed(tmp_path: Path) -> None:
    """Half-open connections hold a descriptor each."""

    async def run(master: MessageStore) -> None:
        async with master_of(master, housekeeping_s=0.3) as (service, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
            await until(lambda: not service.connections)

    with opened(tmp_path / "m") as master:
        asyncio.run(run(master))


def test_the_number_of_unauthenticated_replication_connections_is_limited(tmp_path: Path) -> None:
    """Whoever proves nothing gets few places, and slaves get theirs afterwards."""

    async def run(master: MessageStore, slave: MessageStore) -> None:
        async with master_of(master, max_slaves=2) as (service, port):
            opened_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            await until(lambda: len(service.connections) == 34)
            for _, writer in opened_:
                writer.close()
            async with slave_of(slave, port) as one:
                await until(lambda: one.is_following)

    with opened(tmp_path / "m") as master, opened(tmp_path / "s") as slave:
        asyncio.run(run(master, slave))


def test_a_slave_continues_to_copy_the_log_when_its_full_disk_has_space_again(tmp_path: Path) -> None:
    """It follows again when there is room, from where it was."""
    from flintmq.tests.support.faulty_disk import FaultyDisk

    disk = FaultyDisk()

    async def run(master: MessageStore, slave: MessageStore) -> None:
        async with master_of(master) as (_service, port), slave_of(slave, port) as one:
            master.put([message("T", body=b"1")])
            await until(lambda: slave.watermarks.wrote == master.watermarks.wrote)
            fault = disk.fail("map_file", within="commitlog")
            for _ in range(20):
                master.put([message("T", body=bytes(1000))])
            await until(lambda: fault.hits > 2)
            assert slave.watermarks.wrote < master.watermarks.wrote
            disk.heal()
            await until(lambda: slave.watermarks.wrote == master.watermarks.wrote)
            assert one.connects > 1

    with opened(tmp_path / "m") as master, opened(tmp_path / "s", disk=disk) as slave:
        asyncio.run(run(master, slave))


def test_a_slave_asks_for_its_masters_address_until_the_address_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A name server that does not know the master yet: it is asked again."""
    answers = iter([None, None])

    async def run(master: MessageStore, slave: MessageStore) -> None:
        async with master_of(master) as (_service, port):

            async def find() -> str | None:
                return next(answers, f"127.0.0.1:{port}")

            service = HaSlaveService(
                SlaveStoreLog(LogCopy(slave), view_of(slave), "broker-a", ""),
                SETTINGS,
                SYSTEM_CLOCK,
                find_master=find,
                reconnect_s=0.01,
                on_appended=lambda _messages, _bytes: None,
            )
            service.start()
            await until(lambda: service.is_following)
            assert service.master_client_address == "here:1"
            await service.stop()

    with opened(tmp_path / "m") as master, opened(tmp_path / "s") as slave:
        asyncio.run(run(master, slave))
    assert caplog.text.count("the master's address is unknown") == 1
