"""Where files lie. Names that come from clients become folders here, and only here; each is checked a second time
(docs/internals/reliability.md, Hostile input).
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
"""A file that lies in ``commitlog`` until a restore has written all of the log: no broker, of either kind, starts on a store
with it."""
RESTORE_NOT_FINISHED: Final = (
    "a restore into this folder was broken off, and the store is not whole: remove its folder, and restore it again"
)


def topic_folder(root: Path, topic: str) -> Path:
    """``root/topic`` for a topic whose name cannot lead anywhere else.

    Raises:
        StoreFormatError: the name has characters beyond ``[%|a-zA-Z0-9_-]`` or more than 127 of them.
    """
    if len(topic) > TOPIC_MAX_BYTES or not _SAFE.fullmatch(topic):
        raise StoreFormatError(f"topic {topic[:140]!r} cannot be a folder's name")
    return root / topic


def queue_folder(root: Path, topic: str, queue_id: int) -> Path:
    """``root/topic/queueId``, checked as :func:`topic_folder` does."""
    if queue_id < 0:
        raise StoreFormatError(f"queue {queue_id} of topic {topic!r} cannot be a folder's name")
    return topic_folder(root, topic) / str(queue_id)


def file_name(start_offset_bytes: int) -> str:
    """Return the name of the file of a log that starts at a position: 20 digits (docs/internals/store-format.md,
    Folders)."""
    return f"{start_offset_bytes:0{_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Return whether a file of a log, or of a queue, can have a name."""
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def ends_path(root: Path) -> Path:
    """Return where a store notes how far its files went."""
    return root / "flint" / "ends"


def feed_path(root: Path) -> Path:
    """Return where the feed of a store lies."""
    return root / "flint" / "feed"


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
