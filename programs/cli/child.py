"""Runs a temporary FlintMQ in another process."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Self

from flintmq.programs.cli.exits import CommandError, passed_on

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class ServedChild:
    """Runs ``flintmq run`` in another process for the duration of a ``with`` statement.

    Args:
        arguments: the arguments of ``flintmq run``.
        start_timeout_s: seconds to wait for the line ``READY …``, which the process prints when it is ready. The recovery of a
            large store takes long.

    Raises:
        CommandError: the process did not start; the error has the output and the exit code of the process.
    """

    def __init__(self, arguments: Sequence[str], *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self._start_timeout_s = start_timeout_s
        self._arguments = [sys.executable, "-m", "flintmq", "run", "--log-level", "warning", *arguments]
        self._running = contextlib.ExitStack()
        self.namesrv = ""
        """``host:port`` of the name server in the child process."""
        self.broker = ""
        """``host:port`` of the broker in the child process."""
        self.pid = 0
        self.exit_code: int | None = None
        """The child process's exit code; None until the process has ended."""
        self.errors = ""
        """The child process's output on stderr; empty until the process has ended."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
            stack.callback(self._end, process, errors)
            line = self._first_line(process)
            words = dict(word.partition("=")[::2] for word in (line or "").split()[1:] if "=" in word)
            if {"namesrv", "broker", "pid"} <= words.keys():
                self.namesrv, self.broker, self.pid = words["namesrv"], words["broker"], int(words["pid"])
                self._running = stack.pop_all()
                return self
            if line is not None:
                # The first line of the broker's output is not the READY line, so the broker is ending.
                # The end of the broker is awaited, because the exit code shows why no READY line was printed.
                process.wait(STOP_TIMEOUT_S)
        if line is None:
            raise CommandError(f"the broker was not ready within {self._start_timeout_s:g} s: {self.errors}")
        said = self.errors.splitlines()[-1:] or [f"it ended with exit code {self.exit_code}"]
        text = f"the broker did not start: {said[0].removeprefix('flintmq: error: ')}"
        raise CommandError(text, passed_on(self.exit_code))

    def __exit__(self, *exception: object) -> None:
        self._running.close()

    def _first_line(self, process: subprocess.Popen[bytes]) -> str | None:
        """Return the first line of the process's output; None if the line does not arrive in time."""
        assert process.stdout is not None
        deadline_s = time.monotonic() + self._start_timeout_s
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in found:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    return None
                some = os.read(process.stdout.fileno(), 65536)
                if not some:
                    break
                found += some
        return found.decode("utf-8", "replace").partition("\n")[0]

    def _end(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        process.terminate()
        try:
            self.exit_code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.exit_code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        errors.seek(0)
        self.errors = errors.read().decode("utf-8", "replace").strip()
