"""Where FlintMQ's commands log to: stderr, or a file that may be moved away."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

from flintmq.programs.cli.exits import CommandError, ExitCode
from flintmq.programs.cli.log_lines import OwnOutput


class _Stderr(OwnOutput, logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what stderr is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


def configure(level: str, *, is_json: bool, file: Path | None) -> None:
    """Have all loggers write to stderr or a file in FlintMQ's form, those of libraries from WARNING on; the last call counts.

    Args:
        level: of FlintMQ's loggers.
        is_json: a line of JSON each.
        file: appended to; None for stderr.

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
    logging.lastResort = output  # Python's own writes bare text to stderr, whatever the format and the file are
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
    """Return the options by which another process logs as this one does, to the same place."""
    level = logging.getLevelName(logging.getLogger("flintmq").level).lower()
    found = ["--log-level", level]
    for output in _outputs():
        found += ("--log-format", "json") if output.is_json else ()
        found += ("--log-file", str(output.file)) if output.file is not None else ()
    return found


def name_in_log(name: str) -> None:
    """Have every line of this process's log say whose it is, where several processes write to one log."""
    for output in _outputs():
        output.name_lines(name)
