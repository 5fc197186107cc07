"""What was added to a table since its file was written, so that the file need not be written for every addition.

A file of lines, each a table in small: ``flint/new-topics`` for ``config/topics.json``. A line is the operating system's when
:meth:`ConfigJournal.append` returns, so a killed broker finds it again, as it finds what RocketMQ writes; only the file itself
is synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flintmq.core.errors import JsonSyntaxError, StoreFormatError, store_error_kind
from flintmq.core.io import fastjson


class ConfigJournal:
    """The additions to one file. Not thread-safe; all calls block on the disk, none for a sync.

    Args:
        path: where they are noted; the folder is made with the first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, addition: Mapping[str, Any]) -> None:
        """Notes an addition.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full).
        """
        # A line that the disk took half of is ended by the next one's first character.
        line = b"\n%b\n" % fastjson.dumps(addition).encode("utf-8")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                written = os.write(fd, line)
            finally:
                os.close(fd)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def additions(self) -> Iterator[Mapping[str, Any]]:
        """What was noted, in order; a line that a crash cut short is left out.

        Raises:
            StoreFormatError: the file cannot be read.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFormatError(f"{self.path}: {error.strerror}") from error
        for line in lines:
            with contextlib.suppress(JsonSyntaxError):
                addition = fastjson.loads(line) if line.strip() else None
                if isinstance(addition, Mapping):
                    yield addition

    def clear(self) -> None:
        """Forgets everything: the file has it. That it is still there after a power cut does no harm."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
