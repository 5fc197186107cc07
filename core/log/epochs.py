"""The epochs of a log, which are consecutive parts of the log, and the id of the store, in the file ``flint/epochs``.

::

    {"format": 1, "store_id": "<32 hex>", "epochs": [
        {"number": 1, "start_offset_bytes": 0,    "id": "<16 hex>", "cause": "created"},
        {"number": 3, "start_offset_bytes": 8192, "id": "<16 hex>", "cause": "recovered"}], "crc32": "<8 hex>"}

A physical offset alone does not identify a record permanently: a recovery can cut the log's end, and new records then have the
offsets of the removed records. An epoch is a part of the log in which each offset was used only once. A new epoch begins

* at the new end, if a recovery removed records from the log's end, or may have removed some. This is assumed after every stop
  except a clean stop or a kill of only the process (cause ``recovered``);
* at the end, if a broker becomes a master with slaves (cause ``master``). Thus two masters that continue copies of the same
  store never share an epoch, even if they append the same number of bytes.

Therefore (store id, epoch's id, physical offset) identifies a byte permanently, and two logs with the same store id are equal
up to the end of the last epoch that they share. A slave copies its master's store id and epochs.

``crc32`` is the checksum of the canonical JSON (sorted keys, no blanks) of the other members. Epochs' numbers ascend with their
starts. A new epoch replaces epochs that begin at or after its start, and no number is used twice. The file is replaced
atomically and durably, before the first append in the new epoch and before a cut.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from flintmq.core.errors import StoreError, StoreFormatError, store_error_kind
from flintmq.core.io.chance import secret_bytes
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
"""Function that returns random bytes as hexadecimal digits, given the number of bytes."""


def random_id(length_bytes: int) -> str:
    """Return an unguessable id in hexadecimal, like ``secrets.token_hex`` but without importing OpenSSL."""
    return secret_bytes(length_bytes).hex()


class Epoch(msgspec.Struct, frozen=True):
    """An epoch: a part of the log, up to the start of the next epoch or the log's end."""

    number: int
    """The number of the epoch, which grows by at least 1 from epoch to epoch of a store."""
    start_offset_bytes: int
    """Physical offset of the epoch's first byte."""
    id: str
    """Random id that distinguishes the epoch from the epoch with the same number in a copy of the store."""
    cause: str
    """The reason why the epoch began: ``created``, ``recovered`` or ``master``."""


