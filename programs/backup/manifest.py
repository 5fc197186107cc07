"""What belongs to a backup: ``manifest.json``, written last and in one step."""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path
from typing import Final

import msgspec

from flintmq.core.errors import StoreFormatError, reading
from flintmq.core.io.paths import file_name

FORMAT: Final = 1
SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""So much of a file has a digest of its own: damage is told that precisely, and a backup that goes on reads no more again."""
_DIGEST_BYTES: Final = 20
_TABLE_PATH: Final = re.compile(r"(config|flint)(/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,3}")


class LoggedFile(msgspec.Struct, frozen=True):
    """A file of the commit log, as far as it is in the backup."""

    start_offset_bytes: int
    """Physical offset of its first byte."""
    size_bytes: int
    """How much of it is in the backup; all of it, but for the last one."""
    digests: tuple[str, ...]
    """One for each :data:`SEGMENT_BYTES` of it, and one for the rest."""

    @property
    def end_offset_bytes(self) -> int:
        return self.start_offset_bytes + self.size_bytes


class Table(msgspec.Struct, frozen=True):
    """A file that is not of the log."""

    path: str
    """Where it lies in a store: ``config/topics.json``."""
    size_bytes: int
    digest: str


class Damage(msgspec.Struct, frozen=True):
    """Bytes of the log that are no record, copied because that was asked for."""

    start_offset_bytes: int
    end_offset_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"commit log {self.start_offset_bytes}..{self.end_offset_bytes}: {self.reason}"


class Manifest(msgspec.Struct, frozen=True):
    """What one backup is."""

    number: int
    """How many backups were made into this folder, this one included."""
    made_at_ms: int
    """Wall-clock time at which its position was read, in milliseconds since 1970."""
    store: str
    """The folder it was made from, for people."""
    store_id: str
    """Of ``flint/epochs``; empty for a store that no FlintMQ has opened."""
    file_bytes: int
    """Size of the store's commit log files; 0 while it has none."""
    begin_offset_bytes: int
    """Physical offset at which the log begins."""
    end_offset_bytes: int
    """The position up to which everything is in the backup: a boundary between records."""
    told_by: str
    """How the position was found: ``feed``, ``queues`` or ``walk``."""
    sizes: dict[str, int]
    """The sizes of the other files, by the name of their setting, as far as the store tells."""
    log: tuple[LoggedFile, ...]
    tables: tuple[Table, ...]
    damage: tuple[Damage, ...] = ()

    def table_path(self, target: Path, table: Table) -> Path:
        """Return where a table lies in the backup's folder."""
        return tables_folder(target, self.number) / table.path


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of a segment or table."""
    return new_digest(data).hexdigest()


def new_digest(data: bytes | memoryview = b"") -> hashlib.blake2b:
    """Return what makes a digest piece by piece."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES)


def manifest_path(target: Path) -> Path:
    """Return where a backup's folder has its manifest."""
    return target / "manifest.json"


def log_path(target: Path, start_offset_bytes: int) -> Path:
    """Return where a backup's folder has a file of the log."""
    return target / "log" / file_name(start_offset_bytes)


def tables_folder(target: Path, number: int) -> Path:
    """Return the folder of one backup's tables."""
    return target / "tables" / str(number)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's content: readable JSON, with a digest of it."""
    inner = msgspec.json.encode(manifest)
    outer = {"format": FORMAT, "digest": digest_of(inner), "backup": msgspec.Raw(inner)}
    return msgspec.json.format(msgspec.json.encode(outer), indent=1) + b"\n"


class _Outer(msgspec.Struct):
    format: int
    digest: str
    backup: msgspec.Raw


def decode_manifest(data: bytes, where: Path) -> Manifest:
    """Read what :func:`encode_manifest` wrote; nothing in it leads out of the folders it names.

    Raises:
        StoreFormatError: it is damaged, or of a later format. Names the file and what to do.
    """
    advice = "take an earlier copy of the backup, or make a new one into another folder"
    try:
        outer = msgspec.json.decode(data, type=_Outer)
        if outer.format != FORMAT:
            raise StoreFormatError(f"{where}: a backup of format {outer.format}; this FlintMQ reads format {FORMAT}")
        inner = msgspec.json.format(bytes(outer.backup), indent=-1)
        if digest_of(inner) != outer.digest:
            raise StoreFormatError(f"{where} is damaged: its digest does not fit; {advice}")
        manifest = msgspec.json.decode(inner, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreFormatError(f"{where} is damaged ({error}); {advice}") from error
    if why := _why_wrong(manifest):
        raise StoreFormatError(f"{where} contradicts itself: {why}; {advice}")
    return manifest


def read_manifest(target: Path) -> Manifest | None:
    """Return the manifest of a backup's folder; None where there is none.

    Raises:
        StoreFormatError: see :func:`decode_manifest`.
        StoreError: it cannot be read.
    """
    path = manifest_path(target)
    with reading(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return decode_manifest(path.read_bytes(), path)
    return None


def _why_wrong(manifest: Manifest) -> str:
    """Return what cannot be true of a backup; empty where all may be."""
    at = manifest.begin_offset_bytes
    for number, file in enumerate(manifest.log):
        is_last = number == len(manifest.log) - 1
        if file.start_offset_bytes != at or not 0 <= file.size_bytes <= manifest.file_bytes:
            return f"the log file at {file.start_offset_bytes} does not continue the one before it"
        if (not is_last and file.size_bytes != manifest.file_bytes) or len(file.digests) != segments(file.size_bytes):
            return f"the log file at {file.start_offset_bytes} is not whole"
        at = file.end_offset_bytes
    if at != manifest.end_offset_bytes or manifest.begin_offset_bytes < 0 or manifest.number < 1:
        return f"its log ends at {at}, not at {manifest.end_offset_bytes}"
    bad = [table.path for table in manifest.tables if not _TABLE_PATH.fullmatch(table.path)]
    return f"{bad[0][:80]!r} is not a store's table" if bad else ""


def segments(size_bytes: int) -> int:
    """Return how many segments so many bytes have."""
    return -(-size_bytes // SEGMENT_BYTES)
