"""A broker's state over a store that is a table, and requests without a socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.store import StoreSection
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.io import fastjson
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import FlushWaiter
from flintmq.core.kernel.ports.processor import Handler, Request, Response
from flintmq.core.waiters import DONE
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel
from flintmq.tests.support.state import state_of


class ClientChannel(RecordingChannel):
    """A connection that can be asked; answers what was prepared."""

    def __init__(self, remote_address: str = "127.0.0.1:40000") -> None:
        super().__init__(remote_address)
        self.remote_host = remote_address.rpartition(":")[0]
        self.local_host, self.local_port = "127.0.0.1", 9876
        self.answers: list[RemotingCommand | RemotingError] = []
        self.asked: list[tuple[int, dict[str, str], bytes]] = []

    async def invoke(self, code: int, header: Mapping[str, str], body: bytes, timeout_s: float) -> RemotingCommand:
        self.asked.append((code, dict(header), body))
        answer = self.answers.pop(0)
        if isinstance(answer, RemotingError):
            raise answer
        return answer


class FakeStore:
    """Queues as lists of (store time, tags code); message n of a queue lies at 1000 * queue + 100 * n."""

    def __init__(self, root: Path) -> None:
        self.queues: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.root = root
        self.disk = OS_DISK
        self.free_pool_buffers: int | None = None
        self.trouble = None
        self.in_memory = True
        self.promised: FlushWaiter = DONE
        self.config = BrokerConfig(store=StoreSection(path=str(root)))
        self.watermarks = SimpleNamespace(wrote=2048, committed=2048, flushed=1149)
        self.reput = SimpleNamespace(behind_bytes=7, run_all=lambda: None)
        self.trouble: RefusedError | None = None
        self.reader = self
        self.commit_log = SimpleNamespace(
            min_offset_bytes=0,
            max_offset_bytes=2048,
            store_timestamp_ms=lambda at: 123,
            slice=lambda at, size: memoryview(b"x" * size),
        )

    def update_config(self, config: BrokerConfig) -> None:
        self.config = config

    def dispatch(self) -> bool:
        return False

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        times = [time_ms for time_ms, _ in self.queues.get((topic, queue_id), ())]
        return min(range(len(times)), key=lambda n: abs(times[n] - timestamp_ms)) if times else 0

    def message_store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        entries = self.queues.get((topic, queue_id), [])
        return entries[queue_offset][0] if 0 <= queue_offset < len(entries) else -1

    def earliest_message_store_time(self, topic: str, queue_id: int) -> int:
        return self.message_store_time(topic, queue_id, 0)

    def check_in_mem_by_consume_offset(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self.in_memory

    def message_at(self, commit_log_offset_bytes: int) -> Any:
        return SimpleNamespace(size_bytes=3) if commit_log_offset_bytes == 100 else None

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.queues}

    def delete_topic(self, topic: str) -> FlushWaiter:
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]
        return self.promised

    @property
    def consume_queues(self) -> Any:
        return SimpleNamespace(queues={key: self._queue(*key) for key in self.queues})

    def _queue(self, topic: str, queue_id: int) -> Any:
        entries = self.queues[topic, queue_id]

        def units(start: int, count: int) -> Iterator[tuple[int, int, int]]:
            for n, (_, tags_code) in enumerate(entries[start : start + count], start):
                yield 1000 * queue_id + 100 * n, 90, tags_code

        return SimpleNamespace(min_queue_offset=0, max_queue_offset=len(entries), units=units)


class Bench:
    """A broker's state and a way to ask its processors."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store = FakeStore(root)
        self.state = state_of(clock=self.clock, store=self.store)
        self.channel = ClientChannel()

    def request(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: object = b"",
        *,
        version: int = 407,
        language: str = "JAVA",
        channel: ClientChannel | None = None,
    ) -> Request:
        raw = body if isinstance(body, bytes) else fastjson.dumps(body).encode()
        chosen: Any = channel or self.channel
        return Request(chosen, code, 1, 0, version, language, 0, fields, raw)


def ask(handlers: dict[int, Handler], request: Request) -> Response:
    """A processor's answer, a refusal included; one that works in slices gets its turns."""
    try:
        answer: Any = handlers[request.code](request)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
    except RefusedError as error:
        return Response(error.code, error.remark)
    assert isinstance(answer, Response)
    return answer


async def ask_later(handlers: dict[int, Handler], request: Request) -> Response:
    """The answer of a processor that waits for a client."""
    try:
        answer: Any = handlers[request.code](request)
        found = await answer
    except RefusedError as error:
        return Response(error.code, error.remark)
    assert isinstance(found, Response)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(name="ask")
def ask_fixture() -> Callable[[dict[int, Handler], Request], Response]:
    return ask


@pytest.fixture(name="ask_later")
def ask_later_fixture() -> Any:
    return ask_later


@pytest.fixture
def new_channel() -> type[ClientChannel]:
    return ClientChannel
