"""``groups reset`` moves any group: online or not, with offsets in all, some or none of the queues."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, Producer
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.wire.bodies import ConsumerData, HeartbeatData
from flintmq.remoting.wire.codes import RequestCode

from .conftest import RunCommand

QUEUES = 2
LIMIT_S = 40


async def fill(name_server: str, topic: str, group: str, offsets: dict[int, int]) -> None:
    """Store five messages in each queue, and the offsets of a group."""
    async with Producer("p", name_server) as producer, AdminClient(name_server) as admin:
        for number in range(5 * QUEUES):
            await producer.send(Message(topic, b"x"), queue=MessageQueue("broker-a", number % QUEUES, topic))
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        api = BrokerApi(admin.client, group)
        for queue_id, offset in offsets.items():
            await api.commit(MessageQueue("broker-a", queue_id, topic), offset)


def offsets_of(cli: RunCommand, name_server: str, group: str, topic: str) -> list[int]:
    shown = cli("groups", "show", group, topic, "-n", name_server, "--json").json
    return [queue["consumer_offset"] for queue in shown["queues"]]


@pytest.mark.parametrize("offsets", [{0: 3, 1: 4}, {0: 3}, {}])
@pytest.mark.parametrize(("to", "then"), [("first", [0, 0]), ("last", [5, 5]), ("2000-01-01", [0, 0])])
def test_the_offsets_of_a_group_without_members_are_reset(
    cli: RunCommand, name_server: str, topic: str, offsets: dict[int, int], to: str, then: Sequence[int]
) -> None:
    """Its offsets are written where there are none, too; before that nothing changes, however often it is looked at."""
    group = f"away-{len(offsets)}-{to}"
    asyncio.run(fill(name_server, topic, group, offsets))
    words = ("groups", "reset", group, topic, "--to", to, "-n", name_server)
    before = [offsets.get(queue_id, 0) for queue_id in range(QUEUES)]
    looked = cli(*words, "--dry-run", "--json")
    assert (looked.code, looked.json["dry_run"]) == (0, True)
    assert [
        (row["queue_id"], row["consumer_offset"], row["new_consumer_offset"], row["again"], row["skipped"])
        for row in looked.json["queues"]
    ] == [
        (queue_id, now, new, max(0, now - new), max(0, new - now))
        for queue_id, (now, new) in enumerate(zip(before, then, strict=True))
    ]
    assert "would be consumed again" in cli(*words, "--dry-run").out
    refused = cli(*words)
    assert (refused.code, "confirm it with --yes" in refused.err) == (2, True)
    assert offsets_of(cli, name_server, group, topic) == before
    done = cli(*words, "--yes", "--json")
    assert (done.code, "flintmq: " in done.err) == (0, False)
    assert done.json == {
        "group": group,
        "topic": topic,
        "queues": [
            {"broker": "broker-a", "queue_id": number, "consumer_offset": new} for number, new in enumerate(then)
        ],
    }
    assert offsets_of(cli, name_server, group, topic) == list(then)

    async def stored() -> list[int | None]:
        async with AdminClient(name_server) as admin:
            api = BrokerApi(admin.client, group)
            return [await api.committed(MessageQueue("broker-a", number, topic)) for number in range(QUEUES)]

    assert asyncio.run(stored()) == list(then)


def test_offsets_of_a_group_that_consumed_only_one_of_two_queues_are_reset(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """``consume --count 1`` leaves a group with an offset in one queue of two and no member."""
    where = ("-n", name_server)
    cli("send", topic, "a", "b", "--queue", 1, *where)
    assert cli("consume", topic, "-g", "readme", "--count", 1, "--from", "first", *where).code == 0
    assert cli("groups", "show", "readme", *where, "--json").json["lag"] == 1
    assert cli("groups", "reset", "readme", topic, "--to", "first", "--yes", *where).code == 0
    assert cli("groups", "show", "readme", *where, "--json").json["lag"] == 2


@pytest.mark.parametrize(
    ("given", "then"), [(("--offset", 2), [2, 4]), (("--to", "last"), [5, 4]), (("--to", "first"), [0, 4])]
)
def test_the_offset_reset_of_a_consumer_group_can_be_limited_to_one_queue(
    cli: RunCommand, name_server: str, topic: str, given: tuple[Any, ...], then: list[int]
) -> None:
    group = f"one-{given[1]}"
    asyncio.run(fill(name_server, topic, group, {0: 3, 1: 4}))
    words = ("groups", "reset", group, topic, "--queue", "broker-a:0", *given, "-n", name_server)
    assert [row["queue_id"] for row in cli(*words, "--dry-run", "--json").json["queues"]] == [0]
    assert cli(*words, "--yes").code == 0
    assert offsets_of(cli, name_server, group, topic) == then


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ((), 2, "--to, or --offset with --queue"),
        (("--offset", 1), 2, "--to, or --offset with --queue"),
        (("--to", "first", "--offset", 1, "--queue", "broker-a:0"), 2, "--to, or --offset with --queue"),
        (("--to", "first", "--queue", "broker-a"), 2, "is not BROKER:QUEUE"),
        (("--to", "first", "--queue", "broker-a:9"), 1, "has no queue broker-a:9"),
        (("--offset", 99, "--queue", "broker-a:0"), 1, "the queue has the offsets from 0 to 5, not 99"),
    ],
)
def test_the_command_groups_reset_refuses_invalid_options_and_unknown_queues(
    cli: RunCommand, name_server: str, topic: str, given: tuple[Any, ...], code: int, said: str
) -> None:
    asyncio.run(fill(name_server, topic, "refused", {}))
    outcome = cli("groups", "reset", "refused", topic, *given, "--yes", "-n", name_server)
    assert outcome.code == code
    assert said in outcome.err


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "then"), [("y\n", 0, [0, 0]), ("n\n", 1, [3, 4]), ("", 1, [3, 4])])
def test_a_group_reset_asks_for_confirmation(
    cli: RunCommand,
    name_server: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    then: list[int],
) -> None:
    """The table goes to stderr, so that what is done can be read by a program."""
    asyncio.run(fill(name_server, topic, "asked", {0: 3, 1: 4}))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    outcome = cli("groups", "reset", "asked", topic, "--to", "first", "-n", name_server)
    assert outcome.code == code, outcome.err
    assert "7 messages would be consumed again, 0 would never be consumed. Go on?" in outcome.err
    assert "broker-a:1" in outcome.err
    assert offsets_of(cli, name_server, "asked", topic) == then


def test_offsets_of_a_group_can_be_reset_in_a_topic_that_no_online_member_consumes(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """A group that is online and does not consume the topic any more: telling its members would move nothing."""
    group = "elsewhere"

    async def run() -> None:
        await fill(name_server, topic, group, {0: 3, 1: 4})
        async with AdminClient(name_server) as admin:
            wanted = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic="Other")])
            body = HeartbeatData(client_id="c@1", consumer_data_set=[wanted]).encode()
            (address,) = (await admin.masters()).values()
            await admin.invoke(address, RequestCode.HEART_BEAT, body=body)
            done = await asyncio.to_thread(
                cli, "groups", "reset", group, topic, "--to", "last", "--yes", "-n", name_server
            )
            assert done.code == 0
            api = BrokerApi(admin.client, group)
            assert [await api.committed(MessageQueue("broker-a", number, topic)) for number in (0, 1)] == [5, 5]

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("offsets", [{0: 5, 1: 5}, {0: 5}])
@pytest.mark.parametrize("given", [("--to", "first"), ("--queue", "broker-a:0", "--offset", 0)])
def test_connected_members_continue_at_the_reset_offset(
    cli: RunCommand, name_server: str, topic: str, offsets: dict[int, int], given: tuple[Any, ...]
) -> None:
    """Also where the group has no offset in a queue yet, which RocketMQ's broker refuses to reset."""
    group = f"here-{len(offsets)}-{given[0]}"

    async def run() -> None:
        await fill(name_server, topic, group, offsets)
        got: list[tuple[int, int]] = []

        async def listen(message: Any) -> None:
            got.append((message.queue_id, message.queue_offset))

        settings = ConsumerSettings(commit_interval_s=1000)
        async with Consumer(group, name_server, listen, settings=settings) as consumer:
            await consumer.subscribe(topic)
            async with asyncio.timeout(LIMIT_S):
                first = 5 if 1 not in offsets else 0
                while len(got) < first or not await consumer.client.send_heartbeats():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                got.clear()
                words = ("groups", "reset", group, topic, *given, "--yes", "-n", name_server)
                done = await asyncio.to_thread(cli, *words)
                assert (done.code, "flintmq: " in done.err) == (0, False)
                wanted = [(0, number) for number in range(5)]
                wanted += [(1, number) for number in range(5)] if "--to" in given else []
                while len(got) < len(wanted):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert sorted(got) == wanted

    asyncio.run(run())
