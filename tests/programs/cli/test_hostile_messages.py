"""Nothing in a message costs a command that shows it more than 50 ms of its loop or 64 MiB."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.remoting.client import Message, Producer
from flintmq.tests.support.costs import memory, turns
from flintmq.tests.support.damage import send_flagged
from flintmq.tests.support.hostile_bodies import MIB, hostile_body, hostile_names, hostile_properties

from .conftest import RunCommand


@pytest.fixture(scope="module")
def hostile(name_server: str) -> tuple[str, int]:
    """A topic that is full of them, and how many they are."""

    async def fill() -> int:
        async with Producer("p", name_server) as producer:
            for name in hostile_names():
                body, sys_flag = hostile_body(name)
                await send_flagged(producer, Message("HostileMessages", body, keys="k"), sys_flag)
            await producer.send(Message("HostileMessages", b"x", keys="k", properties=hostile_properties()))
        return len(hostile_names()) + 1

    return "HostileMessages", asyncio.run(fill())


@pytest.mark.slow
@pytest.mark.parametrize("is_memory", [False, True], ids=["loop", "memory"])
@pytest.mark.parametrize(
    "words",
    [
        ("consume", "TOPIC", "--count", "COUNT"),
        ("consume", "TOPIC", "--count", "COUNT", "--group", "GROUP"),
        ("query", "TOPIC", "--key", "k", "--max", "64"),
        ("top", "--once"),
        ("top", "--json"),
        ("status", "--topic", "TOPIC"),
    ],
    ids=" ".join,
)
def test_commands_show_malicious_messages_in_bounded_time_and_memory(
    cli: RunCommand, name_server: str, hostile: tuple[str, int], words: tuple[str, ...], is_memory: bool
) -> None:
    topic, count = hostile
    given = {"TOPIC": topic, "COUNT": str(count), "GROUP": f"hostile-{is_memory}"}
    arguments = [given.get(word, word) for word in words]
    cli(words[0], "--help")  # what the command imports is not the body's cost
    with memory() if is_memory else turns() as cost:
        outcome = cli(*arguments, "-n", name_server)
    assert outcome.code == 0, outcome.err
    assert cost.turn_ms < 50
    assert cost.peak_bytes < 64 * MIB
    assert len(outcome.out) < 8 * MIB
