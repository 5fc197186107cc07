"""A client that a program forgets is closed, and named; the process of a program that ends, ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import warnings
from typing import Any

import pytest

from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer


async def used_producer(address: str) -> None:
    producer = Producer("shop", address)
    await producer.start()
    await producer.send(Message("T", b"x"))


async def used_pull_consumer(address: str) -> None:
    consumer = PullConsumer("audit", address)
    await consumer.assign("T")


async def used_admin(address: str) -> None:
    await AdminClient(address).topic_route("T")


async def failing(address: str) -> None:
    producer = Producer("shop", address)
    await producer.send(Message("T", b"x"))
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (used_producer, "Producer of group shop"),
        (used_pull_consumer, "PullConsumer of group audit"),
        (used_admin, "AdminClient"),
        (failing, "Producer of group shop"),
    ],
)
def test_a_client_that_is_dropped_is_named_and_closed(fake_peer: Any, fake_broker: Any, use: Any, name: str) -> None:
    """Else it keeps two connections and two tasks for the life of the process."""

    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)

            async def dropped() -> None:
                with contextlib.suppress(ZeroDivisionError):
                    await use(peer.address)
                gc.collect()

            with pytest.warns(ResourceWarning, match=rf"{name} \(.*@.*\) was dropped without close\(\)"):
                await dropped()
            await peer.until(lambda: not peer.transports)
            await peer.until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(run())


def test_a_client_that_was_closed_or_never_used_is_not_named(fake_peer: Any, fake_broker: Any) -> None:
    async def run() -> None:
        async with fake_peer() as peer:
            fake_broker(peer)
            async with Producer("shop", peer.address) as producer:
                await producer.send(Message("T", b"x"))
            shared = PullConsumer("audit", client=producer.client)
            unused = Consumer("g", peer.address)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                del producer, shared, unused
                gc.collect()
            with pytest.raises(ValueError, match="at least one name server"):
                Producer("shop", "")
            gc.collect()

    asyncio.run(run())


BUSY = """
import logging, sys, threading, time
logging.basicConfig(level=logging.INFO)
from flintmq.client.sync import Consumer, ConsumerSettings
from flintmq.remoting.client import daemon_threads
daemon_threads.wait_for_all.__defaults__ = (0.3,)
entered = threading.Event()
def listen(message):
    entered.set()
    time.sleep(3_600)
with Consumer("g", sys.argv[1], listen, settings=ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")) as consumer:
    consumer.subscribe("T")
    assert entered.wait(20)
print("closed", flush=True)
"""

FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of Python itself: this process has threads
from flintmq.client.sync import Consumer, Producer, PullConsumer
with Producer("p", sys.argv[1]) as producer, PullConsumer("g", sys.argv[1]) as pulls, Consumer("c", sys.argv[1]) as consumer:
    producer.queues("T")
    child = os.fork()
    if child == 0:
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", code, len(producer.queues("T")))
"""


def test_a_process_does_not_wait_long_for_a_listener_that_hangs(fake_peer: Any, fake_broker: Any) -> None:
    """The message comes again: it is not committed. The log says so."""
    done = asyncio.run(program(fake_peer, fake_broker, BUSY))
    assert done == (0, "closed\n", done[2])
    assert "functions of clients have not returned: g-listener_0" in done[2]


def test_a_forked_child_ends_as_it_says_inside_a_with_statement(fake_peer: Any, fake_broker: Any) -> None:
    assert asyncio.run(program(fake_peer, fake_broker, FORKED)) == (0, "child 7 2\n", "")


async def program(fake_peer: Any, fake_broker: Any, script: str) -> tuple[int | None, str, str]:
    """Run a program beside a broker that has one message."""
    async with fake_peer() as peer:
        broker = fake_broker(peer)
        broker.put("T", 0, b"x")
        broker.peer.answers[38] = lambda asked: broker.consumer_list(asked)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, peer.address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(40):
                out, err = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
        return child.returncode, out.decode(), err.decode()
