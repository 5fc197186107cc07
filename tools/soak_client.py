#!/usr/bin/env python3
"""Soak test of the client library: random calls to a broker that is killed, paused or disconnected every few seconds.

    tools/soak_client.py [--minutes 120] [--clients 8] [--round-seconds 30] [--seed N] [--json]

The clients are of every class, asynchronous and synchronous. Each client makes several calls at the same time; some
asynchronous calls are cancelled. Some clients are closed during a fault. After each round the broker works without faults, and
the soak test checks that

* each acknowledged message is stored, each committed transaction has become a message, no rolled-back transaction has become a
  message, and each consumer group has received every acknowledged message;
* each call ended within its timeout and a margin, and raised only exceptions that its documentation names;
* closed clients have left no thread and no task, and memory, objects and descriptors have not grown since the first rounds.

Faults are printed on stderr as soon as they are found, and make the exit code 1. The broker and the proxy before it run in
another process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import platform
import random
import sys
import tempfile
import threading
import time
import traceback
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from client_soak.calls import CLOSE_S, LONG_S, Call, Kind, World, group_of, kinds, settings_of, transaction_group
from client_soak.ledger import Ledger, word_of
from client_soak.observed import LogCounter, Measured, Observed, check_flat, measure, watch_loop

from flintmq.client import (
    AdminClient,
    Consumer,
    FlintError,
    MessageExt,
    PullConsumer,
    TransactionProducer,
)
from flintmq.programs.cli.exits import CommandError, ExitCode, finished, warn
from flintmq.remoting.client.blocking import shared_loop

TROUBLED_BROKER: Final = Path(__file__).with_name("client_soak") / "troubled_broker.py"
MARGIN_S: Final = 2.0
"""Seconds by which a client's call may exceed its time limit, because the machine does other work, too."""
GIVE_UP_S: Final = 10.0
"""Seconds that the soak test still waits for a call that has exceeded its time limit, before it abandons the call."""
LIFE_S: Final = (2.0, 12.0)
"""Shortest and longest time that a client is used before it is closed, in seconds."""
CALLERS: Final = 3
"""Number of calls of one client that are under way at the same time."""
CANCELLED_SHARE: Final = 0.15
CHECK_TIMEOUT_S: Final = 90.0
"""Longest time in seconds, without faults of the broker, until a group has received its messages and a broker knows the
outcomes of all transactions."""
LONGEST: Final = 20
"""Number of calls that the report lists: the calls that took longest."""
WAYS: Final = ("plain", "batch", "orderly", "iterated", "handler-a", "handler-b")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test that the command line describes. Returns the exit code."""
    parser = argparse.ArgumentParser("soak_client.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, metavar="M", help="length of the soak")
    parser.add_argument("--clients", type=int, default=8, metavar="N", help="clients open at a time")
    parser.add_argument("--round-seconds", type=float, default=30.0, metavar="S", help="time between two checks")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**32), metavar="N", help="seed of the random choices"
    )
    parser.add_argument("--json", action="store_true", help="one object of JSON instead of text")
    words = parser.parse_args(arguments)
    return finished(lambda: asyncio.run(soak(words)))


async def soak(words: argparse.Namespace) -> int:
    """Run rounds of the soak test until its time is over, and print the report. Returns the exit code."""
    observed = Observed()
    log = logging.getLogger("flintmq")
    log.addHandler(LogCounter(observed))
    log.propagate = False
    watch_loop(asyncio.get_running_loop(), "loop", observed)
    shared_loop().start(_watched_from_inside(observed)).result(10)
    rounds: list[dict[str, Any]] = []
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="flintmq-soak-") as folder:
        async with troubled_broker(Path(folder), words.seed) as broker:
            until_s = time.monotonic() + words.minutes * 60
            while time.monotonic() < until_s:
                found = Round(words, observed, broker, Path(folder), len(rounds))
                said = await found.run(min(words.round_seconds, max(1.0, until_s - time.monotonic())))
                try:
                    measured.append(await measure(observed))
                except TimeoutError:
                    # A measurement that times out ends the soak test. The timeout is reported with the earlier faults.
                    break
                rounds.append({**said, **attrs.asdict(measured[-1])})
                warn(f"round {len(rounds)}: {json.dumps(rounds[-1])}, faults: {observed.faults.total()}")
            troubles = await broker.calm()
    check_flat(measured, observed)
    report(words, observed, rounds, troubles)
    return ExitCode.FAILED if observed.faults else ExitCode.OK


async def _watched_from_inside(observed: Observed) -> None:
    watch_loop(asyncio.get_running_loop(), "shared loop", observed)


def report(
    words: argparse.Namespace, observed: Observed, rounds: Sequence[dict[str, Any]], troubles: dict[str, int]
) -> None:
    """Print the report of the soak test: calls, faults and measurements."""
    found = {
        "python": platform.python_version(),
        "seed": words.seed,
        "clients": words.clients,
        "calls": {name: attrs.asdict(figures) for name, figures in sorted(observed.calls.items())},
        "troubles": troubles,
        "log_lines": dict(observed.log_lines.most_common(20)),
        "rounds": list(rounds),
        "faults": [{"what": what, "times": n, "first": observed.details[what]} for what, n in observed.faults.items()],
    }
    if words.json:
        print(json.dumps(found))
        return
    print(f"Python {found['python']}, seed {words.seed}, {len(rounds)} rounds, {observed.total} calls; {troubles}")
    for name, figures in sorted(observed.calls.items(), key=lambda item: -item[1].longest_s)[:LONGEST]:
        print(f"  {name}: {figures.count}, failed {figures.failed}, longest {figures.longest_s:.2f} s")
    for what, times in observed.faults.items():
        print(f"FAULT, {times} times: {what}\n{observed.details[what]}")
    print("nothing was found" if not observed.faults else f"{len(observed.faults)} kinds of faults")


# --- the process that runs a broker, and injects faults into the broker ---


class Broker:
    """The process of the broker that causes faults, controlled through its standard input and output."""

    def __init__(self, process: asyncio.subprocess.Process, name_server: str) -> None:
        self._process = process
        self.name_server = name_server

    def trouble(self) -> None:
        """Make the process of the troubled broker begin to cause faults."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"trouble\n")

    async def calm(self) -> dict[str, int]:
        """Make the process of the troubled broker stop causing faults; return how often each kind of fault has happened since
        the start."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"calm\n")
        async with asyncio.timeout(60):
            word, _, counts = (await self._process.stdout.readline()).decode().partition(" ")
        if word != "CALM":
            raise CommandError("the process of the broker with injected faults ended unexpectedly")
        said: dict[str, int] = json.loads(counts)
        return said


@contextlib.asynccontextmanager
async def troubled_broker(folder: Path, seed: int) -> AsyncIterator[Broker]:
    """Run a process with a broker that is killed and paused, and with proxies that disturb its connections, during a ``with``
    block. After the block, wait until the process has ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(TROUBLED_BROKER), str(folder), str(seed), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            ready = (await process.stdout.readline()).decode().split()
        if not ready:
            raise CommandError("the broker of the soak did not start")
        yield Broker(process, ready[1].partition("=")[2])
    finally:
        process.stdin.close()
        await process.wait()


