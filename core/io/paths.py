"""The paths of a store's files. Only these functions make a path from a name that a client chose. They check each name, even if
it was checked before.

See docs/internals/reliability.md, Hostile input.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flintmq.core.errors import StoreFormatError
from flintmq.core.limits import TOPIC_MAX_BYTES

_SAFE = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_DIGITS: Final = 20
RESTORE_MARK: Final = "restore-not-finished"
"""Name of a file in ``commitlog`` that exists until a restore has written the whole log.

Neither FlintMQ nor RocketMQ starts on a store with this file."""
RESTORE_NOT_FINISHED: Final = (
    "a restore into this folder was broken off, and the store is not whole: remove its folder, and restore it again"
)


def topic_folder(root: Path, topic: str) -> Path:
    """Return ``root/topic``, after checking that the topic's name cannot lead to another folder.

    Raises:
        StoreFormatError: the name has characters other than ``[%|a-zA-Z0-9_-]``, or more than 127 characters.
    """
    if len(topic) > TOPIC_MAX_BYTES or not _SAFE.fullmatch(topic):
        raise StoreFormatError(f"topic {topic[:140]!r} cannot be a folder's name")
    return root / topic


def queue_folder(root: Path, topic: str, queue_id: int) -> Path:
    """Return ``root/topic/queueId``, with the checks of :func:`topic_folder`."""
    if queue_id < 0:
        raise StoreFormatError(f"queue {queue_id} of topic {topic!r} cannot be a folder's name")
    return topic_folder(root, topic) / str(queue_id)


def file_name(start_offset_bytes: int) -> str:
    """Return the name of a log file: the physical offset of its first byte in 20 digits (docs/internals/store-format.md,
    Folders)."""
    return f"{start_offset_bytes:0{_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Return whether a name is a valid name for a file of a log or a queue."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def ends_path(root: Path) -> Path:
    """Return the path of the file in which a store records the end positions of its log and its queues."""
    return root / "flint" / "ends"


def feed_path(root: Path) -> Path:
    """Return the path of the file in which a broker publishes the positions up to which Spark may read the store's log."""
    return root / "flint" / "feed"


_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def sync_folder(folder: Path) -> None:
    """Sync a folder, which makes the creation and removal of names in it durable. Raises OSError."""
    with named_durably(folder):
        pass


def sync_file(file: Path) -> None:
    """Sync the content of a file that any process has written. Raises OSError."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


@contextlib.contextmanager
def named_durably(folder: Path) -> Iterator[None]:
    """Run a ``with`` body that creates or removes names in a folder, then sync the folder. The folder is opened before the body
    runs."""
    fd = os.open(folder, _FOLDER)
    try:
        yield
        os.fsync(fd)
    finally:
        os.close(fd)
