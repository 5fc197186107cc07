"""Any public call of the synchronous clients from any thread, while threads are switched at every chance."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from flintmq.client import sync
from flintmq.remoting.client.blocking import shared_loop

THREADS = 4
SECONDS = 1.5
"""How long each thread makes calls."""
CALL_S_MAX = 30.0
FROM_FIRST = sync.ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", concurrency=2)


@pytest.fixture
def forced_switches() -> Iterator[None]:
    """Have the interpreter switch threads after nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Program:
    """Clients that some threads share, and what each thread does with them: calls in an order that a seed decides."""

    def __init__(self, name_server: str, topic: str, stack: ExitStack) -> None:
        self.name_server = name_server
        self.topic = topic
        self.sent: list[tuple[sync.MessageQueue, int, bytes]] = []
        self.errors: list[str] = []
        self.consumed: set[bytes] = set()
        self.raising = [SystemExit, KeyboardInterrupt, StopIteration, ValueError]

        def listen(message: sync.MessageExt) -> None:
            if message.body.endswith(b"7") and message.reconsume_times == 0 and self.raising:
                raise self.raising.pop()
            self.consumed.add(bytes(message.body))

        self.producer = stack.enter_context(sync.Producer("p", name_server))
        self.lingering = stack.enter_context(sync.Producer("p", name_server, linger_ms=1))
        self.pulling = stack.enter_context(sync.PullConsumer("pull", name_server))
        self.pulling.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        self.iterated = stack.enter_context(sync.Consumer("loops", name_server, settings=FROM_FIRST))
        self.iterated.subscribe(topic)
        self.admin = stack.enter_context(sync.AdminClient(name_server))
        self.consumer = stack.enter_context(sync.Consumer("threads", name_server, listen, settings=FROM_FIRST))
        self.consumer.subscribe(topic)

    def send(self, choices: random.Random) -> None:
        body = b"%d" % choices.getrandbits(40)
        producer = choices.choice([self.producer, self.lingering])
        result = producer.send(sync.Message(self.topic, body), sharding_key=choices.choice([None, "a"]))
        self.sent.append((result.queue, result.queue_offset, body))

    def send_many(self, choices: random.Random) -> None:
        bodies = [b"%d" % choices.getrandbits(40) for _ in range(3)]
        result = self.producer.send_batch([sync.Message(self.topic, body) for body in bodies])
        self.sent += [(result.queue, result.queue_offset + at, body) for at, body in enumerate(bodies)]

    def poll(self, choices: random.Random) -> None:
        self.pulling.poll(choices.choice([0, 5]), max_messages=3)

    def seek(self, choices: random.Random) -> None:
        queue = choices.choice(list(self.pulling.positions))
        self.pulling.seek(queue, self.pulling.min_offset(queue))

    def assign(self, choices: random.Random) -> None:
        self.pulling.assign(self.topic, consume_from="CONSUME_FROM_FIRST_OFFSET")

    def commit(self, choices: random.Random) -> None:
        choices.choice([self.pulling, self.consumer, self.iterated]).commit()

    def iterate(self, choices: random.Random) -> None:
        for number, _ in enumerate(self.iterated.messages(timeout_ms=20)):
            if number == 3:
                break

    def look(self, choices: random.Random) -> None:
        assert self.topic in self.consumer.subscriptions
        assert self.consumer.is_started
        self.admin.topic_stats(self.topic)
        self.producer.queues(self.topic)

    def pause(self, choices: random.Random) -> None:
        self.consumer.suspend()
        self.consumer.resume()
        self.consumer.rebalance()

    def come_and_go(self, choices: random.Random) -> None:
        """A client of this thread's own begins and ends beside the others."""
        with sync.PullConsumer("mine", self.name_server) as mine:
            mine.queues(self.topic)

    def work(self, seed: int, ends_s: float) -> None:
        """Make calls until a time; keep what should not have been raised."""
        choices = random.Random(seed)
        calls: list[Callable[[random.Random], None]] = [
            self.send, self.send, self.send_many, self.poll, self.seek, self.assign, self.commit, self.iterate, self.look,
            self.pause, self.come_and_go,
        ]  # fmt: skip
        while time.monotonic() < ends_s:
            call = choices.choice(calls)
            begun_s = time.monotonic()
            try:
                call(choices)
            except BaseException as failure:
                self.errors.append(f"{call.__name__} raised {failure!r}")
            if time.monotonic() - begun_s > CALL_S_MAX:
                self.errors.append(f"{call.__name__} took {time.monotonic() - begun_s:.1f} s")


@pytest.mark.slow
@pytest.mark.usefixtures("forced_switches")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_synchronous_client_calls_from_many_threads_neither_fail_nor_hang(
    name_server: str, create_topic: Callable[[str, int], None], seed: int
) -> None:
    """No call fails or hangs; all that was acknowledged is there; listeners that raise anything lose nothing."""
    topic = f"Threads{seed}"
    create_topic(topic, 3)
    with ExitStack() as stack:
        program = Program(name_server, topic, stack)
        ends_s = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=program.work, args=(seed * 100 + number, ends_s), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS + 2 * CALL_S_MAX)
        assert not any(thread.is_alive() for thread in threads), "a call hangs"
        assert not program.errors
        assert program.sent
        with sync.PullConsumer("check", name_server) as checking:
            for queue, queue_offset, body in program.sent:
                found = checking.pull(queue, queue_offset, max_messages=1)
                assert found.messages[0].body == body
        wanted = {body for _, _, body in program.sent}
        give_up_s = time.monotonic() + CALL_S_MAX
        while not wanted <= program.consumed and time.monotonic() < give_up_s:
            threading.Event().wait(0.05)
        assert wanted <= program.consumed, f"never consumed: {len(wanted - program.consumed)} of {len(wanted)}"
    assert shared_loop().run(names()) == []


async def names() -> list[str]:
    """Return the tasks of clients that are left on the loop of all."""
    current = asyncio.current_task()
    return sorted(task.get_name() for task in asyncio.all_tasks() if task is not current)
