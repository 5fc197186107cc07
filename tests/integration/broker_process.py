"""A broker in a process of its own, to be killed; and senders that remember what was promised to them."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

from bare_wire import SMALL, Wire, send_fields, sent

import flintmq
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.remoting.wire.codes import RequestCode

START_S = 60.0
_STARTED: list[BrokerProcess] = []
_SENDERS: list[Sender] = []


def end_what_is_left() -> None:
    """Kills the processes and ends the senders that a failed test left behind, so that it fails no other test."""
    for broker in _STARTED:
        if broker.process.poll() is None:
            broker.process.kill()
        broker.wait()
    for sender in _SENDERS:
        sender.stopping.set()
        sender.join(START_S)
    _STARTED.clear()
    _SENDERS.clear()


class BrokerProcess:
    """``python -m flintmq broker`` on a store. ``address`` is set once it serves."""

    def __init__(self, store: Path, *overrides: str, shared: bool = False, role: str = "broker") -> None:
        """``shared`` by several tests: then it lives on when one of them ends. ``role`` may be ``namesrv``."""
        self.role = role
        checkout = store.parent / "checkout"  # the repository is the package, whatever its folder is called
        checkout.mkdir(exist_ok=True)
        link = checkout / "flintmq"
        if not link.is_symlink():
            link.symlink_to(Path(flintmq.__file__).parent)
        self.store = store
        self.log = store.parent / "broker.log"
        command = [sys.executable, "-m", "flintmq", role, "--log-level", "warning"]
        for setting in (*SMALL, f"store.path={store}", *overrides):
            command += ["--set", setting]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLINTMQ", "NAMESRV"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=store.parent,
                env=environment | {"PYTHONPATH": str(checkout)},
            )
        self.address = ""
        if not shared:
            _STARTED.append(self)

    def wait_ready(self) -> None:
        """Reads the READY line. Raises AssertionError with the log when there is none."""
        assert self.process.stdout is not None
        timer = threading.Timer(START_S, self.process.kill)
        timer.start()
        line = self.process.stdout.readline().decode()
        timer.cancel()
        match = re.search(rf"READY .*\b{self.role}=(\S+)", line)
        assert match, f"no READY but {line!r}; exit {self.process.poll()}\n{self.log.read_text()[-3000:]}"
        self.address = match.group(1)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal and waits for the end; returns the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()


class Promises:
    """What the broker acknowledged, and what it showed to a reader: (queue, offset) to body."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.refused: list[tuple[int, str]] = []
        self.verified: dict[int, list[bytes]] = {}
        """Per queue what the last check found, from offset 0 on."""

    def promise(self, queue_id: int, offset: int, body: bytes) -> None:
        with self.lock:
            assert self.acknowledged.setdefault((queue_id, offset), body) == body, (queue_id, offset)

    def check(self, wire: Wire, topic: str, queues: int = 4, *, may_lose: bool = False) -> int:
        """Everything promised is at its place, offsets have no hole, nothing comes twice; returns how many there are."""
        total = 0
        for queue_id in range(queues):
            known = self.verified.get(queue_id, [])
            found: list[bytes] = [] if may_lose else known[: max(0, len(known) - 100)]
            while True:
                answer = wire.pull(topic, len(found), queue_id=queue_id, maxMsgNums=32)
                if answer.code != 0:
                    assert answer.code in (17, 19, 20, 21), answer
                    assert answer.code not in (20, 21) or answer.max_offset in (len(found), -1, 0), answer
                    break
                for record in answer.records:
                    assert record.queue_offset == len(found), f"queue {queue_id}: {record.queue_offset} at {len(found)}"
                    assert record.queue_id == queue_id
                    found.append(record.body)
            assert len(set(found)) == len(found), f"queue {queue_id} has a message twice"
            if not may_lose:
                assert found[: len(known)] == known, f"queue {queue_id} is not what it was"
            self.verified[queue_id] = found
            total += len(found)
        if may_lose:
            self.acknowledged = {}
        for (queue_id, offset), body in self.acknowledged.items():
            found = self.verified.get(queue_id, [])
            assert offset < len(found), f"acknowledged and lost: queue {queue_id} offset {offset} of {len(found)}"
            assert found[offset] == body, f"acknowledged and another one: queue {queue_id} offset {offset}"
        return total


class Sender(threading.Thread):
    """Sends over one connection, several at a time, until the connection ends or it is told to stop."""

    def __init__(
        self, address: str, topic: str, promises: Promises, chance: random.Random, *, window: int = 16
    ) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(address)
        self._topic = topic
        self._promises = promises
        self._chance = chance
        self._window = window
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.error: BaseException | None = None
        _SENDERS.append(self)

    def run(self) -> None:
        try:
            self._send()
        except (EOFError, ConnectionError, TimeoutError):
            pass  # the broker is gone
        except BaseException as error:
            self.error = error
        finally:
            self._wire.close()

    def _post(self, queue_id: int, count: int) -> tuple[int, list[bytes]]:
        """Sends a message, or several as a batch."""
        bodies = [self._chance.randbytes(12) * self._chance.randrange(1, 200) for _ in range(count)]
        if count == 1:
            return self._wire.post_send(self._topic, bodies[0], queue_id=queue_id), bodies
        data = encode_batch(BatchItem(0, body, b"") for body in bodies)
        fields = send_fields(self._topic, queue_id, batch=True)
        return self._wire.post(RequestCode.SEND_BATCH_MESSAGE, fields, data), bodies

    def _send(self) -> None:
        waiting: deque[tuple[int, list[bytes]]] = deque()
        while not self.stopping.is_set() or waiting:
            while len(waiting) < self._window and not self.stopping.is_set():
                waiting.append(self._post(self._chance.randrange(4), 3 if self._chance.random() < 0.1 else 1))
            opaque, bodies = waiting.popleft()
            answer = sent(self._wire.answer(opaque))
            if answer.code == 0:
                for number, body in enumerate(bodies):
                    self._promises.promise(answer.queue_id, answer.queue_offset + number, body)
                self.acknowledged += len(bodies)
            elif answer.code != 10:  # FLUSH_DISK_TIMEOUT promises nothing
                self._promises.refused.append((answer.code, answer.remark))


def load(
    address: str, topic: str, promises: Promises, chance: random.Random, senders: int = 4, **options: Any
) -> list[Sender]:
    """Starts senders."""
    made = [Sender(address, topic, promises, random.Random(chance.random()), **options) for _ in range(senders)]
    for one in made:
        one.start()
    return made


def ended(senders: list[Sender]) -> int:
    """Waits for senders and raises what went wrong in one; returns how much was acknowledged."""
    for one in senders:
        one.join(START_S)
        assert not one.is_alive()
        if one.error is not None:
            raise one.error
    return sum(one.acknowledged for one in senders)
