"""Writes into a backup's folder, or the folder of a store that is restored: every change of either is made here."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from flintmq.core.errors import StoreError, StoreFullError
from flintmq.core.io.paths import sync_folder

CHUNK_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(CHUNK_BYTES)
_PRIVATE: Final = 0o600
"""Messages and accounts are for the one who makes the backup."""


class Pace:
    """Keeps a copy to so many bytes per second. One thread.

    Args:
        bytes_per_s: at most; 0 for as fast as it goes.
        monotonic: seconds from some moment on.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        bytes_per_s: int = 0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._due_s = monotonic()

    def take(self, size_bytes: int) -> None:
        """Wait until so many more bytes may be copied. What was not used up while the disk was slow is not made up for."""
        if self._bytes_per_s:
            now_s = self._monotonic()
            if self._due_s > now_s:
                self._sleep(self._due_s - now_s)
            self._due_s = max(self._due_s, now_s) + size_bytes / self._bytes_per_s


class Writer:
    """Changes files of one folder. One thread. All methods raise StoreError, and StoreFullError where the disk is full.

    Nothing that is written is durable before :meth:`settle`, but for :meth:`replace`.
    """

    def __init__(self) -> None:
        self._unsynced: dict[Path, None] = {}
        self._unnamed: dict[Path, None] = {}

    def step(self, kind: str, path: Path) -> None:
        """Do nothing; called before each change. A test ends a backup here."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents."""
        for path in reversed([folder, *folder.parents]):
            if not path.is_dir():
                with self._changing("folder", path):
                    path.mkdir(mode=0o700)
                self._unnamed[path.parent] = None

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a small file."""
        self.make_folder(path.parent)
        with self._changing("file", path), _opened(path) as fd:
            os.ftruncate(fd, 0)
            _pwrite(fd, data, 0)
        self._note(path)

    def extend(self, path: Path, position: int, chunks: Iterable[bytes], size_bytes: int) -> None:
        """Write a part of a file, which then has a size; chunks of zeros become holes.

        Args:
            path: the file; it is made where it is missing.
            position: where the part begins. What lies behind that is forgotten first.
            chunks: the part's bytes, in pieces.
            size_bytes: of the file in the end.
        """
        self.make_folder(path.parent)
        self._note(path)
        with self._changing("cut", path), _opened(path) as fd:
            os.ftruncate(fd, position)
        for chunk in chunks:
            if chunk != _ZEROS[: len(chunk)]:
                with self._changing("write", path), _opened(path) as fd:
                    _pwrite(fd, chunk, position)
            position += len(chunk)
        with self._changing("grow", path), _opened(path) as fd:
            os.ftruncate(fd, size_bytes)

    def settle(self) -> None:
        """Make durable what was written."""
        for path in self._unsynced:
            with self._changing("sync", path), _opened(path) as fd:
                os.fsync(fd)
        for folder in self._unnamed:
            with self._changing("sync", folder):
                sync_folder(folder)
        self._unsynced.clear()
        self._unnamed.clear()

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a small file, or make it, in one step and durably."""
        temporary = path.with_name(path.name + ".tmp")
        self.write_file(temporary, data)
        self.settle()
        with self._changing("replace", path):
            temporary.replace(path)
        with self._changing("sync", path.parent):
            sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder; a missing one is not an error."""
        with self._changing("remove", path), contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()

    def _note(self, path: Path) -> None:
        self._unsynced[path] = None
        self._unnamed[path.parent] = None

    @contextlib.contextmanager
    def _changing(self, kind: str, path: Path) -> Iterator[None]:
        self.step(kind, path)
        try:
            yield
        except OSError as error:
            _refuse(path, error)


def _refuse(path: Path, error: OSError) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise StoreFullError(f"{path}: no room on the disk; make some, and run it again") from error
    raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    try:
        yield fd
    finally:
        os.close(fd)


def _pwrite(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written
