"""Lines that wait for an output: in order, bounded, counted; nobody who logs waits, whatever becomes of the output."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from flintmq.programs.cli.output_thread import WAITING_BYTES_MAX, OutputThread, write_all

LONG = b"x" * 1_000 + b"\n"


class Output:
    """An output that takes nothing until it is let."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.lost: list[tuple[int, str]] = []
        self.failures: list[str] = []
        self.error: OSError | None = None
        self.begun, self.let = threading.Event(), threading.Event()
        self.thread = OutputThread("it", self._write, lost=self._lost, failed=lambda e: self.failures.append(str(e)))

    def _write(self, data: bytes) -> None:
        self.begun.set()
        assert self.let.wait(20)
        if self.error is not None:
            raise self.error
        self.taken.append(data)

    def _lost(self, lines: int, reason: str) -> None:
        self.lost.append((lines, reason))
        self.thread.put(b"some are lost\n")

    @property
    def lines(self) -> list[bytes]:
        return b"".join(self.taken).splitlines()


@pytest.fixture
def output() -> Iterator[Output]:
    made = Output()
    yield made
    made.let.set()
    made.thread.end()


def test_many_waiting_log_lines_are_written_in_order_by_few_write_calls(output: Output) -> None:
    """A write for each line would be one wait for the interpreter lock each, beside a loop that works."""
    output.thread.put(b"first\n")
    assert output.begun.wait(20)
    for number in range(1_000):
        output.thread.put(b"%d\n" % number)
    assert not output.thread.flush(0.01), "nothing was taken yet"
    assert output.thread.blocked_s > 0
    output.let.set()
    assert output.thread.flush(20)
    assert output.lines == [b"first", *(b"%d" % number for number in range(1_000))]
    assert len(output.taken) < 20
    assert max(map(len, output.taken)) <= 4096, "more is not one write to a pipe that others write to as well"
    assert output.thread.blocked_s == 0
    assert not output.lost


def test_log_lines_above_the_limit_of_waiting_bytes_are_dropped_and_counted(output: Output) -> None:
    """The count stands where the lines are missing: after what waited, before what was accepted then."""
    output.thread.put(b"first\n")
    assert output.begun.wait(20)
    many = 3 * WAITING_BYTES_MAX // len(LONG)
    for _ in range(many):
        output.thread.put(LONG)
    output.let.set()
    assert output.thread.flush(20)
    output.thread.put(b"after\n")
    assert output.thread.flush(20)
    kept = output.lines.count(LONG[:-1])
    assert WAITING_BYTES_MAX // 2 < kept * len(LONG) <= WAITING_BYTES_MAX
    ((lost, reason),) = output.lost
    assert lost == many - kept == output.thread.lost_lines
    assert "nothing could be written" in reason
    assert output.lines[-2:] == [b"some are lost", b"after"]


def test_a_line_larger_than_the_output_buffer_is_written_if_the_buffer_is_empty(output: Output) -> None:
    output.let.set()
    output.thread.put(b"y" * (2 * WAITING_BYTES_MAX) + b"\n")
    assert output.thread.flush(20)
    assert len(output.lines[0]) == 2 * WAITING_BYTES_MAX


def test_failing_writes_are_reported_once_and_the_lost_lines_are_counted(output: Output) -> None:
    """A disk that is full refuses every line: the reason is said with the first one."""
    output.error = OSError(28, "No space left on device")
    output.let.set()
    for number in range(3):
        output.thread.put(b"%d\n" % number)
        assert output.thread.flush(20)
    assert len(output.failures) == 1
    output.error = None
    output.thread.put(b"again\n")
    assert output.thread.flush(20)
    assert output.lines == [b"again", b"some are lost"]
    ((lost, reason),) = output.lost
    assert (lost, "No space left" in reason) == (3, True)


def test_a_forked_process_writes_log_lines_without_the_output_thread() -> None:
    """It has a copy of the queue, and nobody who takes from it."""
    reading, writing = os.pipe()
    thread = OutputThread("pipe", lambda data: write_all(writing, data))
    pid = os.fork()
    if not pid:
        thread.put(b"from the child\n")
        os._exit(0 if thread.flush(5) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.read(reading, 100) == b"from the child\n"
    thread.put(b"from the parent\n")
    assert os.read(reading, 100) == b"from the parent\n"
    thread.end()
    os.close(reading)
    os.close(writing)


def test_all_bytes_are_written_to_a_nonblocking_descriptor() -> None:
    """Another process that shares a terminal may have made it so; a write that is refused must not cost the line."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = bytes(1_000_000)
    found: list[bytes] = []

    def read() -> None:
        while some := os.read(reading, 1 << 16):
            found.append(some)

    reader = threading.Thread(target=read)
    reader.start()
    write_all(writing, data)
    os.close(writing)
    reader.join(20)
    os.close(reading)
    assert b"".join(found) == data
