"""The outputs of a serving process: stdout, stderr and the log file, each written by a separate thread.

Without these threads, a full pipe, a suspended terminal, or a file on a hanging disk would block the event loop when it logs.
All clients would wait, and the process could not stop.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

from flintmq.core.kernel.hookspecs import hookimpl
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.kernel.ports.metrics import Measurement
from flintmq.core.log_events import event_log
from flintmq.programs.cli.exits import warn
from flintmq.programs.cli.log_file import LogFile
from flintmq.programs.cli.output_thread import OutputThread, write_all

if TYPE_CHECKING:
    from flintmq.core.kernel.hookspecs import ApiContext, RegisterService

log = event_log("flintmq.log")

END_TIMEOUT_S: Final = 1.0
"""Maximum number of seconds that an ending process waits until its log lines are written."""
_BLOCKED_SHOWN_S: Final = 5.0
_STREAMS: Final = ("stdout", "stderr")


def _encoding_of(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _errors_of(stream: TextIO) -> str:
    return getattr(stream, "errors", None) or "strict"


class _Stream(io.TextIOBase):
    """Replaces stdout or stderr of the process. Whole lines go to the output thread at once, an unfinished line at ``flush``.
    Can be used from any thread."""

    def __init__(self, stream: TextIO, thread: OutputThread) -> None:
        self._stream = stream
        self._thread = thread
        self._rest = ""
        self._lock = threading.RLock()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return _encoding_of(self._stream)

    @property
    def errors(self) -> str:  # type: ignore[override]
        return _errors_of(self._stream)

    @property
    def buffer(self) -> object:
        """The buffer of the original stream, for code that writes bytes and may wait."""
        return self._stream.buffer

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._lock:
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
            self._put(lines + newline)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            rest, self._rest = self._rest, ""
            self._put(rest)

    def _put(self, text: str) -> None:
        if text:
            self._thread.put(text.encode(self.encoding, self.errors))


class ServingOutput:
    """The outputs of this process while it serves, from :meth:`begin` to :meth:`end`. For the main thread only, except methods
    that say otherwise.

    The object is also a plugin of the broker. The plugin's service provides figures and an alarm.
    """

    plugin_name = "serving_output"

    def __init__(self) -> None:
        self._threads: list[OutputThread] = []
        self._replaced: dict[str, TextIO] = {}
        self._files: list[LogFile] = []

    def begin(self) -> bool:
        """Make a separate thread write each output. Idempotent.

        Returns:
            False if the threads already ran.
        """
        if self._threads:
            return False
        for name in _STREAMS:
            stream: TextIO | None = getattr(sys, name)
            # sys.stdout or sys.stderr is None if its descriptor was closed before the process began.
            if stream is not None:
                stream.flush()
                thread = self._thread(name, stream)
                self._replaced[name] = stream
                setattr(sys, name, _Stream(stream, thread))
        for file in (one for one in logging.getLogger("flintmq").handlers if isinstance(one, LogFile)):
            file.thread = OutputThread(str(file.file), file.write, lost=self._told(str(file.file)), failed=_lines_lost)
            self._threads.append(file.thread)
            self._files.append(file)
        return True

    def _thread(self, name: str, stream: TextIO) -> OutputThread:
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError, ValueError):
            # A stream that is an object in memory, as in tests, has no file descriptor.

            def write(data: bytes) -> None:
                stream.write(data.decode(_encoding_of(stream), _errors_of(stream)))
                stream.flush()
        else:

            def write(data: bytes) -> None:
                write_all(descriptor, data)

        thread = OutputThread(name, write, lost=self._told(name))
        self._threads.append(thread)
        return thread

    @staticmethod
    def _told(name: str) -> Callable[[int, str], None]:
        return lambda lines, reason: log.warning(
            "log.lost", "%(lines)d lines of %(output)s are lost: %(reason)s", lines=lines, output=name, reason=reason
        )

    def end(self) -> None:
        """Wait at most :data:`END_TIMEOUT_S` seconds until the output threads have written everything. Then restore
        ``sys.stdout`` and ``sys.stderr``, which :meth:`begin` replaced. Idempotent.

        If an output is blocked, it keeps its thread and is not restored, so that the process does not wait for the output. The
        thread ends with the process.
        """
        for name in self._replaced:
            getattr(sys, name).flush()
        until_s = time.monotonic() + END_TIMEOUT_S
        written = {thread for thread in self._threads if thread.flush(max(0.0, until_s - time.monotonic()))}
        for file in self._files:
            if file.thread in written:
                file.thread = None
        for name, stream in self._replaced.items():
            mine = getattr(sys, name)
            if isinstance(mine, _Stream) and mine._thread in written:
                setattr(sys, name, stream)
        for thread in written:
            thread.end()
        self._threads, self._replaced, self._files = [], {}, []

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("serving_output", self._service)

    def _service(self, _context: ApiContext[object]) -> ServingOutput:
        return self

    def start(self) -> None:
        """Do nothing when the broker starts its services: the process owns the output threads."""

    def stop(self) -> None:
        """Do nothing when the broker stops its services: the process owns the output threads."""

    @property
    def lost_lines(self) -> int:
        """Number of log lines that were lost since the process began to serve. Can be called from any thread."""
        return sum(thread.lost_lines for thread in self._threads)

    def runtime_info(self) -> dict[str, str]:
        """Return the runtime figure ``logLinesLost``, the number of lost log lines."""
        return {"logLinesLost": str(self.lost_lines)}

    def metrics(self) -> Iterator[Measurement]:
        """Yield a metric for each output: the number of lost log lines."""
        meaning = "Lines of stdout, stderr or the log file that are lost, because nobody took them."
        for thread in self._threads:
            yield Measurement(
                "flintmq_log_lines_lost_total", thread.lost_lines, {"output": thread.name}, "counter", meaning
            )

    def alarms(self) -> Iterator[Alarm]:
        """Yield an alarm for each output that is blocked now."""
        for thread in self._threads:
            blocked_s = thread.blocked_s
            if blocked_s >= _BLOCKED_SHOWN_S:
                text = (
                    f"{thread.name} has taken no line for {blocked_s:.0f} s, {thread.lost_lines:,} are lost so far: look at "
                    "what reads it (the log driver, the terminal), or at the disk of the log file"
                )
                yield Alarm("log.blocked", WARNING, thread.name, text, round(blocked_s * 1000), "ms")


def _lines_lost(error: OSError) -> None:
    warn(f"lines of the log are lost: {error}")


SERVING_OUTPUT: Final = ServingOutput()
"""The outputs of this process: stdout, stderr and the log file."""
