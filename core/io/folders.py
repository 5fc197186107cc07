"""Names that files have in folders, made durable."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def sync_folder(folder: Path) -> None:
    """Make the names that were made or removed in a folder durable. Raises OSError."""
    with named_durably(folder):
        pass


def sync_file(file: Path) -> None:
    """Make the bytes of a file that somebody has written durable. Raises OSError."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


@contextlib.contextmanager
def named_durably(folder: Path) -> Iterator[None]:
    """Make the names durable that the body makes or removes in a folder, which is opened before anything is changed."""
    fd = os.open(folder, _FOLDER)
    try:
        yield
        os.fsync(fd)
    finally:
        os.close(fd)
