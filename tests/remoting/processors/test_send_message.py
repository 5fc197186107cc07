"""Each send is answered once, with where its message is or why it is not stored, whatever becomes of its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.role import SLAVE
from flintmq.core.broker.sink import MessageSink
from flintmq.core.kernel.ports import FlushStatus
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.response_code import ResponseCode
from flintmq.core.retention.retention import DiskFull
from flintmq.remoting.processors.send_message import SendMessageProcessor
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON, decode_command
from flintmq.testing.processor_kit import AnswerRecorder
from flintmq.testing.store import open_store

FIELDS = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0"}
PLAIN = "KEYS\x01k\x02"


class Peer(AnswerRecorder):
    """A connection that remembers what was written, too."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write_all(self, pieces: list[bytes]) -> None:
        self.written += pieces


class LateWaiter:
    """A waiter that is done when a test says so."""

    def __init__(self) -> None:
        self.status: FlushStatus | None = None
        self.callbacks: list[Callable[[FlushStatus], None]] = []

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        self.callbacks.append(callback)


class Sends:
    """A send processor over a store, and the loop under it."""

    def __init__(self, bench: Any, root: Path) -> None:
        self.state = state = bench.state
        self.store = state.store = open_store(root, commit_log_file_bytes=65_536)
        state.topics.create_in_send_back("T", 4)
        state.sink = MessageSink(state.store, state.stats, state.dispatch)
        self.pool = state.server.pool("send")
        self.peer = Peer()

    def send(self, body: bytes = b"x", code: int = 310, flag: int = 0, opaque: int = 1, **fields: str) -> Request:
        """A request, not processed yet."""
        peer: Any = self.peer
        return Request(peer, code, opaque, flag, 407, "JAVA", JSON, {**FIELDS, "i": PLAIN, **fields}, body)

    def process(self, *requests: Request, then: Callable[[], None] = lambda: None) -> list[Any]:
        """Process requests as one read; return the answers, after some iterations of the loop."""

        async def run() -> None:
            self.state.loop = asyncio.get_running_loop()
            SendMessageProcessor(self.state.api).process(list(requests))
            await asyncio.sleep(0)
            then()
            for _ in range(3):
                await asyncio.sleep(0)

        asyncio.run(run())
        return [answer for _opaque, answer in self.peer.answers]

    def waits(self) -> LateWaiter:
        """From now on appends are as durable as the returned waiter says."""
        waiter = LateWaiter()
        self.store.writer.promises = lambda: (waiter, waiter)
        return waiter


@pytest.fixture
def sends(bench: Any, tmp_path: Path) -> Iterator[Sends]:
    """A processor whose answers can be looked at as objects."""
    made = Sends(bench, tmp_path / "store")
    made.state.server.answers_as_bytes = False
    yield made
    made.store.close()


def test_sends_are_stored_in_order_and_answered_with_queue_offsets_and_message_ids(sends: Sends) -> None:
    """In their order, with queue, offset and message id, and the pool and the connection have room again."""
    first, second = sends.process(sends.send(b"1"), sends.send(b"2"))
    assert (first.code, second.code) == (0, 0)
    assert [answer.ext_fields["queueOffset"] for answer in (first, second)] == ["0", "1"]
    assert first.ext_fields["queueId"] == "1"
    assert first.ext_fields["msgId"] == "7F00000100002A9F" + f"{0:016X}"
    assert (sends.pool.waiting, sends.peer.due) == (0, 0)
    assert sends.store.reader.max_queue_offset("T", 1) == 2


def test_the_fast_encoder_and_the_general_encoder_write_the_same_send_answer(sends: Sends) -> None:
    """The answers of the hot path are written by hand."""
    (answer,) = sends.process(sends.send())
    sends.state.server.answers_as_bytes = True
    sends.process(sends.send(opaque=9))
    command = decode_command(sends.peer.written[0][4:])
    assert (command.code, command.opaque) == (0, 9)
    assert command.ext_fields is not None
    same = ("queueId", "TRACE_ON", "MSG_REGION")
    assert {name: command.ext_fields[name] for name in same} == {name: answer.ext_fields[name] for name in same}
    assert command.ext_fields["queueOffset"] == "1"


