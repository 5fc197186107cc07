"""Bytes of the log that are spoilt while the broker runs: what cannot be dispatched must not be promised any further, and
whoever looks must see it. Before, sends were answered as ever, and nothing that came became visible."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.role import SLAVE, Role
from flintmq.core.errors import RefusedError, StoreFormatError
from flintmq.core.io import lazy_numpy
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.record import bulk_scan
from flintmq.core.record.bulk_columns import ColumnReader
from flintmq.core.record.record import MAGIC_BLANK
from flintmq.core.response_code import ResponseCode
from flintmq.core.store import reput_message_service
from flintmq.core.store.message_store import MessageStore
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store

FILE_BYTES = 64 * 1024
COUNT = 12
BROKEN = 5
LINE = "dispatch stands still until the broker is restarted and recovers its log: "

Damage = Callable[[bytearray, int], None]
"""Spoils a record that begins at a place."""


def put_in(form: str, at: int, value: int) -> Damage:
    def spoil(data: bytearray, begin: int) -> None:
        struct.pack_into(form, data, begin + at, value)

    return spoil


def zeros(data: bytearray, begin: int) -> None:
    data[begin : begin + 120] = bytes(120)


def ones(data: bytearray, begin: int) -> None:
    data[begin : begin + 120] = b"\xff" * 120


def noise(data: bytearray, begin: int) -> None:
    data[begin : begin + 120] = bytes(7 * n % 251 for n in range(120))


def larger(data: bytearray, begin: int) -> None:
    """A record that would be whole, but ends behind the log: its body has grown by what lies behind it."""
    (size,) = struct.unpack_from(">i", data, begin)
    (body,) = struct.unpack_from(">i", data, begin + 84)
    more = size * (COUNT - BROKEN) + 500
    struct.pack_into(">i", data, begin, size + more)
    struct.pack_into(">i", data, begin + 84, body + more)
    tail = bytes(data[begin + 88 + body : begin + size])
    data[begin + size + more - len(tail) : begin + size + more] = tail


DAMAGES: dict[str, Damage] = {
    "zeros": zeros,
    "ones": ones,
    "noise": noise,
    "larger": larger,
    "size": put_in(">i", 0, 7),
    "magic": put_in(">I", 4, 0x12345678),
    "blank": put_in(">I", 4, MAGIC_BLANK),
    "place": put_in(">q", 28, 1 << 40),
    "body length": put_in(">i", 84, -5),
    "a body too long": put_in(">i", 84, 1 << 30),
    "sys flag": put_in(">i", 36, 0x30),
}


def spoil(store: MessageStore, begin: int, damage: Damage) -> None:
    """Overwrites the mapped bytes, as a stray write or a bad memory cell would."""
    file = store.commit_log.queue.files[0]
    data = bytearray(file.view)
    damage(data, begin)
    file.grow(file.size)
    file.region.write(0, bytes(data))


def put(store: MessageStore, numbers: Sequence[int]) -> list[DispatchRequest]:
    found = store.put([message("T", 0, b"%03d" % number * 30, keys=f"k{number}") for number in numbers]).results
    assert all(isinstance(one, DispatchRequest) for one in found)
    return found  # type: ignore[return-value]


def visible(store: MessageStore) -> list[int]:
    result = store.reader.get_message("T", 0, 0, 800, None)
    data = b"".join(bytes(piece) for piece in result.slices)
    return [number for number in range(1000) if b"%03d" % number * 30 in data]


@pytest.mark.parametrize("in_bulk", [False, True], ids=["one by one", "in bulk"])
@pytest.mark.parametrize("name", DAMAGES)
def test_messages_before_damage_in_the_log_stay_visible_and_new_messages_are_refused(
    name: str, in_bulk: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was spoilt: no exception leaves dispatch, the log says it once, sends are refused, and a restart recovers."""
    if in_bulk:
        lazy_numpy.load()
        monkeypatch.setattr(reput_message_service, "_BULK_LEAST_BYTES", 0)
        monkeypatch.setattr(bulk_scan, "is_worth_it", lambda _bytes: True)
    store = open_store(tmp_path, strategy=BY_HAND, commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=2_000)
    stored = put(store, range(COUNT))
    store.reput.forget()  # as after a start, and always on a slave: dispatch reads the log
    spoil(store, stored[BROKEN].commit_log_offset_bytes, DAMAGES[name])
    for _ in range(5):
        while store.dispatch():
            pass
    assert visible(store) == list(range(BROKEN))
    assert isinstance(store.reput.error, StoreFormatError)
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            put(store, [99])
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.value.reason == "store.damaged"
        assert str(stored[BROKEN].commit_log_offset_bytes) in refused.value.measured
    trouble = store.trouble
    assert trouble is not None
    assert trouble.reason == "store.damaged"
    assert [r.getMessage().startswith(LINE) for r in caplog.records if r.levelno >= logging.ERROR] == [True]
    assert store.watermarks.fence_reason is None
    store.close()
    again = open_store(tmp_path, strategy=BY_HAND, commit_log_file_bytes=FILE_BYTES, consume_queue_file_bytes=2_000)
    assert again.trouble is None
    assert set(range(BROKEN)) <= set(visible(again))
    put(again, [500])
    while again.dispatch():
        pass
    assert 500 in visible(again)
    again.close()


