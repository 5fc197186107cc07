"""Makes all changes to a backup's folder, and to the folder of a store that is restored."""

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
"""File mode of a backup's files: only the user who makes the backup can read the messages and accounts."""


class Pace:
    """Limits the speed of a copy. Not thread-safe.

    Args:
        bytes_per_s: the limit; 0 for none.
        monotonic: a clock in seconds.
        sleep: waits for some seconds.
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
        """Wait until a number of further bytes may be copied. If a slow disk has delayed the copy, the copy does not become
        faster than the limit afterwards."""
        if self._bytes_per_s:
            now_s = self._monotonic()
            if self._due_s > now_s:
                self._sleep(self._due_s - now_s)
            self._due_s = max(self._due_s, now_s) + size_bytes / self._bytes_per_s


class Writer:
    """Changes files in one folder. Not thread-safe. Methods raise StoreError, and StoreFullError if the disk is full.

    Changes are durable only after :meth:`settle`, except for :meth:`replace`.
    """

    def __init__(self) -> None:
        self._unsynced: dict[Path, None] = {}
        self._unnamed: dict[Path, None] = {}

    def step(self, kind: str, path: Path) -> None:
        """Do nothing; this method is called before each change of a file. Tests override it to interrupt a backup."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents if they do not exist."""
        for path in reversed([folder, *folder.parents]):
            if not path.is_dir():
                with self._changing("folder", path):
                    path.mkdir(mode=0o700)
                self._unnamed[path.parent] = None

    def write_file(self, path: Path, data: bytes) -> None:
        """Create or overwrite a small file with some bytes."""
        self.make_folder(path.parent)
        with self._changing("file", path), _opened(path) as fd:
            os.ftruncate(fd, 0)
            _pwrite(fd, data, 0)
        self._note(path)

    def extend(self, path: Path, position: int, chunks: Iterable[bytes], size_bytes: int) -> None:
        """Write a part of a file and set the file's size. Chunks of zeros become holes.

        Args:
            path: the file; created if it does not exist.
            position: the position of the part. The file is first truncated there.
            chunks: the bytes of the part.
            size_bytes: the file's final size.
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
        """Sync all changed files and folders to disk."""
        for path in self._unsynced:
            with self._changing("sync", path), _opened(path) as fd:
                os.fsync(fd)
        for folder in self._unnamed:
            with self._changing("sync", folder):
                sync_folder(folder)
        self._unsynced.clear()
        self._unnamed.clear()

    def replace(self, path: Path, data: bytes) -> None:
        """Create or replace a small file in one step, and sync it."""
        temporary = path.with_name(path.name + ".tmp")
        self.write_file(temporary, data)
        self.settle()
        with self._changing("replace", path):
            temporary.replace(path)
        with self._changing("sync", path.parent):
            sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder, if it exists."""
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
        raise StoreFullError(f"{path}: the disk is full; free some space, and run the command again") from error
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
