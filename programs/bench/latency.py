"""Measures the latency from the sending of a message to its arrival at a consumer, at a given rate of messages.

One connection sends messages at fixed times, whether or not answers arrive. Another connection has a pull request waiting at
every queue. Each message body begins with the time of sending, from which the latency is computed. Messages of earlier runs are
recognized by their time of sending, and ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from typing import Any, Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.bench.figures import percentile_ms
from flintmq.programs.bench.frames import OPAQUE_BASE, PullFrame, SendFrame, code_of, field_of, slot_of
from flintmq.programs.bench.load import FOUND, LoadConnection, Tally
from flintmq.programs.bench.machine import CpuUse, machine_facts
from flintmq.programs.bench.run import BenchSettings, bench_route, connect, queues_by_broker
from flintmq.remoting.client.access import Access
from flintmq.remoting.client.admin import AdminClient

MARK: Final = b"FLT"
STAMP_BYTES: Final = len(MARK) + 16
HOLD_MS: Final = 5_000
TICK_S: Final = 0.001
"""Minimum sleep of the sender, in seconds. A shorter sleep would be a busy loop, because event loops have a resolution of a
millisecond. Above 1,000 messages/s the sender therefore sends some messages together."""
DRAIN_S: Final = 1.0
"""Maximum time, in seconds, that a run waits for its last messages."""


@attrs.frozen
class LatencyResult:
    """Latencies at a given rate of messages, in ms: from sending a message to its arrival at a consumer, and from sending a
    message to the broker's answer. Also has the numbers of messages that arrived, were missing or were refused."""

    bench: str
    target: str
    topic: str
    wanted_rate: float
    rate: float
    """Number of messages that were sent per second."""
    messages: int
    """Number of messages that arrived at the consumer."""
    missing: int
    """Number of sent messages that did not arrive in time."""
    errors: int
    """Number of sends that the broker refused."""
    p50_ms: float
    """Median time in ms from writing a message's send request to reading the pull answer with the message."""
    p99_ms: float
    p999_ms: float
    max_ms: float
    send_p50_ms: float
    """Median time in ms from writing a send request to reading its answer."""
    send_p99_ms: float
    late_p99_ms: float
    """Delay in ms between the planned and the real time of a send (99th percentile). The client causes this delay, not the
    broker."""
    client_cpu_us: float
    broker_cpu_us: float | None
    size_bytes: int

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self) | {"machine": machine_facts()}