class Epochs(msgspec.Struct, frozen=True):
    """A store's id and its epochs, oldest first. A store has at least one epoch; starts and numbers ascend strictly."""

    store_id: str
    entries: tuple[Epoch, ...]

    @classmethod
    def new(cls, start_offset_bytes: int = 0, make_id: MakeId = random_id) -> Self:
        """Return the epochs of a new store, which has a new store id and one epoch."""
        first = Epoch(1, start_offset_bytes, make_id(_EPOCH_ID_BYTES), CREATED)
        return cls(make_id(_STORE_ID_BYTES), (first,))

    @property
    def current(self) -> Epoch:
        """The log's last epoch, to which records are appended."""
        return self.entries[-1]

    def at(self, physical_offset_bytes: int) -> Epoch:
        """Return the epoch of a physical offset; the oldest epoch if the offset is before all epochs."""
        for epoch in reversed(self.entries):
            if epoch.start_offset_bytes <= physical_offset_bytes:
                return epoch
        return self.entries[0]

    def end_offset_bytes(self, epoch: Epoch, log_end_offset_bytes: int) -> int:
        """Return the physical end of an epoch: the start of the next epoch, or the log's end."""
        index = self.entries.index(epoch) + 1
        return self.entries[index].start_offset_bytes if index < len(self.entries) else log_end_offset_bytes

    def begun(self, start_offset_bytes: int, cause: str, make_id: MakeId = random_id) -> Self:
        """Return the log's epochs with a new epoch, which replaces the epochs that begin at or after its start."""
        kept = tuple(epoch for epoch in self.entries if epoch.start_offset_bytes < start_offset_bytes)
        made = Epoch(self.current.number + 1, start_offset_bytes, make_id(_EPOCH_ID_BYTES), cause)
        return msgspec.structs.replace(self, entries=(*kept, made))

    def kept_from(self, min_offset_bytes: int) -> Self:
        """Return the newest :data:`HA_EPOCHS_MAX` epochs of the log, without epochs that end before a position."""
        entries = self.entries
        while len(entries) > 1 and entries[1].start_offset_bytes <= min_offset_bytes:
            entries = entries[1:]
        entries = entries[-HA_EPOCHS_MAX:]
        return msgspec.structs.replace(self, entries=entries)

    def cut_at(self, end_offset_bytes: int) -> Self:
        """Return the log's epochs without the epochs that begin after the position at which the log is cut."""
        kept = tuple(epoch for epoch in self.entries if epoch.start_offset_bytes <= end_offset_bytes)
        return msgspec.structs.replace(self, entries=kept or self.entries[:1])

    def to_bytes(self) -> bytes:
        """Return the log's epochs as the content of the file ``flint/epochs``."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "store_id": self.store_id,
            "epochs": [msgspec.structs.asdict(epoch) for epoch in self.entries],
        }
        content["crc32"] = _checksum(content)
        return json.dumps(content, indent=1).encode("ascii") + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the epochs in the content of ``flint/epochs``, after checking every field; the inverse of :meth:`to_bytes`.

        Raises:
            ValueError: the content is damaged, or has a later format; the message gives the reason.
        """
        try:
            content = json.loads(raw)
            found = content.pop("crc32")
            if content["format"] != FORMAT:
                raise ValueError(f"the file has format {content['format']!r}, but this FlintMQ reads format {FORMAT}")
            if found != _checksum(content):
                raise ValueError("the content does not match its crc32")
            entries = tuple(Epoch(**entry) for entry in content["epochs"])
            epochs = cls(content["store_id"], entries)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        epochs._check()
        return epochs

    def _check(self) -> None:
        if not _is_hex(self.store_id, _STORE_ID_BYTES):
            raise ValueError(f"store_id must have {2 * _STORE_ID_BYTES} hexadecimal digits, found {self.store_id!r}")
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
    """The file ``flint/epochs`` of an open store, which is created if it does not exist. Used only on the event loop's thread.

    Args:
        disk: the disk interface.
        path: the path of the file.
        start_offset_bytes: the start of the first epoch of a new file, which is the log's oldest position.
        make_id: returns new ids.

    Raises:
        StoreFormatError: the file is damaged; the message states the remedy.
        StoreError: the file cannot be written (StoreFullError: the disk is full).
    """

    def __init__(self, disk: Disk, path: Path, start_offset_bytes: int = 0, make_id: MakeId = random_id) -> None:
        self._disk = disk
        self._make_id = make_id
        self.path = path
        found = _load(disk, path)
        self.epochs: Epochs
        """The store's current epochs."""
        if found is not None:
            self.epochs = found
        else:
            self.replace(Epochs.new(start_offset_bytes, make_id))

    def begin(self, start_offset_bytes: int, cause: str, min_offset_bytes: int = 0) -> Epoch:
        """Begin a new epoch of the log, durably, and remove epochs whose records are all deleted; return the new epoch.

        Args:
            start_offset_bytes: the physical start of the new epoch.
            cause: :data:`RECOVERED` or :data:`MASTER`.
            min_offset_bytes: the log's oldest position.

        Raises:
            StoreError: the file cannot be written; nothing has changed.
        """
        self.replace(self.epochs.begun(start_offset_bytes, cause, self._make_id).kept_from(min_offset_bytes))
        return self.epochs.current

    def begin_as_master(self, end_offset_bytes: int, min_offset_bytes: int) -> None:
        """Begin a new epoch at the log's end, durably, because the broker becomes a master with slaves.

        Raises StoreError if the write fails; the epochs are then unchanged.
        """
        current = self.epochs.current
        # An epoch's cause RECOVERED shows slaves that this broker may have lost the records after the epoch's start in a crash.
        # If the current epoch is empty and has the cause RECOVERED, the new epoch replaces the epoch and keeps its cause.
        recovered = current.start_offset_bytes == end_offset_bytes and current.cause == RECOVERED
        self.begin(end_offset_bytes, RECOVERED if recovered else MASTER, min_offset_bytes)

    def replace(self, epochs: Epochs) -> None:
        """Replace the store's epochs in memory and in the file, durably. A slave replaces its epochs by those of its master.

        Raises StoreError, without a change, if the write fails.
        """
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
    """Return the path of a store's file ``flint/epochs``, given the store's folder."""
    return store / "flint" / "epochs"


def read_epochs(store: Path, disk: Disk = OS_DISK) -> Epochs | None:
    """Return the epochs of a store, even while a broker uses it; None if the store has no epochs yet.

    Raises:
        StoreFormatError: the file is damaged; the message states the remedy.
        StoreError: the file cannot be read.
    """
    return _load(disk, epochs_path(store))


def _load(disk: Disk, path: Path) -> Epochs | None:
    if not disk.exists(path):
        return None
    try:
        return Epochs.from_bytes(disk.read(path))
    except ValueError as error:
        raise StoreFormatError(
            f"{path} is damaged ({error}). Restore a good copy of it, or move it away. Without it the store gets a new id at "
            "its next start, and slaves and readers of its log must be set up again"
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
