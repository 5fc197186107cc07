"""Sends of one loop iteration are stored together, and no send waits for ever, whatever becomes of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import flintmq
from flintmq.config.sections.models import AdmissionSection, BrokerConfig
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.client.transport import RemotingClient
from flintmq.remoting.processors.send_message import SHARE_BYTES, FastFailure, SendQueue
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_message import SendMessageRequestHeaderV2
from flintmq.testing.clock import ManualClock


class Iterations:
    """A loop whose iterations a test makes."""

    def __init__(self) -> None:
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def run_one(self) -> int:
        """Call what was due when the iteration began; return how much that was."""
        due, self._soon = self._soon, []
        for callback, arguments in due:
            callback(*arguments)
        return len(due)


class Harness:
    """A queue, the shares it handed over, and the loop under it."""

    def __init__(self) -> None:
        self.loop = Iterations()
        self.shares: list[tuple[list[str], int]] = []
        self.steps: Callable[[], Iterator[None] | None] = lambda: None
        self.queue = SendQueue(self._store, lambda: self.loop, self.loop.call_soon)  # type: ignore[arg-type, return-value]

    def _store(self, requests: list[Any], size_bytes: int) -> Iterator[None] | None:
        self.shares.append(([request.name for request in requests], size_bytes))
        return self.steps()

    def add(self, *names: str, size_bytes: int = 1) -> None:
        body = range(size_bytes)  # as long as a body, without its bytes
        batch = [SimpleNamespace(name=name, body=body) for name in names]
        self.queue.add(batch)  # type: ignore[arg-type]


@pytest.fixture
def harness() -> Harness:
    """An empty queue."""
    return Harness()


def test_sends_of_the_same_event_loop_iteration_are_appended_together(harness: Harness) -> None:
    """One append and one sync for all of them."""
    harness.add("a", "b")
    harness.add("c")
    assert harness.shares == []
    harness.loop.run_one()
    assert harness.shares == [(["a", "b", "c"], 3)]
    assert harness.loop.run_one() == 0


def test_messages_sent_after_a_very_large_message_wait_for_the_next_event_loop_iteration(harness: Harness) -> None:
    """Other connections are read in between; a single send is taken however large it is."""
    harness.add("a", size_bytes=SHARE_BYTES + 1)
    harness.add("b", "c", size_bytes=SHARE_BYTES // 2)
    for _ in range(3):
        harness.loop.run_one()
    assert [names for names, _ in harness.shares] == [["a"], ["b", "c"]]
    assert len(harness.queue) == 0


def test_a_large_append_is_stored_in_several_event_loop_iterations(harness: Harness) -> None:
    """Each step is an iteration of its own, and sends that arrive meanwhile are stored after it."""
    done: list[int] = []

    def steps() -> Iterator[None]:
        for step in range(2):
            done.append(step)
            yield
        done.append(9)

    harness.steps = steps
    harness.add("a")
    harness.loop.run_one()
    harness.steps = lambda: None
    harness.add("b")
    seen = []
    for _ in range(4):
        harness.loop.run_one()
        seen.append((list(done), len(harness.shares)))
    assert seen == [([0], 1), ([0, 1], 1), ([0, 1, 9], 1), ([0, 1, 9], 2)]


@pytest.mark.parametrize("in_steps", [False, True])
def test_sends_after_a_failed_append_are_stored(harness: Harness, in_steps: bool) -> None:
    """The sends behind it are stored all the same."""

    def fail() -> Iterator[None] | None:
        raise ZeroDivisionError

    def fail_later() -> Iterator[None]:
        yield from ()
        raise ZeroDivisionError

    harness.steps = fail_later if in_steps else fail
    harness.add("a")
    if in_steps:
        harness.loop.run_one()
    harness.add("b")
    with pytest.raises(ZeroDivisionError):
        harness.loop.run_one()
    harness.steps = lambda: None
    harness.loop.run_one()
    assert [names for names, _ in harness.shares] in ([["a"], ["b"]], [["a", "b"]])
    assert len(harness.queue) == 0


ON = AdmissionSection(fast_failure=True, send_wait_ms=200, page_cache_busy_ms=1000)


def requests(count: int) -> list[Any]:
    return [object() for _ in range(count)]


def test_fast_failure_is_disabled_by_default() -> None:
    assert not BrokerConfig().admission.fast_failure


def test_the_refusal_of_a_late_send_reports_where_and_how_long_the_send_waited() -> None:
    control = FastFailure()
    control.appended(1.0, 0.003)
    control.arrived(1.05, 2)
    control.arrived(1.30, 1)
    pending = requests(3)
    refused = control.overdue(pending, 1.363, ON)
    assert [who for who, _ in refused] == pending[:2]
    remark = refused[0][1].remark
    assert refused[0][1].code == 2
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 313ms, size of queue: 3 ["
    )
    assert "admission.send_wait; measured 313 ms in the event loop between its read and its append" in remark
    assert "the append before took 3 ms; see admission.send_wait_ms (waitTimeMillsInSendQueue)]" in remark
    assert control.overdue([], 9.0, ON) == [], "each is judged once"


def test_a_send_that_waited_for_a_slow_append_is_refused_if_fast_failure_is_on() -> None:
    control = FastFailure()
    control.appended(10.0, 1.2)
    control.arrived(10.01, 1)
    ((_, error),) = control.overdue(requests(1), 10.02, ON)
    assert error.remark.startswith(
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 1210ms"
    )
    assert "up to 1200 ms in its socket" in error.remark
    assert "osPageCacheBusyTimeOutMills" in error.remark
    control.arrived(10.5, 1)
    assert control.overdue(requests(1), 10.5, ON) == [], "who came later has not waited"


def test_a_send_request_is_refused_if_its_processing_was_postponed_for_too_long() -> None:
    """A turn takes no more than so many bytes; what a read brought may be parted by that."""
    control = FastFailure()
    control.arrived(1.0, 3)
    first, second, third = requests(3)
    assert [request for request, _ in control.overdue([first, second], 1.01, ON, left=1)] == []
    assert [request for request, _ in control.overdue([third], 9.0, ON)] == [third]


def test_a_send_without_a_known_arrival_time_is_not_refused() -> None:
    """Its time in the queue is unknown, so it must not count as too old."""
    control = FastFailure()
    control.arrived(1.0, 1)
    assert control.overdue(requests(2), 9.0, ON) == []


class Jumping(ManualClock):
    """A clock that goes on a second whenever it is asked, once that is switched on: a loop that is always late."""

    jumps = False

    def monotonic_s(self) -> float:
        if self.jumps:
            self.advance_ms(1000)
        return super().monotonic_s()


async def _send(tmp_path: Path, fast_failure: bool) -> tuple[int, str]:
    clock = Jumping()
    settings = [f"store.path={tmp_path}", "listen.port=0", "listen.vip=false", "store.commit_log_file_bytes=1MiB"]
    loaded = flintmq.load_config(None, settings, {})
    config = attrs.evolve(loaded.config, admission=attrs.evolve(ON, fast_failure=fast_failure))
    async with flintmq.Broker(config, clock=clock) as broker:
        await broker.put([flintmq.Message("T", b"first")])
        client = RemotingClient()
        header = SendMessageRequestHeaderV2(
            producer_group="G",
            topic="T",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=1,
            flag=0,
            properties=properties_to_string({"UNIQ_KEY": "A" * 32}),
        )
        try:
            clock.jumps = True
            command = request(RequestCode.SEND_MESSAGE_V2, header, b"body")
            answer = await client.invoke(broker.address, command, 5_000)
            return answer.code, answer.remark or ""
        finally:
            clock.jumps = False
            await client.close()
            broker.state.dispatch()
            stored = sum(broker.state.store.reader.max_queue_offset("T", queue) for queue in range(4))
            assert stored == (1 if fast_failure else 2)


@pytest.mark.parametrize("fast_failure", [True, False])
def test_late_sends_are_refused_if_fast_failure_is_on_and_stored_if_fast_failure_is_off(
    tmp_path: Path, fast_failure: bool
) -> None:
    """A refused send is answered and not stored; without the setting the same send is stored, however late."""
    code, remark = asyncio.run(_send(tmp_path, fast_failure))
    assert code == (2 if fast_failure else 0)
    assert ("_CLEAN_QUEUE]broker busy" in remark) is fast_failure
