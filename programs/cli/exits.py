"""Exit codes of ``flintmq``, and the one line on stderr that says what went wrong."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

from flintmq.config.errors import ConfigError
from flintmq.core.client_log import escape_all
from flintmq.core.errors import FlintError, PluginError, RemotingError, StoreError, StoreFencedError


class ExitCode(enum.IntEnum):
    """The exit codes of the process."""

    OK = 0
    FAILED = 1
    """Refused by a broker, not found, fewer messages than asked for."""
    USAGE = 2
    """The command line, a configuration or a plugin is wrong."""
    STORE = 3
    """Locked by another broker, of another format, full, unreadable."""
    NETWORK = 4
    """A port is in use, or no server answers at an address."""
    FENCED = 5
    """A sync failed, so the broker stopped by itself."""
    INTERRUPTED = 130
    """Ctrl-C while waiting for something."""


_CODES: Final[dict[type[BaseException], ExitCode]] = {
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    ConfigError: ExitCode.USAGE,
    PluginError: ExitCode.USAGE,
    StoreFencedError: ExitCode.FENCED,
    StoreError: ExitCode.STORE,
    RemotingError: ExitCode.NETWORK,
}
"""Of the first that fits."""


class CommandError(Exception):
    """A command fails with this message and this exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def passed_on(code: int | None) -> ExitCode:
    """Return the exit code with which a command ends whose child process ended with this one before it served."""
    return ExitCode(code) if code and code in set(ExitCode) else ExitCode.FAILED


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    if isinstance(error, CommandError):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.FAILED)


def report(error: BaseException) -> ExitCode:
    """Write one line about an error to stderr, with ``--log-level debug`` its traceback before, and return its exit code."""
    if logging.getLogger("flintmq").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, (FlintError, ConfigError, CommandError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    complain(text)
    return exit_code_of(error)


def finished(work: Callable[[], object], usage: Callable[[Exception], int | None] | None = None) -> int:
    """Do the work of a command and return its exit code; what it raises is reported.

    ``usage`` may give another code for an exception, and then has reported what is wrong; None leaves it to be reported.
    """
    try:
        outcome = work()
    except BrokenPipeError:
        # The reader of the output has gone, as in `flintmq consume T | head`; the interpreter must not flush to it again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        code = usage(error) if usage is not None else None
        return report(error) if code is None else code
    return outcome if isinstance(outcome, int) else ExitCode.OK


def take_any_text() -> None:
    """Have stdout and stderr write what their encoding lacks as ``\\xNN``, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def complain(text: str) -> None:
    """Write one line to stderr, marked as an error."""
    print(f"flintmq: error: {escape_all(text)}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Write one line to stderr, marked as a warning."""
    print(f"flintmq: warning: {escape_all(text)}", file=sys.stderr, flush=True)
