"""Every command of the real mqadmin works, as operators type it, and docs/mqadmin.md says what each does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import flintmq
from flintmq.config import load_config
from flintmq.config.rocketmq.system_topics import TRACE_TOPIC
from flintmq.remoting.client import AdminClient, Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.remoting.client.access import AclSigner

from .conftest import PEER, Peer
from .mqadmin import Mqadmin
from .mqadmin_commands import ACCESS_COMMANDS, COMMANDS

TOPIC = "Mqadmin"
GROUP = "mqadmin_group"
PRODUCER_GROUP = "mqadmin_producers"
DOCS = Path(str(flintmq.__file__)).parent / "docs" / "mqadmin.md"
ACCOUNT = ("flintadmin", "flintsecret")
ACCOUNTS = f"accounts:\n- accessKey: {ACCOUNT[0]}\n  secretKey: {ACCOUNT[1]}\n  admin: true\n"


def test_the_documentation_lists_every_mqadmin_command() -> None:
    """A command that works and is not on the page is not found; one that is on it and never tried may not work."""
    told = set(re.findall(r"^\| `(\w+)", DOCS.read_text(), re.MULTILINE))
    assert told == {command.name for command in (*COMMANDS, *ACCESS_COMMANDS)}


def access_control(folder: Path) -> tuple[str, ...]:
    """Settings of a broker with one account."""
    accounts = folder / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    return ("acl.enable=true", f"acl.file={accounts}")


@asynccontextmanager
async def serving(folder: Path, *overrides: str) -> AsyncIterator[tuple[str, str]]:
    """A name server and a broker; gives their addresses."""
    nameserver = ["nameserver.port=0", *overrides]
    async with flintmq.NameServer(load_config(None, nameserver, environ={})) as name_server:
        settings = [
            f"store.path={folder}",
            "store.commit_log_file_bytes=1MiB",
            "listen.port=0",
            "listen.vip=false",
            "topics.trace_topic_enable=true",
            f"namesrv.addresses={name_server.address}",
            *overrides,
        ]
        async with flintmq.Broker(load_config(None, settings, environ={})) as broker:
            yield name_server.address, broker.address


@asynccontextmanager
async def looked_at(name_server: str, names: dict[str, str], signed: bool) -> AsyncIterator[None]:
    """A consumer that has read the topic and a producer, both known to the broker; their ids go to ``names``."""
    consumed: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(message: MessageExt) -> None:
        consumed.put_nowait(message.body)

    settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
    hooks = [AclSigner(*ACCOUNT)] if signed else []
    async with (
        Producer(PRODUCER_GROUP, name_server, hooks=hooks) as producer,
        Consumer(GROUP, name_server, listen, settings=settings, hooks=hooks) as consumer,
        AdminClient(name_server, hooks=hooks) as admin,
    ):
        await producer.send(Message(f"{TOPIC}_2", b"makes the broker known to the producer"))
        assert await producer.client.send_heartbeats()
        await consumer.subscribe(TOPIC)
        async with asyncio.timeout(60):
            assert sorted([await consumed.get() for _ in range(3)]) == [b"first", b"second", b"third"]
            (first,), (traced,) = [await admin.query_by_key(TOPIC, key) for key in ("k1", "k3")]
            await consumer.commit()
        names["client_id"] = consumer.client.client_id
        names["producer_id"] = producer.client.client_id
        names["offset_id"] = first.offset_msg_id
        names["unique_key"] = first.properties["UNIQ_KEY"]
        names["traced_key"] = traced.properties["UNIQ_KEY"]
        async with Producer("traced_here", name_server, hooks=hooks, trace=True) as traces:
            names["traced_here"] = (await traces.send(Message(f"{TOPIC}_2", b"traced"))).msg_id
        async with asyncio.timeout(60):
            for key in (names["traced_key"], names["traced_here"]):
                # Clients send traces some time after their messages.
                while not await admin.query_by_key(TRACE_TOPIC, key):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        yield


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("signed", [False, pytest.param(True, marks=pytest.mark.longest)])
def test_every_mqadmin_command_prints_its_expected_output_with_a_flintmq_broker(
    peer: Peer, tmp_path: Path, signed: bool
) -> None:
    """Also with access control, where mqadmin and all that it makes must sign."""
    overrides = access_control(tmp_path) if signed else ()

    async def run() -> list[str]:
        async with serving(tmp_path / "store", *overrides) as (name_server, broker):
            names = {
                "namesrv_port": name_server.rpartition(":")[2],
                "broker": broker,
                "name": "broker-a",
                "cluster": "DefaultCluster",
                "topic": TOPIC,
                "group": GROUP,
                "producer_group": PRODUCER_GROUP,
                "folder": str(tmp_path / "exported"),
            }
            with Mqadmin(PEER, tmp_path / "mqadmin", name_server, ACCOUNT if signed else None) as mqadmin:
                alone = next(at for at, command in enumerate(COMMANDS) if "{offset_id}" in command.line)
                found = [await asyncio.to_thread(mqadmin.check, command, names) for command in COMMANDS[:alone]]
                async with looked_at(name_server, names, signed):
                    found += [await asyncio.to_thread(mqadmin.check, command, names) for command in COMMANDS[alone:]]
                return [trouble for trouble in found if trouble]

    trouble = asyncio.run(run())
    assert not trouble, "\n".join(trouble)


@pytest.mark.slow
@pytest.mark.java
def test_mqadmin_commands_for_access_control_print_their_expected_output_with_a_flintmq_broker(
    peer: Peer, tmp_path: Path
) -> None:
    async def run() -> list[str]:
        overrides = (*access_control(tmp_path), "acl.list_accounts=true")
        async with serving(tmp_path / "store", *overrides) as (name_server, broker):
            names = {"broker": broker, "name": "broker-a", "cluster": "DefaultCluster", "access_key": ACCOUNT[0]}
            with Mqadmin(PEER, tmp_path / "mqadmin", name_server, ACCOUNT) as mqadmin:
                found = [await asyncio.to_thread(mqadmin.check, command, names) for command in ACCESS_COMMANDS]
            with Mqadmin(PEER, tmp_path / "stranger", name_server, ("somebody", "elsesecret")) as stranger:
                refused = await asyncio.to_thread(stranger.run, f"brokerStatus -b {broker}")
                assert "somebody" in refused, refused
                assert "commitLogMaxOffset" not in refused
            return [trouble for trouble in found if trouble]

    trouble = asyncio.run(run())
    assert not trouble, "\n".join(trouble)
