"""Which broker wrote which part of the log: the store's id and its epochs, in ``flint/epochs``.

::

    {"format": 1, "store_id": "<32 hex>", "epochs": [
        {"number": 1, "start_offset_bytes": 0,    "id": "<16 hex>", "cause": "created"},
        {"number": 3, "start_offset_bytes": 8192, "id": "<16 hex>", "cause": "recovered"}], "crc32": "<8 hex>"}

A physical offset alone does not name a record for ever: a recovery may cut the log's end, and what is appended then lies where
other records lay. An epoch is a stretch of the log within which that did not happen. A new one begins

* at the new end, when a recovery took something off the log's end, or could have: after anything but a clean stop or the mere
  death of the process (cause ``recovered``);
* at the end, when a broker becomes master of slaves (cause ``master``), so that two masters that go on from copies of one
  store never share an epoch, even if they append equally much.

So (store id, epoch's id, physical offset) names a byte for ever, and two logs with the same store id are equal up to the end of
the last epoch that they share. A slave takes over its master's store id and epochs.

``crc32`` is that of the canonical JSON (sorted keys, no blanks) of the other members. Numbers grow with starts. Where a new
epoch begins at or before the start of others, it replaces them, and a number is not given twice. The file is replaced in one
step, durably, before anything is appended in the new epoch and before anything is cut.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from flintmq.core.errors import StoreError, StoreFormatError, store_error_kind
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.limits import HA_EPOCHS_MAX

FORMAT: Final = 1
CREATED: Final = "created"
RECOVERED: Final = "recovered"
MASTER: Final = "master"
_CAUSES: Final = (CREATED, RECOVERED, MASTER)
_STORE_ID_BYTES: Final = 16
_EPOCH_ID_BYTES: Final = 8
_ENTRIES_MAX: Final = 100_000
_OFFSET_MAX: Final = 2**63 - 1

MakeId = Callable[[int], str]
"""So many random bytes as hexadecimal digits."""


def random_id(length_bytes: int) -> str:
    """Return an id that cannot be guessed; what ``secrets.token_hex`` does, without the OpenSSL that comes with its module."""
    return os.urandom(length_bytes).hex()


class Epoch(msgspec.Struct, frozen=True):
    """A stretch of the log, up to the start of the next one or the log's end."""

    number: int
    """Grows from one epoch of a store to the next, perhaps by more than 1."""
    start_offset_bytes: int
    """Physical position of its first byte."""
    id: str
    """A random id that distinguishes it from the epoch of the same number in a copy of the store."""
    cause: str
    """Why it began: ``created``, ``recovered`` or ``master``."""


