"""What each stage of the hot path costs: ``python tests/benchmarks/hot_path.py [--json] [--messages N]``.

Each stage is called as the broker calls it, with the messages of one read, and its processor time is divided by them. *whole*
is the same read handed to a server's channel: everything from the bytes to the written answers but the socket itself. What the
stages do not add up to is what lies between them. Each figure is the least of several repeats: noise only ever adds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import flintmq
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.kernel.ports.processor import Request
from flintmq.programs.bench.frames import PullFrame, SendFrame
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.request import decode_request
from flintmq.remoting.wire.fast_json import make_send_ok_encoder
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.headers_message import SendMessageRequestHeaderV2

READ: Final = 64
"""Messages in one read: a client with many sends in flight."""
PULL: Final = 32
BATCH: Final = 32
"""Messages of a batch send; a read brings some of them."""
BATCHES: Final = 4
REPEATS: Final = 5
TOPIC: Final = "HotPath"
SETTINGS: Final = ("listen.port=0", "listen.vip=false", "flush.strategy=flush_real_time", "listen.loop=asyncio")


class Sink(asyncio.Transport):
    """A transport that swallows what is written."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 10911)})
        self.written = 0
        self._protocol = protocol
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: Any) -> None:
        self.written += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written += sum(map(len, list_of_data))

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


