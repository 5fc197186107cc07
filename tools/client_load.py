#!/usr/bin/env python3
"""Puts load on a broker by FlintMQ's client, in a separate process.

    tools/client_load.py ROW --namesrv HOST:PORT --topic T [--seconds S] [--count N]

Prints one line of JSON: messages per second, and the processor time of this process per message. A warm-up is not measured. ROW
is the kind of load:

* ``send-N`` sends single messages, and ``linger-N`` lets the client join them into batches. N sends are in flight.
* ``oneway`` sends without answers, and ``batch`` sends batches of 32 messages.
* ``consume`` passes single messages to a listener, and ``consume-lists`` passes lists of messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from flintmq.client import Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.programs.broker.service import run_loop_named

BATCH = 32
WARMUP_S = 1.0


class Meter:
    """Counts messages, and measures the processor time that this process uses for them, from the call of :meth:`begin` on."""

    def __init__(self) -> None:
        self.messages = 0
        self._began_s = self._cpu_s = 0.0

    def begin(self) -> None:
        """Begin to count messages and to measure the processor time."""
        self.messages, self._began_s, self._cpu_s = 0, time.monotonic(), cpu_s()

    def report(self) -> dict[str, float]:
        """Return the messages per second, and the processor time per message in microseconds."""
        seconds = time.monotonic() - self._began_s
        spent_us = (cpu_s() - self._cpu_s) * 1e6
        return {"rate": round(self.messages / seconds), "cpu_us": round(spent_us / max(1, self.messages), 3)}


def cpu_s() -> float:
    """Return the processor time of this process in seconds, user and system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def produce(words: argparse.Namespace) -> dict[str, float]:
    """Send messages after a warm-up, and return the rate and the processor time per message. The parameter ``words`` has the
    arguments of the command line: ``row`` is the kind of load, which may end with a number of sending tasks, and ``seconds`` is
    the duration."""
    kind, _, in_flight = words.row.partition("-")
    message = Message(words.topic, bytes(words.size))
    async with Producer("bench", words.namesrv, linger_ms=0 if kind == "linger" else None) as producer:
        once: dict[str, tuple[int, Callable[[], Awaitable[Any]]]] = {
            "oneway": (1, lambda: producer.send_oneway(message)),
            "batch": (BATCH, lambda: producer.send_batch([message] * BATCH)),
        }
        messages, send = once.get(kind, (1, lambda: producer.send(message)))
        meter = Meter()

        async def work(until_s: float) -> None:
            while time.monotonic() < until_s:
                await send()
                meter.messages += messages
                # A one-way send never suspends its task, so sleep(0) lets the event loop write the frames.
                if kind == "oneway":
                    await asyncio.sleep(0)

        for seconds in (WARMUP_S, words.seconds):
            meter.begin()
            until_s = time.monotonic() + seconds
            await asyncio.gather(*(work(until_s) for _ in range(int(in_flight or 1))))
        return meter.report()


async def consume(words: argparse.Namespace) -> dict[str, float]:
    """Consume a backlog of messages, and return the rate and the processor time per message. The argument ``count`` of the
    command line gives the number of messages. The first tenth of the messages is the warm-up."""
    meter, done = Meter(), asyncio.Event()
    warm = words.count // 10
    is_warm = False

    def took(messages: int) -> None:
        nonlocal is_warm
        meter.messages += messages
        if not is_warm and meter.messages >= warm:
            is_warm = True
            meter.begin()
        elif is_warm and meter.messages >= words.count - 2 * warm:
            done.set()

    async def take_one(_message: MessageExt) -> None:
        if not done.is_set():
            took(1)

    async def take_many(messages: list[MessageExt]) -> None:
        if not done.is_set():
            took(len(messages))

    listener: dict[str, Any] = {"batch_listener": take_many} if words.row == "consume-lists" else {"listener": take_one}
    settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", concurrency=4)
    async with Consumer(f"bench-{uuid.uuid4().hex}", words.namesrv, settings=settings, **listener) as consumer:
        await consumer.subscribe(words.topic)
        await done.wait()
        return meter.report()


def main() -> None:
    """Put the load that the command line names on the broker, and print the figures."""
    parser = argparse.ArgumentParser("client_load.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("row", help="send-N, linger-N, oneway, batch, consume or consume-lists")
    parser.add_argument("--namesrv", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="how long it sends")
    parser.add_argument("--count", type=int, default=300_000, metavar="N", help="messages in the backlog to consume")
    parser.add_argument("--size", type=int, default=128, metavar="BYTES", help="size of a body")
    parser.add_argument("--loop", default="auto", metavar="NAME", help="event loop: auto, asyncio or uvloop")
    words = parser.parse_args()
    work = consume if words.row.startswith("consume") else produce
    print(json.dumps(run_loop_named(words.loop)(work(words))))


if __name__ == "__main__":
    main()
