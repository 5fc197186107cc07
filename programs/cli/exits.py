"""Exit codes of ``flintmq``, and its error and warning lines on stderr."""

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
    """The exit codes of the ``flintmq`` command."""

    OK = 0
    FAILED = 1
    """Exit code if a broker refused a request, nothing was found, or fewer messages arrived than requested."""
    USAGE = 2
    """Exit code if the command line, a configuration or a plugin is not valid."""
    STORE = 3
    """Exit code if the store is locked by another broker, has another format, is full, or cannot be read."""
    NETWORK = 4
    """Exit code if a port is in use, or no server answers at an address."""
    FENCED = 5
    """Exit code if a sync failed, so that the broker stopped itself."""
    INTERRUPTED = 130
    """Exit code if the command was interrupted with Ctrl-C."""


_CODES: Final[dict[type[BaseException], ExitCode]] = {
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    ConfigError: ExitCode.USAGE,
    PluginError: ExitCode.USAGE,
    StoreFencedError: ExitCode.FENCED,
    StoreError: ExitCode.STORE,
    RemotingError: ExitCode.NETWORK,
}
"""Exit codes, keyed by the type of the error. If an error has several of the types, the first of these types determines the
exit code."""


class CommandError(Exception):
    """An error of a command, with its exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def passed_on(code: int | None) -> ExitCode:
    """Return the exit code of a command whose child process ended before it was ready, from the child's exit code."""
    return ExitCode(code) if code and code in set(ExitCode) else ExitCode.FAILED


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of ``flintmq`` for an exception."""
    if isinstance(error, CommandError):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.FAILED)


def report(error: BaseException) -> ExitCode:
    """Write an error to stderr as one line, after its traceback if the log level is debug, and return its exit code."""
    if logging.getLogger("flintmq").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, (FlintError, ConfigError, CommandError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    complain(text)
    return exit_code_of(error)


def finished(work: Callable[[], object], usage: Callable[[Exception], int | None] | None = None) -> int:
    """Run a command's function, report an error that it raises, and return the exit code.

    Args:
        work: the function. An int that it returns is the exit code.
        usage: returns an exit code for an error that it has reported; None if the error is still to be reported.
    """
    try:
        outcome = work()
    except BrokenPipeError:
        # BrokenPipeError means that the reader of standard output has ended, as in `flintmq consume T | head`.
        # Standard output becomes /dev/null, so that the interpreter's flush at the end of the process does not fail.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        code = usage(error) if usage is not None else None
        return report(error) if code is None else code
    return outcome if isinstance(outcome, int) else ExitCode.OK


def take_any_text() -> None:
    """Make stdout and stderr write characters that their encoding lacks as ``\\xNN``, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def complain(text: str) -> None:
    """Write one line to stderr, marked as an error."""
    print(f"flintmq: error: {escape_all(text)}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Write one line to stderr, marked as a warning."""
    print(f"flintmq: warning: {escape_all(text)}", file=sys.stderr, flush=True)