def test_valid_sends_succeed_if_other_sends_processed_at_the_same_time_are_refused(sends: Sends) -> None:
    """A missing topic, a queue that is not there, a defect in the intake."""
    intake, single = sends.state.intake, sends.state.intake.single

    def take(header: Any, body: bytes, *more: Any) -> Any:
        if body == b"defect":
            raise ZeroDivisionError
        return single(header, body, *more)

    intake.single = take
    bad = [sends.send(b"", b="No Such"), sends.send(b"", e="77"), sends.send(b"defect")]
    answers = sends.process(sends.send(b"1"), *bad, sends.send(b"2"))
    by_code = sorted(answer.code for answer in answers)
    assert (by_code[:2], len([code for code in by_code if code])) == ([0, 0], 3)
    assert sends.store.reader.max_queue_offset("T", 1) == 2
    assert (sends.pool.waiting, sends.peer.due, sends.state.stats.put_failed) == (0, 0, 3)


def test_every_send_is_refused_if_the_store_refuses_writes(sends: Sends) -> None:
    """The answer must contain the reason, because producers have no other way to learn it."""
    sends.store.disk_full = DiskFull("", "")
    assert [answer.code for answer in sends.process(sends.send(), sends.send())] == [14, 14]
    sends.peer.answers.clear()
    sends.state.role.change(SLAVE, 1)
    assert [answer.code for answer in sends.process(sends.send())] == [14]
    assert sends.store.reader.max_queue_offset("T", 1) == 0


@pytest.mark.parametrize(
    ("status", "code", "has_fields"),
    [
        (FlushStatus.FLUSHED, 0, True),
        (FlushStatus.TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT, True),
        (FlushStatus.SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, True),
        (FlushStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE, True),
        (FlushStatus.FENCED, ResponseCode.SERVICE_NOT_AVAILABLE, False),
    ],
)
def test_a_send_is_answered_after_its_flush_status_is_known(
    sends: Sends, status: FlushStatus, code: int, has_fields: bool
) -> None:
    """Nothing is acknowledged before; what was stored says where, unless it may be lost."""
    waiter = sends.waits()
    before: list[int] = []

    def flushed() -> None:
        before.append(len(sends.peer.answers))
        for callback in waiter.callbacks:
            callback(status)

    (answer,) = sends.process(sends.send(), then=flushed)
    assert before == [0]
    assert (answer.code, answer.ext_fields is not None) == (code, has_fields)
    assert (sends.pool.waiting, sends.peer.due) == (0, 0)


def test_a_send_is_answered_before_its_message_is_flushed_if_the_property_wait_is_false(sends: Sends) -> None:
    """WAIT=false: its neighbours go on waiting."""
    waiter = sends.waits()
    now: list[list[int]] = []
    requests = [sends.send(opaque=1), sends.send(opaque=2, i="WAIT\x01false\x02"), sends.send(opaque=3)]

    def flushed() -> None:
        now.append([opaque for opaque, _ in sends.peer.answers])
        waiter.callbacks[0](FlushStatus.FLUSHED)

    sends.process(*requests, then=flushed)
    assert now == [[2]]
    assert [opaque for opaque, _ in sends.peer.answers] == [2, 1, 3]


def test_one_way_sends_are_stored_and_not_answered(sends: Sends) -> None:
    """An answer would be taken for another request's."""
    assert sends.process(sends.send(flag=2)) == []
    assert sends.store.reader.max_queue_offset("T", 1) == 1
    assert (sends.pool.waiting, sends.peer.due) == (0, 0)


def test_send_requests_with_long_header_field_names_and_with_short_header_field_names_are_stored(sends: Sends) -> None:
    """Old clients send code 10 with the fields spelled out."""
    long_names = {
        "producerGroup": "pg", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": PLAIN,
    }  # fmt: skip
    request = sends.send(code=int(RequestCode.SEND_MESSAGE))
    request.ext_fields = long_names
    answers = sends.process(request, sends.send())
    assert [answer.ext_fields["queueOffset"] for answer in answers] == ["0", "1"]


def test_every_send_gets_an_error_answer_if_the_store_raises_an_unexpected_exception(sends: Sends) -> None:
    """A client without an answer waits for its timeout, and sends again."""

    def fail(_messages: object) -> Any:
        raise ZeroDivisionError

    sends.state.sink.append = fail
    with contextlib.suppress(ZeroDivisionError):
        assert [answer.code for answer in sends.process(sends.send(), sends.send())] == [1, 1]
    assert (sends.pool.waiting, sends.peer.due) == (0, 0)
