"""The connections that make load. Each keeps its window of requests full: an answer's slot sends the next request at once."""

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
    """What all connections of a run have done. Loop thread."""

    def __init__(self) -> None:
        self.counting = False
        """False while warming up: nothing is counted."""
        self.messages = 0
        self.requests = 0
        self.latencies_s = array("d")
        self.errors: Counter[int] = Counter()
        """Response codes other than success."""
        self.limit: int | None = None
        """Messages, or refusals, after which the run ends."""
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None

    def add(self, messages: int, latency_s: float) -> None:
        """Count one request that was answered well."""
        if self.counting:
            self.messages += messages
            self.requests += 1
            self.latencies_s.append(latency_s)
            if self.limit is not None and self.messages >= self.limit:
                self.ended.set()

    def error(self, code: int) -> None:
        """Count one request that was refused."""
        if self.counting:
            self.errors[code] += 1
            if self.limit is not None and self.messages + self.errors.total() >= self.limit:
                self.ended.set()

    def fail(self, error: BaseException) -> None:
        """End the run: a connection is gone, or nothing can be sent."""
        self.failure = self.failure or error
        self.ended.set()


class LoadConnection(asyncio.Protocol):
    """Frames in, and the end."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.stopped = False
        self.lost = asyncio.Event()
        """Set when the connection is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost.set()
        if not self.stopped:
            self.tally.fail(RemotingError(f"the connection was lost: {exc or 'closed by the broker'}"))

    def write(self, frames: list[bytes | bytearray]) -> None:
        """Write frames in one go."""
        if self._transport is not None and frames:
            self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        try:
            self.answers(self._decoder.feed(data))
        except (FrameError, ValueError) as error:
            self.tally.fail(RemotingError(f"an answer that is none: {error}"))
            self.stop()

    def answers(self, frames: list[bytes]) -> None:
        """Take answers and send the requests that follow them."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close the connection; what is buffered is not sent."""
        self.stopped = True
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close the connection and wait until it is gone."""
        self.stop()
        await self.lost.wait()


class WindowConnection(LoadConnection):
    """Has one request of each slot in flight."""

    def __init__(self, tally: Tally, slots: int) -> None:
        super().__init__(tally)
        self._sent_at_s = [0.0] * slots
        self.born_ms = b""

    def begin(self) -> None:
        """Fill the window."""
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
        """Count a slot's answer."""
        raise NotImplementedError

    def next(self, slot: int) -> bytes | bytearray:
        """Return a slot's next request."""
        raise NotImplementedError


class SendConnection(WindowConnection):
    """Sends.

    Args:
        frames: one per request in flight.
        batch: messages in each.
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
    """Pulls several queues, one pull per queue in flight; a queue that is at its end begins again.

    Args:
        frames: one per queue.
        begin_queue_offsets: where each queue begins.
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
