"""What was added to a table since its file was written, so that the file need not be written for every addition.

A file of lines, each a table in small: ``flint/new-topics`` for ``config/topics.json``. A line is the operating system's when
:meth:`ConfigJournal.append` returns, so a killed broker finds it again, as it finds what RocketMQ writes; only the file itself
is synced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError, store_error_kind
from flintmq.core.io import fastjson
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK


class ConfigJournal:
    """The additions to one file. Not thread-safe; all calls block on the disk, none for a sync.

    Args:
        path: where they are noted; the folder is made with the first.
        disk: where that lies.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self._disk = disk
        self._size_bytes: int | None = None
        """Of the file; None while that is not known."""

    def append(self, addition: Mapping[str, Any]) -> None:
        """Note an addition.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full).
        """
        # A line that the disk took half of is ended by the next one's first character.
        line = b"\n%b\n" % fastjson.dumps(addition).encode("utf-8")
        try:
            end = self._size_bytes
            if end is None:
                self._disk.make_folder(self.path.parent)
                end = self._disk.size(self.path) if self._disk.exists(self.path) else 0
            self._size_bytes = None
            self._disk.write_at(self.path, end, line)
            self._size_bytes = end + len(line)
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{self.path}: cannot be written: {error.strerror or error}") from error
        except StoreError as error:
            raise type(error)(f"{self.path}: cannot be written: {error}") from error

    def additions(self) -> Iterator[Mapping[str, Any]]:
        """What was noted, in order; a line that a crash cut short is left out.

        Raises:
            StoreFormatError: the file cannot be read.
        """
        try:
            lines = self._disk.read(self.path).split(b"\n")
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
        """Forget everything: the file has it. That it is still there after a power cut does no harm."""
        self._size_bytes = None
        with contextlib.suppress(OSError):
            self._disk.discard(self.path)