# --- a round of the soak test ---


class Round:
    """One round of the soak test: new topics and groups, clients that use them during faults, and the checks after the faults.
    Used only on the event loop's thread."""

    def __init__(
        self, words: argparse.Namespace, observed: Observed, broker: Broker, folder: Path, number: int
    ) -> None:
        self._observed = observed
        self._broker = broker
        self._folder = folder
        self._clients: int = words.clients
        self._chance = random.Random(f"{words.seed}-{number}")
        self._ledger = Ledger(f"{words.seed}-{number}")
        self._kinds = kinds()
        self._deck: list[Kind] = []

    async def run(self, seconds: float) -> dict[str, Any]:
        """Use clients during faults for ``seconds``, then check the messages without faults. Returns the figures of the
        round."""
        ledger, before = self._ledger, self._observed.total
        async with AdminClient(self._broker.name_server) as admin:
            for topic in (ledger.topic, ledger.transaction_topic):
                await admin.create_topic(topic, queues=4)
            (address,) = (await admin.masters()).values()
        world = World(self._broker.name_server, address, ledger, self._folder)
        self._broker.trouble()
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(self._slot(world, until_s) for _ in range(self._clients)))
        await self._broker.calm()
        ledger.is_over = True
        began_s = time.monotonic()
        stored = await self._check_stored(world)
        await asyncio.gather(*(self._check_delivered(way, world) for way in WAYS))
        return {
            "calls": self._observed.total - before,
            "acknowledged": len(ledger.acknowledged),
            "committed": len(ledger.committed()),
            "stored": stored,
            "delivered": {group: len(words) for group, words in sorted(ledger.delivered.items())},
            "check_s": round(time.monotonic() - began_s, 1),
        }

    async def _slot(self, world: World, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            await self._live(self._deal(), world, min(left_s, self._chance.uniform(*LIFE_S)))

    def _deal(self) -> Kind:
        """Return the next kind of client to use. Each kind of client is used once before any kind is used again. Producers come
        first, because a round without sent messages checks nothing.
        """
        if not self._deck:
            self._deck = list(self._kinds)
            self._chance.shuffle(self._deck)
            self._deck.sort(key=lambda kind: kind.name.startswith("Producer"))
        return self._deck.pop()

    async def _live(self, kind: Kind, world: World, seconds: float) -> None:
        """Make a client, let several tasks call it for ``seconds``, and close the client while these tasks still call it."""
        client = kind.make(world, self._chance)
        await self._perform(kind, Call("start", client.start, LONG_S))
        if kind.name.startswith("Consumer,"):
            await self._perform(kind, Call("subscribe", lambda: client.subscribe(world.ledger.topic), LONG_S))
        closing = asyncio.Event()

        async def call() -> None:
            while not closing.is_set():
                is_cancelled = not kind.is_waiting and self._chance.random() < CANCELLED_SHARE
                await self._perform(
                    kind,
                    kind.call(client, world, self._chance),
                    cancel_after_s=self._chance.uniform(0, 0.5) if is_cancelled else None,
                )
                await asyncio.sleep(self._chance.uniform(0, 0.05))

        callers = [asyncio.create_task(call(), name=f"soak-caller of {kind.name}") for _ in range(CALLERS)]
        await asyncio.sleep(seconds)
        closing.set()
        await self._perform(kind, Call("close", client.close, CLOSE_S))
        await asyncio.gather(*callers)

    async def _perform(self, kind: Kind, call: Call, *, cancel_after_s: float | None = None) -> None:
        """Make one call of a client, and check that it ends in time and raises only exceptions that it may raise."""
        name = f"{kind.name}.{call.name}"
        begin_s = time.monotonic()
        work = in_thread(call.work) if kind.is_waiting else awaited(call.work)
        task = asyncio.create_task(work, name=f"soak-call of {name}")
        bound_s = call.bound_s
        if cancel_after_s is not None:
            await asyncio.wait({task}, timeout=cancel_after_s)
            task.cancel()
            bound_s = cancel_after_s + 0.5
        await asyncio.wait({task}, timeout=bound_s + MARGIN_S - (time.monotonic() - begin_s))
        if not task.done():
            stack = "\n".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in task.get_stack())
            said = "after it was cancelled" if cancel_after_s is not None else f"after {call.bound_s:g} s"
            self._observed.fault(f"{name} has not ended {said}", stack + all_stacks(kind))
            await asyncio.wait({task}, timeout=GIVE_UP_S)
        elapsed_s = time.monotonic() - begin_s
        if not task.done():
            self._observed.fault(f"{name} never ends")
            task.cancel()
            return
        if task.cancelled():
            self._observed.ended(name, elapsed_s, cancelled=True)
            if cancel_after_s is None:
                self._observed.fault(f"{name} raised CancelledError, but nobody cancelled it")
            return
        failure = task.exception()
        self._observed.ended(name, elapsed_s, failed=failure is not None)
        if failure is None:
            call.done(task.result())
        elif not isinstance(failure, (FlintError, *call.expected)):
            text = "".join(traceback.format_exception(failure))
            self._observed.fault(f"{name} raised {type(failure).__name__}: {failure}", text)

    # --- checks at the end of a round ---

    async def _check_stored(self, world: World) -> int:
        """Check that the broker has stored each acknowledged message and each committed transaction of the round. Returns the
        number of stored messages."""
        ledger = self._ledger
        async with (
            PullConsumer(f"soak-check-{ledger.name}", world.name_server) as reader,
            TransactionProducer(
                transaction_group(ledger), world.name_server, check=ledger.check_later, heartbeat_interval_s=1.0
            ) as asked,
        ):
            await asked.queues(ledger.transaction_topic)
            stored = await self._read(reader, ledger.topic)
            if lost := ledger.acknowledged - stored:
                self._observed.fault("messages were acknowledged and are lost", f"{len(lost)}: {sorted(lost)[:5]}")
            until_s = time.monotonic() + CHECK_TIMEOUT_S
            while lost := ledger.committed() - (in_transactions := await self._read(reader, ledger.transaction_topic)):
                if time.monotonic() > until_s:
                    self._observed.fault("transactions were committed and are lost", f"{len(lost)}: {sorted(lost)[:5]}")
                    break
                await asyncio.sleep(0.5)
            if wrong := in_transactions & ledger.rolled_back():
                self._observed.fault(
                    "transactions were rolled back and are there", f"{len(wrong)}: {sorted(wrong)[:5]}"
                )
        return len(stored) + len(in_transactions)

    async def _read(self, reader: PullConsumer, topic: str) -> set[bytes]:
        """Return the first word of the body of each message of a topic; the word identifies the message."""
        found: set[bytes] = set()
        for queue in await reader.queues(topic):
            at, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while at < end:
                result = await reader.pull(queue, at, max_messages=32)
                found.update(map(word_of, result.messages))
                at = result.next_begin_queue_offset
        return found

    async def _check_delivered(self, way: str, world: World) -> None:
        """Let an additional member of a group consume the group's remaining messages, and check that the group received every
        acknowledged message."""
        ledger, group = self._ledger, group_of(way, self._ledger)
        if group not in ledger.delivered:
            # No client of this round consumed in this way (for example in batches), so there is nothing to check.
            return

        async def note(message: MessageExt) -> None:
            ledger.heard(group, [message])

        until_s = time.monotonic() + CHECK_TIMEOUT_S
        settings = settings_of(way, world)
        async with Consumer(group, world.name_server, note, settings=settings, heartbeat_interval_s=1.0) as last:
            await last.subscribe(ledger.topic)
            while lacks := ledger.acknowledged - ledger.delivered[group]:
                if time.monotonic() > until_s:
                    self._observed.fault(f"group soak-{way} was not given all", f"{len(lacks)}: {sorted(lacks)[:5]}")
                    return
                await asyncio.sleep(0.2)


async def awaited(work: Callable[[], Any]) -> Any:
    """Call a function of an asynchronous client, and return its result. The function may be a plain function or a coroutine
    function."""
    result = work()
    return await result if hasattr(result, "__await__") else result


async def in_thread(work: Callable[[], Any]) -> Any:
    """Call a function in a new thread, and wait for its result without blocking the event loop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, failure: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if failure is None else future.set_exception(failure)

    def run() -> None:
        try:
            result = work()
        except BaseException as failure:
            loop.call_soon_threadsafe(settle, None, failure)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run, name="soak-call", daemon=True).start()
    return await future


def all_stacks(kind: Kind) -> str:
    """Return the stacks of all threads that run calls of synchronous clients, for the report of a call that hangs. The text is
    empty for an asynchronous client."""
    if not kind.is_waiting:
        return ""
    frames = sys._current_frames()
    return "".join(
        f"\n{one.name}\n{''.join(traceback.format_stack(frames[one.ident])[-6:])}"
        for one in threading.enumerate()
        if one.ident in frames and one.name == "soak-call"
    )


if __name__ == "__main__":
    sys.exit(main())
