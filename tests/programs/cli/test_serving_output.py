"""A log that nobody reads, and a READY line that nobody takes, stop no broker, name server, supervisor or console."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from flintmq.client.sync import AdminClient
from flintmq.programs.cli.serving_output import END_TIMEOUT_S

from .conftest import RunCommand
from .test_serve import PROGRAM, finish, ready_words, serving

END_S = END_TIMEOUT_S + 10
"""How long a stop may take on a busy machine; a log that blocks would make it endless."""


@contextlib.contextmanager
def full_pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Both ends of a pipe that has no room, the writing one first; what fills it are empty lines."""
    reading, writing = os.pipe()
    fill(writing)
    with os.fdopen(writing, "wb", buffering=0) as writer, os.fdopen(reading, "rb") as reader:
        yield writer, reader


def fill(descriptor: int) -> None:
    """Leave no room in a pipe."""
    os.set_blocking(descriptor, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(descriptor, b"\n" * size)
    os.set_blocking(descriptor, True)


@contextlib.contextmanager
def started(
    *arguments: object,
    stderr: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = subprocess.PIPE,
    program: str = PROGRAM,
) -> Iterator[subprocess.Popen[str]]:
    """A serving process with outputs of the test's."""
    command = [sys.executable, "-c", program, *(str(argument) for argument in arguments)]
    with subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def words_of(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    return ready_words(process.stdout.readline())


def make_topics(name_server: str, count: int) -> None:
    """Each is a line of the log, or several."""
    with AdminClient(name_server) as admin:
        for number in range(count):
            admin.create_topic(f"T{number}", queues=1)


def test_a_full_stderr_pipe_delays_no_request_and_loses_no_log_line(tmp_path: Path, small: list[str]) -> None:
    """A log driver that blocks, a terminal in Ctrl-S: everybody is served, and the log is whole afterwards."""
    with full_pipe() as (writing, reader), started("run", "--store", tmp_path / "s", *small, stderr=writing) as process:
        writing.close()
        words = words_of(process)
        make_topics(words["namesrv"], 50)
        process.terminate()
        lines = [line for line in reader.read().decode().splitlines() if line]
        assert process.wait(END_S) == 0
    created = [line.split("'topic'='")[1].split("'")[0] for line in lines if "flintmq.audit" in line]
    assert created == [f"T{number}" for number in range(50)]
    assert lines[-1].endswith("stopped")


@pytest.mark.parametrize(("role", "log_format"), [("run", "json"), ("namesrv", "text")])
def test_sigterm_stops_a_process_whose_log_output_is_blocked(
    tmp_path: Path, small: list[str], role: str, log_format: str
) -> None:
    """From the start on nothing is read: it serves all the same, and the stop is in order."""
    given = ("--store", tmp_path / "s", *small) if role == "run" else ("--port", 0)
    with full_pipe() as (writing, _), started(role, "--log-format", log_format, *given, stderr=writing) as process:
        words = words_of(process)
        if role == "run":
            make_topics(words["namesrv"], 2)
        process.terminate()
        assert process.wait(END_S) == 0
    assert not (tmp_path / "s" / "abort").exists()


def test_sigterm_stops_a_broker_process_if_nobody_reads_its_standard_output(tmp_path: Path, small: list[str]) -> None:
    """Nobody reads stdout; the log says where it listens, and it serves."""
    log = tmp_path / "log"
    with (
        full_pipe() as (writing, _),
        started("run", "--store", tmp_path / "s", "--log-file", log, *small, stdout=writing) as process,
    ):
        until_s = time.monotonic() + 30
        while not log.exists() or "broker" not in log.read_text():
            assert time.monotonic() < until_s
            assert process.poll() is None
        address = log.read_text().partition("name server listens on ")[2].split()[0]
        make_topics(address, 2)
        process.terminate()
        assert process.wait(END_S) == 0


@pytest.mark.parametrize("has_reader", [True, False])
def test_a_blocked_log_file_does_not_block_the_broker(tmp_path: Path, small: list[str], has_reader: bool) -> None:
    """A FIFO stands for a disk that hangs, whether it could be opened at the start or not."""
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR) if has_reader else None
    with started("run", "--store", tmp_path / "s", "--log-file", fifo, *small, stderr=subprocess.PIPE) as process:
        words = words_of(process)
        if reader is not None:
            fill(reader)
        make_topics(words["namesrv"], 5)
        process.terminate()
        code, out, err = finish(process)
    assert (code, out, err) == (0, "", "")
    if reader is not None:
        os.close(reader)


def test_a_log_file_that_cannot_be_written_is_reported_on_stderr_and_counted(tmp_path: Path, small: list[str]) -> None:
    """The folder is gone for a while: the lines are lost, the reason is said, and the log says how many when it is back."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "log"
    with started("run", "--store", tmp_path / "s", "--log-file", log, *small, stderr=subprocess.PIPE) as process:
        words = words_of(process)
        log.unlink()
        folder.rmdir()
        make_topics(words["namesrv"], 3)
        folder.mkdir()
        process.terminate()
        code, _, err = finish(process)
    assert code == 0
    assert err.count("flintmq: warning: lines of the log are lost: ") == 1
    assert "lines of " in log.read_text()
    assert " are lost: " in log.read_text()


@pytest.mark.slow
def test_a_supervisor_and_its_brokers_serve_clients_while_stderr_is_a_full_pipe(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """All processes of one command have one stderr: none of them waits for it, and what ends is started again."""
    with (
        full_pipe() as (writing, _),
        started("run", "--brokers", 2, "--store", tmp_path / "s", *small, stderr=writing) as process,
    ):
        words = words_of(process)
        first = cli("status", "-n", words["namesrv"], "--json").json["brokers"]
        assert len(first) == 2
        make_topics(words["namesrv"], 2)
        process.terminate()
        assert process.wait(END_S) == 0


def test_the_console_starts_and_stops_while_stderr_is_a_full_pipe(name_server: str) -> None:
    pytest.importorskip("starlette", reason="the extra console is not installed")
    with full_pipe() as (writing, _), started("console", "-n", name_server, "--port", 0, stderr=writing) as process:
        assert "console" in words_of(process)
        process.terminate()
        assert process.wait(END_S) == 0


FLOOD = """
import flintmq.programs.cli.serving as serving, logging, sys
from flintmq.programs.cli.main import run_command_line
from flintmq.core.kernel.hookspecs import hookimpl
log = logging.getLogger("flintmq.flood")  # one without a bound on lines of the same kind
begin = serving.ServiceManager.tell
def tell(self, *lines):
    if lines[0] == "READY=1":
        for number in range(40_000):
            log.warning("%s", f"flood {number} " + "x" * 60)
    begin(self, *lines)
serving.ServiceManager.tell = tell
sys.exit(run_command_line())
"""


@pytest.mark.slow
def test_dropped_log_lines_are_counted_in_the_log_and_in_the_runtime_info(
    tmp_path: Path, cli: RunCommand, small: list[str]
) -> None:
    """The bound is some thousands of lines; how many are missing stands in the log once somebody reads it again."""
    with (
        full_pipe() as (writing, reader),
        started(
            "run", "--store", tmp_path / "s", "--log-format", "json", *small, stderr=writing, program=FLOOD
        ) as process,
    ):
        words = words_of(process)
        told: dict[str, Any] = {}
        until_s = time.monotonic() + 30
        with AdminClient(words["namesrv"]) as admin:
            while int(told.get("logLinesLost", 0)) == 0 or "log.blocked" not in told["alarms"]:
                assert time.monotonic() < until_s, told
                told = admin.runtime_info(words["broker"])
        lines: list[dict[str, Any]] = []
        for line in reader:
            if line.strip():
                lines.append(json.loads(line))
                if lines[-1]["event"] == "log.lost":
                    break
        process.terminate()
        assert process.wait(END_S) == 0
    numbers = [int(one["message"].split()[1]) for one in lines if one["message"].startswith("flood")]
    assert numbers == list(range(len(numbers)))
    fields = lines[-1]["fields"]
    assert fields["output"] == "stderr"
    assert fields["lines"] >= 40_000 - len(numbers) > 0
    assert fields["lines"] >= int(told["logLinesLost"])


def test_sighup_stops_a_process_cleanly(tmp_path: Path, small: list[str]) -> None:
    """A terminal that is closed sends it; so does a shell that ends. RocketMQ's processes stop in order then, too."""
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {PROGRAM}"  # the tests may run under nohup
    for more in ((), ("--brokers", 2)):
        with serving("run", "--store", tmp_path / f"s{len(more)}", *more, *small, program=program) as (process, _):
            process.send_signal(signal.SIGHUP)
            code, _, err = finish(process)
        assert code == 0, err
        assert "stopped" in err
    assert not list(tmp_path.glob("**/abort"))


def test_a_name_server_ignores_sighup_if_sighup_was_already_ignored_when_the_server_started(tmp_path: Path) -> None:
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {PROGRAM}"
    with serving("namesrv", "--port", 0, program=program) as (process, _):
        process.send_signal(signal.SIGHUP)
        process.terminate()
        code, _, err = finish(process)
    assert code == 0, err
