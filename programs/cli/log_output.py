"""Sets up the log of FlintMQ's commands: on stderr or in a file."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.log_lines import OwnOutput


class _Stderr(OwnOutput, logging.StreamHandler):  # type: ignore[type-arg]
    """A log handler that writes to the current ``sys.stderr``."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


def configure(level: str, *, is_json: bool, file: Path | None) -> None:
    """Set up the log of this process: FlintMQ's loggers from ``level`` on, and libraries' from WARNING on.

    Each call replaces the previous setup.

    Args:
        level: the level of FlintMQ's loggers.
        is_json: whether each line is JSON.
        file: the file to append to; None for stderr.

    Raises:
        CommandError: the file cannot be written.
    """
    flintmq = logging.getLogger("flintmq")
    flintmq.setLevel(level.upper())
    output: OwnOutput = _Stderr() if file is None else _opened(file)
    output.is_json = is_json
    output.name_lines("")
    before = set(_outputs())
    for logger in (flintmq, logging.getLogger("asyncio")):
        logger.handlers[:] = [one for one in logger.handlers if one not in before]
        logger.addHandler(output)
    # logging.lastResort is replaced, because Python's default handler ignores the log's format and file, and uses stderr.
    logging.lastResort = output
    for one in before:
        one.close()


def _opened(file: Path) -> OwnOutput:
    from flintmq.programs.cli.log_file import LogFile

    try:
        return LogFile(Path(os.path.abspath(file)))  # noqa: PTH100 - symbolic links stay as they were written
    except OSError as error:
        raise CommandError(f"--log-file {file} cannot be written: {error.strerror or error}", ExitCode.USAGE) from error


def _outputs() -> list[OwnOutput]:
    return [one for one in logging.getLogger("flintmq").handlers if isinstance(one, OwnOutput)]


def log_arguments() -> list[str]:
    """Return the command-line options with which another process logs in this process's format to the same place."""
    level = logging.getLevelName(logging.getLogger("flintmq").level).lower()
    found = ["--log-level", level]
    for output in _outputs():
        found += ("--log-format", "json") if output.is_json else ()
        found += ("--log-file", str(output.file)) if output.file is not None else ()
    return found


def name_in_log(name: str) -> None:
    """Add this process's name to each log line, for a log that several processes write."""
    for output in _outputs():
        output.name_lines(name)