async def cost_us(work: Callable[[], Awaitable[None] | None], calls: int, messages_each: int) -> float:
    """Processor time per message, the least of several repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        begin_s = time.process_time()
        for _ in range(calls):
            waiting = work()
            if waiting is not None:
                await waiting
        best = min(best, time.process_time() - begin_s)
    return best / calls / messages_each * 1e6


class HotPath:
    """The stages over one running broker."""

    def __init__(self, broker: flintmq.Broker, body_bytes: int) -> None:
        self._broker = broker
        self._state = broker.state
        queue = MessageQueue(broker.config.broker.name, 0, TOPIC)
        self._frames = [SendFrame(slot, queue, b"." * body_bytes, 1) for slot in range(READ)]
        self._batches = [SendFrame(slot, queue, b"." * body_bytes, BATCH) for slot in range(BATCHES)]
        self._pull = PullFrame(0, queue, PULL)
        self._counter = itertools.count()
        self.channel = ServerChannel(broker.server)
        self.sink = Sink(self.channel)

    def read(self) -> bytes:
        """What one read brings: every message with an id of its own."""
        return b"".join(bytes(frame.next(b"1700000000000", next(self._counter))) for frame in self._frames)

    def read_of_batches(self) -> bytes:
        """Likewise, of batches."""
        counters = (next(self._counter) * BATCH for _ in self._batches)
        return b"".join(
            bytes(frame.next(b"1700000000000", at)) for frame, at in zip(self._batches, counters, strict=True)
        )

    def pull(self, queue_offset: int) -> bytes:
        """What one read brings of a consumer: one pull."""
        return bytes(self._pull.next(queue_offset))

    def requests(self, data: bytes) -> list[Request]:
        found = [decode_request(self.channel, frame, keep_ext_fields=False) for frame in FrameDecoder().feed(data)]
        return [one for one in found if isinstance(one, Request)]

    def messages(self, requests: list[Request]) -> list[Any]:
        single = self._state.intake.single
        return [single(one.header(SendMessageRequestHeaderV2), one.body, self.channel, one.version) for one in requests]

    async def measure(self, calls: int) -> dict[str, float]:
        """µs of processor time per message, by stage."""
        state, store = self._state, self._broker.state.store
        data = self.read()
        feed = FrameDecoder().feed
        frames = feed(data)
        requests = self.requests(data)
        found = {
            "frames": await cost_us(lambda: _nothing(feed(data)), calls, READ),
            "headers": await cost_us(
                lambda: _nothing([decode_request(self.channel, one, keep_ext_fields=False) for one in frames]),
                calls,
                READ,
            ),
            "intake": await cost_us(lambda: _nothing(self.messages(requests)), calls, READ),
        }
        prepared = iter([self.messages(self.requests(self.read())) for _ in range(calls * REPEATS)])
        appended: list[RecordBatch] = []
        append = store.commit_log.append

        def one_append() -> None:
            records = [one for one in append(next(prepared)) if isinstance(one, DispatchRequest)]
            appended.append(RecordBatch.of_units(records))

        found["append"] = await cost_us(one_append, calls, READ)
        for name, dispatcher in zip(("queue", "index"), store.reput.dispatchers, strict=False):
            batches = iter(appended)
            dispatch = dispatcher.dispatch
            found[name] = await cost_us(lambda d=dispatch, b=batches: _nothing(d(next(b))), calls, READ)  # type: ignore[misc]
        encode = make_send_ok_encoder(state.config.broker.region, state.config.broker.trace_on, state.store_host_hex)
        found["answer"] = await cost_us(lambda: _nothing([encode(n, 1, n, n) for n in range(READ)]), calls, READ)
        while state.store.dispatch():
            pass
        reads = iter([self.read() for _ in range(calls * REPEATS)])
        found["whole"] = await cost_us(lambda: self._receive(next(reads)), calls, READ)
        found |= await self._whole_batches(calls)
        assert state.store.reader.max_queue_offset(TOPIC, 0) >= calls * REPEATS * READ * 2
        found |= await self._pulls(calls)
        return found

    async def _whole_batches(self, calls: int) -> dict[str, float]:
        calls = -(-calls * READ // (BATCH * BATCHES))
        intake = self._state.intake.batch
        requests = self.requests(self.read_of_batches())

        def take() -> None:
            for one in requests:
                intake(one.header(SendMessageRequestHeaderV2), one.body, self.channel)

        reads = iter([self.read_of_batches() for _ in range(calls * REPEATS)])
        return {
            "batch intake": await cost_us(take, calls, BATCH * BATCHES),
            "whole batch": await cost_us(lambda: self._receive(next(reads)), calls, BATCH * BATCHES),
        }

    async def _receive(self, data: bytes) -> None:
        self.channel.data_received(data)
        await asyncio.sleep(0)

    async def _pulls(self, calls: int) -> dict[str, float]:
        get = self._state.store.reader.get_message
        offsets = itertools.cycle(range(0, (calls - 1) * PULL or 1, PULL))
        found = {"get": await cost_us(lambda: _nothing(get(TOPIC, 0, next(offsets), PULL, None)), calls, PULL)}
        pulls = itertools.cycle([self.pull(at) for at in range(0, calls * PULL, PULL)])
        before = self.sink.written
        found["whole pull"] = await cost_us(lambda: self._receive(next(pulls)), calls, PULL)
        assert self.sink.written - before > calls * PULL * 100
        return found


def _nothing(_result: object) -> None:
    """Drops a result, so that it is not awaited."""


SEND: Final = ("frames", "headers", "intake", "append", "queue", "index", "answer")


async def measure(calls: int, body_bytes: int = 128) -> dict[str, float]:
    """All stages, over a broker of its own. ``calls``: reads of 64 messages per repeat."""
    folder = Path(tempfile.mkdtemp(prefix="flintmq-hot-path-"))
    try:
        loaded = flintmq.load_config(None, [*SETTINGS, f"store.path={folder / 'store'}"], {})
        async with flintmq.Broker(loaded) as broker:
            await broker.put([flintmq.Message(TOPIC, b"first")])
            lazy_numpy.load()
            return await HotPath(broker, body_bytes).measure(calls)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(found: dict[str, float]) -> str:
    """For people: µs per message and the share of the whole."""
    whole = found["whole"]
    rest = whole - sum(found[name] for name in SEND)
    lines = [f"{'stage of a send':<16}{'CPU µs':>8}{'share':>8}"]
    lines += [f"{name:<16}{found[name]:>8.2f}{found[name] / whole:>8.0%}" for name in SEND]
    lines += [f"{'between them':<16}{rest:>8.2f}{rest / whole:>8.0%}", f"{'whole':<16}{whole:>8.2f}{1:>8.0%}", ""]
    between = found["whole batch"] - found["batch intake"]
    lines += [
        f"{'of 32 in a batch':<16}{'CPU µs':>8}{'share':>8}",
        f"{'intake':<16}{found['batch intake']:>8.2f}{found['batch intake'] / found['whole batch']:>8.0%}",
        f"{'append and rest':<16}{between:>8.2f}{between / found['whole batch']:>8.0%}",
        f"{'whole':<16}{found['whole batch']:>8.2f}{1:>8.0%}",
        "",
    ]
    between = found["whole pull"] - found["get"]
    lines += [
        f"{'of a pull':<16}{'CPU µs':>8}{'share':>8}",
        f"{'get':<16}{found['get']:>8.2f}{found['get'] / found['whole pull']:>8.0%}",
        f"{'request, answer':<16}{between:>8.2f}{between / found['whole pull']:>8.0%}",
        f"{'whole':<16}{found['whole pull']:>8.2f}{1:>8.0%}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=51_200, help="per stage and repeat")
    parser.add_argument("--body", type=int, default=128, help="bytes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(max(1, options.messages // READ), options.body))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}) if options.json else table(found))


if __name__ == "__main__":
    main()