def test_messages_after_damage_of_the_log_are_dispatched_only_after_a_restart(tmp_path: Path) -> None:
    """Messages acknowledged before the damage was found are in the log, so the restart must deliver them."""
    sizes, clock = {"commit_log_file_bytes": FILE_BYTES, "consume_queue_file_bytes": 2_000}, ManualClock()
    store = open_store(tmp_path, strategy=BY_HAND, clock=clock, **sizes)
    stored = []
    for number in range(4):
        stored += put(store, [number])
        clock.advance_ms(1_000)
    store.reput.forget()
    spoil(store, stored[2].commit_log_offset_bytes, zeros)
    put(store, [4, 5])
    while store.dispatch():
        pass
    assert visible(store) == [0, 1]
    assert store.trouble is not None
    store.close()
    again = open_store(tmp_path, strategy=BY_HAND, clock=clock, **sizes)
    assert visible(again) == [0, 1, 3, 4, 5]
    again.close()


def test_a_slave_reports_damaged_log_records_that_it_reads_during_dispatch(tmp_path: Path) -> None:
    """Its own dispatch always reads the log; whoever asks it how it is learns of it."""
    role = Role()
    sizes = {"commit_log_file_bytes": FILE_BYTES, "consume_queue_file_bytes": 2_000}
    store = open_store(tmp_path, strategy=BY_HAND, takes_writes=lambda: role.takes_writes, **sizes)
    stored = put(store, range(4))
    role.change(SLAVE, 1)
    store.reput.forget()
    spoil(store, stored[1].commit_log_offset_bytes, noise)
    store.dispatch()
    assert store.trouble is not None
    assert store.trouble.reason == "store.damaged"
    with pytest.raises(RefusedError) as refused:
        store.check_writeable()
    assert refused.value.reason == "store.slave"
    store.close()


class Failing:
    """A dispatcher that raises until it is healed."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("boom"), struct.error("out of range"), OSError(5, "I/O")], ids=repr)
def test_sends_are_refused_while_a_dispatcher_raises_an_exception(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Any exception of any dispatcher, a queue's put included: refused meanwhile, told once each way, nothing is skipped."""
    failing = Failing()
    sizes = {"commit_log_file_bytes": FILE_BYTES, "consume_queue_file_bytes": 2_000}
    store = open_store(tmp_path, failing, strategy=BY_HAND, **sizes)
    failing.error = error
    put(store, [1])
    for _ in range(3):
        store.dispatch()
    with pytest.raises(RefusedError) as refused:
        put(store, [2])
    assert refused.value.reason == "store.dispatch"
    failing.error = None
    store.dispatch()
    put(store, [3])
    store.dispatch()
    assert visible(store) == [1, 3]
    assert [r.getMessage() for r in caplog.records if "dispatch" in r.getMessage()][1:] == ["dispatch goes on"]
    store.close()


def test_sends_are_refused_while_the_consume_queue_dispatcher_raises_an_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built-in dispatcher fails here through its table of queues."""
    store = open_store(tmp_path, strategy=BY_HAND)

    def fails(*_arguments: Any) -> None:
        raise ValueError("no such queue")

    with monkeypatch.context() as patch:
        patch.setattr(store.consume_queues, "dispatch", fails)
        put(store, [1])
        store.dispatch()
        assert store.trouble is not None
        assert store.trouble.reason == "store.dispatch"
    store.dispatch()
    assert store.trouble is None
    assert visible(store) == [1]
    store.close()


def test_an_exception_while_waking_held_pulls_does_not_stop_dispatch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Held pulls have deadlines; dispatch has none. Told once, not with each batch."""
    store = open_store(tmp_path, strategy=BY_HAND)

    def fails(_runs: object) -> None:
        raise KeyError("nobody")

    store.reput.arrived.subscribe(fails)
    for number in range(3):
        put(store, [number])
        store.dispatch()
    assert visible(store) == [0, 1, 2]
    assert store.trouble is None
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == ["held pulls are not woken"]
    store.close()


def test_records_are_dispatched_one_by_one_if_the_bulk_reader_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the reader in bulk must not keep messages from their queues, at a start either."""
    store = open_store(tmp_path, strategy=BY_HAND)
    put(store, range(3))
    store.reput.forget()

    tried: list[object] = []

    def fails() -> None:
        tried.append(1)
        raise IndexError("a column")

    monkeypatch.setattr(bulk_scan, "is_worth_it", lambda _log_bytes: True)
    monkeypatch.setattr(ColumnReader, "read", lambda *_: iter(fails, 0))
    store.reput.catch_up()
    assert tried
    assert visible(store) == [0, 1, 2]
    store.close()
