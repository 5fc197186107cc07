"""What a process that was started says, how it is ended, and that how it ended is not lost."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process

import pytest

from flintmq.core.io.child_process import end_process, read_ready_words

SERVES = "import sys; print('READY broker=127.0.0.1:4711 pid=1', flush=True); sys.stdin.read()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVES


async def started(program: str) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (SERVES, {"broker": "127.0.0.1:4711", "pid": "1"}),
        ("print('READYbroker=1')", {}),
        ("print('warning: x=1')\nprint('READY broker=1')", {"broker": "1"}),
        ("print('x' * 1_000_000)\nprint('READY broker=1')", {"broker": "1"}),
        ("import sys; sys.stdout.buffer.write(bytes([0xff, 10]))", {}),
        ("", {}),
    ],
)
def test_a_child_process_counts_as_ready_only_after_it_has_printed_the_expected_line(
    program: str, words: dict[str, str]
) -> None:
    """Anything else that a plugin or a broken interpreter prints first is no promise, and does not hide one."""

    async def work() -> dict[str, str]:
        process = await started(program)
        try:
            return await read_ready_words(process, lambda _line: None)
        finally:
            await end_process(process, 30)

    assert asyncio.run(work()) == words


@pytest.mark.parametrize(
    ("program", "timeout_s", "in_good_order", "code"),
    [(SERVES, 30, True, -signal.SIGTERM), (STUBBORN, 0.05, False, -signal.SIGKILL)],
)
def test_a_child_process_that_does_not_end_in_time_is_killed(
    program: str, timeout_s: float, in_good_order: bool, code: int
) -> None:
    """A stop takes as long as it was said to, and no longer."""

    async def work() -> tuple[bool, int | None]:
        process = await started(program)
        assert await read_ready_words(process, lambda _line: None)
        return await end_process(process, timeout_s), process.returncode

    assert asyncio.run(work()) == (in_good_order, code)


def test_output_that_a_child_process_prints_after_it_is_ready_is_read_to_the_end() -> None:
    """A pipe that nobody reads is full after 64 KiB, and then a broker whose plugin prints would serve nobody any more."""
    program = "print('before'); print('READY broker=1'); print('after ' * 200_000); print('last')"

    async def work() -> tuple[int, list[str]]:
        printed: list[str] = []
        process = await started(program)
        await read_ready_words(process, printed.append)
        return await asyncio.wait_for(process.wait(), 30), printed

    code, printed = asyncio.run(work())
    assert (code, printed[0], printed[-1]) == (0, "before", "last")


def test_the_exit_code_is_reported_if_a_child_process_exits_while_it_is_being_stopped() -> None:
    """A signal to a process that has just ended must not take its exit code away: the log names it."""

    async def work() -> int | None:
        process = await started("import sys; sys.exit(7)")
        assert process.stdout is not None
        await process.stdout.read()  # it has closed its output: it ends now, and asyncio may not know yet
        assert await end_process(process, 30)
        return process.returncode

    assert asyncio.run(work()) in (7, -signal.SIGTERM)
