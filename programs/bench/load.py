"""Connections that load a broker in a benchmark. Each connection keeps a fixed number of requests in flight, and sends the next
request when an answer arrives."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from typing import cast

from flintmq.core.errors import FrameError, RemotingError
from flintmq.programs.bench.frames import PullFrame, SendFrame, code_of, field_of, slot_of
from flintmq.remoting.wire.frame import FrameDecoder

FOUND = b'{"code":0,'


class Tally:
    """The counts of requests of all connections of a benchmark run. For the loop thread only."""

    def __init__(self) -> None:
        self.counting = False
        """Whether requests are counted; False during the warm-up."""
        self.messages = 0
        self.requests = 0
        self.latencies_s = array("d")
        self.errors: Counter[int] = Counter()
        """Number of refused requests, keyed by the response code."""
        self.limit: int | None = None
        """Number of messages and refused requests after which the run ends; None if the number is not limited."""
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None

    def add(self, messages: int, latency_s: float) -> None:
        """Count a successful request of the benchmark."""
        if self.counting:
            self.messages += messages
            self.requests += 1
            self.latencies_s.append(latency_s)
            if self.limit is not None and self.messages >= self.limit:
                self.ended.set()

    def error(self, code: int) -> None:
        """Count a request of the benchmark that the broker has refused."""
        if self.counting:
            self.errors[code] += 1
            if self.limit is not None and self.messages + self.errors.total() >= self.limit:
                self.ended.set()

    def fail(self, error: BaseException) -> None:
        """End the benchmark's run with an error, because a connection is lost or nothing can be sent."""
        self.failure = self.failure or error
        self.ended.set()


class LoadConnection(asyncio.Protocol):
    """A benchmark's connection to a broker, which decodes answers and reports when the connection is lost."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.stopped = False
        self.lost = asyncio.Event()
        """Event that is set when the connection to the broker is lost or closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost.set()
        if not self.stopped:
            self.tally.fail(RemotingError(f"the connection was lost: {exc or 'closed by the broker'}"))

    def write(self, frames: list[bytes | bytearray]) -> None:
        """Write encoded requests to the connection in one call."""
        if self._transport is not None and frames:
            self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        try:
            self.answers(self._decoder.feed(data))
        except (FrameError, ValueError) as error:
            self.tally.fail(RemotingError(f"an answer that is none: {error}"))
            self.stop()

    def answers(self, frames: list[bytes]) -> None:
        """Handle a broker's answers, and send the requests that follow the answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close the connection to the broker at once; buffered data is not sent."""
        self.stopped = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close the connection to the broker, and wait until the connection is closed."""
        self.stop()
        await self.lost.wait()


class WindowConnection(LoadConnection):
    """A benchmark's connection with a fixed number of slots, each with one request in flight."""

    def __init__(self, tally: Tally, slots: int) -> None:
        super().__init__(tally)
        self._sent_at_s = [0.0] * slots
        self.born_ms = b""

    def begin(self) -> None:
        """Start the load: send as many requests at once as the connection always has in flight. Each answer is later followed
        by the next request."""
        self._sent_at_s = [time.perf_counter()] * len(self._sent_at_s)
        self.born_ms = b"%d" % (time.time_ns() // 1_000_000)
        self.write([self.next(slot) for slot in range(len(self._sent_at_s))])

    def answers(self, frames: list[bytes]) -> None:
        now_s = time.perf_counter()
        self.born_ms = b"%d" % (time.time_ns() // 1_000_000)
        out: list[bytes | bytearray] = []
        for frame in frames:
            slot = slot_of(frame)
            self.take(slot, frame, now_s - self._sent_at_s[slot])
            self._sent_at_s[slot] = now_s
            out.append(self.next(slot))
        if not self.stopped and not self.tally.ended.is_set():
            self.write(out)

    def take(self, slot: int, frame: bytes, latency_s: float) -> None:
        """Count an answer and its latency. Each slot of the connection has one request in flight at a time.

        Args:
            slot: the number of the slot whose request was answered.
            frame: the encoded answer.
            latency_s: the seconds between the request and the answer.
        """
        raise NotImplementedError

    def next(self, slot: int) -> bytes | bytearray:
        """Return the next request to send after the answer to the request numbered ``slot``. The connection always has a fixed
        number of requests in flight; they are numbered from 0, and each new request gets the number of the request that it
        follows."""
        raise NotImplementedError


class SendConnection(WindowConnection):
    """A connection that sends messages.

    Args:
        tally: the counts of the run.
        frames: one frame per request in flight.
        batch: the number of messages in each request.
    """

    def __init__(self, tally: Tally, frames: list[SendFrame], batch: int) -> None:
        super().__init__(tally, len(frames))
        self._frames = frames
        self._batch = batch
        self._counter = 0

    def take(self, slot: int, frame: bytes, latency_s: float) -> None:
        if frame.startswith(FOUND, 4):
            self.tally.add(self._batch, latency_s)
        else:
            self.tally.error(code_of(frame))

    def next(self, slot: int) -> bytearray:
        counter = self._counter
        self._counter = counter + self._batch
        return self._frames[slot].next(self.born_ms, counter)


class PullConnection(WindowConnection):
    """A connection that pulls several queues, with one pull per queue in flight. After a queue's last message the connection
    continues with the queue's first message.

    Args:
        tally: the counts of the run.
        frames: one frame per queue.
        begin_queue_offsets: the first queue offset of each queue.
    """

    def __init__(self, tally: Tally, frames: list[PullFrame], begin_queue_offsets: list[int]) -> None:
        super().__init__(tally, len(frames))
        self._frames = frames
        self._begin = begin_queue_offsets
        self._next = list(begin_queue_offsets)

    def take(self, slot: int, frame: bytes, latency_s: float) -> None:
        if frame.startswith(FOUND, 4):
            following = field_of(frame, b"nextBeginOffset")
            self.tally.add(following - self._next[slot], latency_s)
            self._next[slot] = following
        else:
            if self._next[slot] == self._begin[slot]:
                self.tally.error(code_of(frame))
            self._next[slot] = self._begin[slot]

    def next(self, slot: int) -> bytes:
        return self._frames[slot].next(self._next[slot])