class _Stamped(LoadConnection):
    """A connection of the benchmark that sends messages with timestamps. For the loop thread only."""

    def __init__(self, tally: Tally, queues: list[MessageQueue], size_bytes: int, access: Access) -> None:
        super().__init__(tally)
        self._access = access
        filler = self._filler = b"." * max(0, size_bytes - STAMP_BYTES)
        body = MARK + b"0" * 16 + filler
        self._frames = [SendFrame(slot, queue, body, 1, access) for slot, queue in enumerate(queues)]
        self._stamp_at = [bytes(frame.next(b"0" * 13, 0)).rindex(MARK) + len(MARK) for frame in self._frames]
        self._sent_ns: dict[int, int] = {}
        self.sent = 0

    def send(self, count: int) -> None:
        """Send some messages now, each to the next queue and with a new opaque."""
        born_ms = b"%d" % (time.time_ns() // 1_000_000)
        out: list[bytes | bytearray] = []
        for _ in range(count):
            slot = self.sent % len(self._frames)
            opaque = OPAQUE_BASE + self.sent % 1_000_000_000
            now_ns = time.perf_counter_ns()
            stamp = b"%016x" % now_ns
            if self._access.signer is not None:
                frame = self._frames[slot].signed(born_ms, self.sent, MARK + stamp + self._filler, opaque)
            else:
                frame = bytearray(self._frames[slot].next(born_ms, self.sent))
                at = self._stamp_at[slot]
                frame[at : at + 16] = stamp
                frame = frame.replace(b'"opaque":%d' % (OPAQUE_BASE + slot), b'"opaque":%d' % opaque, 1)
            self._sent_ns[self.sent % 1_000_000_000] = now_ns
            self.sent += 1
            out.append(frame)
        self.write(out)

    def answers(self, frames: list[bytes]) -> None:
        now_ns = time.perf_counter_ns()
        for frame in frames:
            sent_ns = self._sent_ns.pop(slot_of(frame), None)
            if frame.startswith(FOUND, 4) and sent_ns is not None:
                self.tally.add(1, (now_ns - sent_ns) / 1e9)
            else:
                self.tally.error(code_of(frame))


class _Listener(LoadConnection):
    """A connection of the benchmark that holds a pull request at every queue. For the loop thread only."""

    def __init__(
        self,
        tally: Tally,
        queues: list[MessageQueue],
        begin_queue_offsets: list[int],
        since_ns: int,
        access: Access,
    ) -> None:
        super().__init__(tally)
        self._frames = [PullFrame(slot, queue, 32, access, HOLD_MS) for slot, queue in enumerate(queues)]
        self._next = begin_queue_offsets
        self._since_ns = since_ns
        self.latencies_s = array("d")
        self.received = 0

    def begin(self) -> None:
        """Send the first pull request of every queue."""
        self.write([frame.next(at) for frame, at in zip(self._frames, self._next, strict=True)])

    def answers(self, frames: list[bytes]) -> None:
        now_ns = time.perf_counter_ns()
        out: list[bytes | bytearray] = []
        for frame in frames:
            slot = slot_of(frame)
            if b'"nextBeginOffset"' in frame:
                self._next[slot] = field_of(frame, b"nextBeginOffset")
            if frame.startswith(FOUND, 4):
                self._take(frame, now_ns)
            out.append(self._frames[slot].next(self._next[slot]))
        if not self.stopped:
            self.write(out)

    def _take(self, frame: bytes, now_ns: int) -> None:
        at = frame.find(MARK)
        while at >= 0:
            text = frame[at + len(MARK) : at + STAMP_BYTES]
            try:
                sent_ns = int(text, 16)
            except ValueError:
                sent_ns = 0
            if self._since_ns <= sent_ns <= now_ns:
                self.received += 1
                if self.tally.counting:
                    self.latencies_s.append((now_ns - sent_ns) / 1e9)
            at = frame.find(MARK, at + STAMP_BYTES)


async def run_latency(settings: BenchSettings, rate: float, name_server: str, pid: int | None) -> LatencyResult:
    """Measure the latency of one broker; ``settings`` contain topic, seconds, warm-up, size and queues.

    Raises:
        RemotingError: no broker answers, or a connection was lost.
        RefusedError: the topic cannot be created, or has no queues.
    """
    access = settings.access
    async with AdminClient(name_server, **access.options()) as admin:
        route = await bench_route(admin, settings)
        broker_name, queues = next(iter(queues_by_broker(route.read_queues).items()))
        begin = [await admin.max_offset(queue) for queue in queues]
    tally = Tally()
    listener = _Listener(tally, queues, begin, time.perf_counter_ns(), access)
    sender = _Stamped(tally, queues, settings.size_bytes, access)
    async with contextlib.AsyncExitStack() as stack:
        for connection in (listener, sender):
            await connect(connection, route.address(broker_name), access)
            stack.push_async_callback(connection.close)
        listener.begin()
        late_s = array("d")
        await _paced(sender, tally, rate, settings.warmup_s, array("d"))
        tally.counting = True
        sent_before, cpu, begin_s = sender.sent, CpuUse(pid), time.perf_counter()
        await _paced(sender, tally, rate, settings.seconds, late_s)
        seconds = time.perf_counter() - begin_s
        sent = sender.sent - sent_before
        client_cpu_us, broker_cpu_us = cpu.per_message_us(sent)
        until_s = time.perf_counter() + DRAIN_S
        while listener.received < sender.sent and time.perf_counter() < until_s and tally.failure is None:  # noqa: ASYNC110
            await asyncio.sleep(TICK_S)
        if tally.failure is not None:
            raise tally.failure
        found = array("d", sorted(listener.latencies_s))
        answers = array("d", sorted(tally.latencies_s))
        late = array("d", sorted(late_s))
        return LatencyResult(
            bench="latency",
            target=name_server,
            topic=settings.topic,
            wanted_rate=rate,
            rate=round(sent / seconds, 1),
            messages=len(found),
            missing=max(0, sender.sent - listener.received),
            errors=tally.errors.total(),
            p50_ms=percentile_ms(found, 0.5),
            p99_ms=percentile_ms(found, 0.99),
            p999_ms=percentile_ms(found, 0.999),
            max_ms=percentile_ms(found, 1.0),
            send_p50_ms=percentile_ms(answers, 0.5),
            send_p99_ms=percentile_ms(answers, 0.99),
            late_p99_ms=percentile_ms(late, 0.99),
            client_cpu_us=client_cpu_us,
            broker_cpu_us=broker_cpu_us,
            size_bytes=max(STAMP_BYTES, settings.size_bytes),
        )


async def _paced(sender: _Stamped, tally: Tally, rate: float, seconds: float, late_s: array[float]) -> None:
    """Send by the clock: message n is due at n / rate, regardless of the answers to earlier messages."""
    begin_s = time.perf_counter()
    done = 0
    while tally.failure is None:
        now_s = time.perf_counter() - begin_s
        due = min(int(now_s * rate) + 1, int(seconds * rate))
        if due > done:
            late_s.append(now_s - done / rate)
            sender.send(due - done)
            done = due
        if now_s >= seconds:
            return
        await asyncio.sleep(max(TICK_S, min(done / rate, seconds) - (time.perf_counter() - begin_s)))
