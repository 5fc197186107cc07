"""A FlintMQ of one's own in another process: started, waited for, stopped."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Self

from flintmq.plugins.cli.exits import CommandError, ExitCode

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class ServedChild:
    """``flintmq run`` with these arguments, for the length of a ``with`` statement.

    ``start_timeout_s`` bounds the time until READY: recovering a large store takes its time.

    Raises:
        CommandError: it did not start, with what it said and its exit code.
    """

    def __init__(self, arguments: Sequence[str], *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self._start_timeout_s = start_timeout_s
        self._arguments = [sys.executable, "-m", "flintmq", "run", "--log-level", "warning", *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._said = ""
        self.namesrv = ""
        """``host:port`` of its name server."""
        self.broker = ""
        """``host:port`` of its broker."""
        self.pid = 0
        self.exit_code: int | None = None
        """Known once it has been stopped."""

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors
        )
        try:
            line = self._first_line(self._process)
            words = dict(word.partition("=")[::2] for word in line.split()[1:] if "=" in word)
            if not line.startswith("READY ") or not {"namesrv", "broker", "pid"} <= words.keys():
                raise self._failed(self._process)
        except BaseException:
            self._end()
            raise
        self.namesrv, self.broker, self.pid = words["namesrv"], words["broker"], int(words["pid"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def errors(self) -> str:
        """Return what it wrote to stderr so far."""
        if self._errors is not None:
            self._errors.seek(0)
            return self._errors.read().decode("utf-8", "replace").strip()
        return self._said

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        deadline_s = time.monotonic() + self._start_timeout_s
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in found:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    raise CommandError(f"the broker was not ready within {self._start_timeout_s:g} s: {self.errors}")
                some = os.read(process.stdout.fileno(), 65536)
                if not some:
                    break
                found += some
        return found.decode("utf-8", "replace").partition("\n")[0]

    def _failed(self, process: subprocess.Popen[bytes]) -> CommandError:
        code = process.wait(STOP_TIMEOUT_S)
        said = self.errors.splitlines()[-1:] or [f"it ended with exit code {code}"]
        known = code if code in {int(member) for member in ExitCode} and code else ExitCode.FAILED
        return CommandError(f"the broker did not start: {said[0].removeprefix('flintmq: error: ')}", ExitCode(known))

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            self.exit_code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.exit_code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._said = self.errors
        if self._errors is not None:
            self._errors.close()
            self._errors = None