class Epochs(msgspec.Struct, frozen=True):
    """A store's id and its epochs, oldest first; never empty, starts and numbers strictly ascending."""

    store_id: str
    entries: tuple[Epoch, ...]

    @classmethod
    def new(cls, start_offset_bytes: int = 0, make_id: MakeId = random_id) -> Self:
        """Return the epochs of a store that is being created: a new id, one epoch."""
        first = Epoch(1, start_offset_bytes, make_id(_EPOCH_ID_BYTES), CREATED)
        return cls(make_id(_STORE_ID_BYTES), (first,))

    @property
    def current(self) -> Epoch:
        """The epoch that is appended to."""
        return self.entries[-1]

    def at(self, physical_offset_bytes: int) -> Epoch:
        """Return the epoch that holds a position; the oldest known one for a position before all of them."""
        for epoch in reversed(self.entries):
            if epoch.start_offset_bytes <= physical_offset_bytes:
                return epoch
        return self.entries[0]

    def end_offset_bytes(self, epoch: Epoch, log_end_offset_bytes: int) -> int:
        """Return where an epoch of these ends: the next one's start, or the log's end."""
        index = self.entries.index(epoch) + 1
        return self.entries[index].start_offset_bytes if index < len(self.entries) else log_end_offset_bytes

    def begun(self, start_offset_bytes: int, cause: str, make_id: MakeId = random_id) -> Self:
        """Return these and a new epoch, which replaces those that begin at its start or behind it."""
        kept = tuple(epoch for epoch in self.entries if epoch.start_offset_bytes < start_offset_bytes)
        made = Epoch(self.current.number + 1, start_offset_bytes, make_id(_EPOCH_ID_BYTES), cause)
        return msgspec.structs.replace(self, entries=(*kept, made))

    def kept_from(self, min_offset_bytes: int) -> Self:
        """Without epochs whose every byte lies before a position (the log's oldest), and without the oldest of very many."""
        entries = self.entries
        while len(entries) > 1 and entries[1].start_offset_bytes <= min_offset_bytes:
            entries = entries[1:]
        entries = entries[-HA_EPOCHS_MAX:]
        return msgspec.structs.replace(self, entries=entries)

    def cut_at(self, end_offset_bytes: int) -> Self:
        """Return the epochs of a log that ends at a position: without epochs that begin behind it."""
        kept = tuple(epoch for epoch in self.entries if epoch.start_offset_bytes <= end_offset_bytes)
        return msgspec.structs.replace(self, entries=kept or self.entries[:1])

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "store_id": self.store_id,
            "epochs": [msgspec.structs.asdict(epoch) for epoch in self.entries],
        }
        content["crc32"] = _checksum(content)
        return json.dumps(content, indent=1).encode("ascii") + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read what :meth:`to_bytes` wrote; every field is checked.

        Raises:
            ValueError: it is damaged, or of a later format; says what is wrong.
        """
        try:
            content = json.loads(raw)
            found = content.pop("crc32")
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, this version reads {FORMAT}")
            if found != _checksum(content):
                raise ValueError("the checksum is wrong")
            entries = tuple(Epoch(**entry) for entry in content["epochs"])
            epochs = cls(content["store_id"], entries)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        epochs._check()
        return epochs

    def _check(self) -> None:
        if not _is_hex(self.store_id, _STORE_ID_BYTES):
            raise ValueError("store_id is not a store id")
        if not 0 < len(self.entries) <= _ENTRIES_MAX:
            raise ValueError(f"{len(self.entries)} epochs")
        number, start = 0, -1
        for epoch in self.entries:
            if type(epoch.number) is not int or type(epoch.start_offset_bytes) is not int:
                raise ValueError("number and start_offset_bytes must be whole numbers")
            if epoch.number <= number or not start < epoch.start_offset_bytes <= _OFFSET_MAX:
                raise ValueError(f"epoch {epoch.number} at {epoch.start_offset_bytes} is out of order")
            if not _is_hex(epoch.id, _EPOCH_ID_BYTES) or epoch.cause not in _CAUSES:
                raise ValueError(f"epoch {epoch.number} has no valid id or cause")
            number, start = epoch.number, epoch.start_offset_bytes


class EpochFile:
    """``flint/epochs`` of a store that is open. Loop thread.

    Args:
        disk: where it lies.
        path: the file.
        start_offset_bytes: where the first epoch begins if the file is to be made: the log's oldest position.
        make_id: makes ids.

    Raises:
        StoreFormatError: it is damaged. Says what may be done.
        StoreError: it cannot be written (StoreFullError: no room).
    """

    def __init__(self, disk: Disk, path: Path, start_offset_bytes: int = 0, make_id: MakeId = random_id) -> None:
        self._disk = disk
        self._make_id = make_id
        self.path = path
        found = _load(disk, path)
        self.epochs: Epochs
        """Those in force."""
        if found is not None:
            self.epochs = found
        else:
            self.replace(Epochs.new(start_offset_bytes, make_id))

    def begin(self, start_offset_bytes: int, cause: str, min_offset_bytes: int = 0) -> Epoch:
        """Begin a new epoch, durably; forget those whose every byte is deleted. Raises StoreError, and then all is as
        it was.

        Args:
            start_offset_bytes: where it begins.
            cause: :data:`RECOVERED` or :data:`MASTER`.
            min_offset_bytes: the log's oldest position.
        """
        self.replace(self.epochs.begun(start_offset_bytes, cause, self._make_id).kept_from(min_offset_bytes))
        return self.epochs.current

    def begin_as_master(self, end_offset_bytes: int, min_offset_bytes: int) -> None:
        """Begin a master's epoch at the log's end, durably. Raises StoreError, and then all is as it was."""
        current = self.epochs.current
        # What the recovery of this start or the last one found out is still true, and slaves must know of it.
        recovered = current.start_offset_bytes == end_offset_bytes and current.cause == RECOVERED
        self.begin(end_offset_bytes, RECOVERED if recovered else MASTER, min_offset_bytes)

    def replace(self, epochs: Epochs) -> None:
        """Take over other epochs, durably: a slave's from its master. Raises StoreError, and then all is as it was."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            self._disk.make_folder(self.path.parent)
            self._disk.write_file(temporary, epochs.to_bytes())
            self._disk.replace(temporary, self.path)
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{self.path}: cannot be written: {error.strerror or error}") from error
        self.epochs = epochs


def epochs_path(store: Path) -> Path:
    """Return where a store in a folder has its epochs."""
    return store / "flint" / "epochs"


def read_epochs(store: Path, disk: Disk = OS_DISK) -> Epochs | None:
    """Return the epochs of a store in a folder, which may be in use by a broker; None where it has none yet.

    Raises:
        StoreFormatError: the file is damaged. Says what may be done.
        StoreError: it cannot be read.
    """
    return _load(disk, epochs_path(store))


def _load(disk: Disk, path: Path) -> Epochs | None:
    if not disk.exists(path):
        return None
    try:
        return Epochs.from_bytes(disk.read(path))
    except ValueError as error:
        raise StoreFormatError(
            f"{path} is damaged ({error}). Put back a good copy of it; or move it away, and the store gets a new id at its "
            "next start: slaves and readers of its log must then be set up again"
        ) from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from error


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
    return f"{zlib.crc32(canonical):08x}"


def _is_hex(text: object, length_bytes: int) -> bool:
    if not isinstance(text, str) or len(text) != 2 * length_bytes:
        return False
    return all(character in "0123456789abcdef" for character in text)
