"""The manifest of a backup, ``manifest.json``, which is written last and in one step."""

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
"""Size of a segment: the number of bytes of a log file for which a backup has one digest. A later backup reads at most one old
segment again."""
_DIGEST_BYTES: Final = 20
_TABLE_PATH: Final = re.compile(r"(config|flint)(/[A-Za-z0-9_-][A-Za-z0-9._-]*){1,3}")


class LoggedFile(msgspec.Struct, frozen=True):
    """The entry of a commit log file in a backup's manifest: the part of the file that is in the backup."""

    start_offset_bytes: int
    """Physical offset of the log file's first byte."""
    size_bytes: int
    """Number of the log file's bytes that are in the backup. Only the last log file may be in the backup in part."""
    digests: tuple[str, ...]
    """Digests of the log file's segments of :data:`SEGMENT_BYTES`; the last segment may be shorter."""

    @property
    def end_offset_bytes(self) -> int:
        return self.start_offset_bytes + self.size_bytes


class Table(msgspec.Struct, frozen=True):
    """A file in a backup that is not part of the commit log."""

    path: str
    """Path of the table's file, relative to the store, such as ``config/topics.json``."""
    size_bytes: int
    digest: str


class Damage(msgspec.Struct, frozen=True):
    """A damaged part of the log, whose bytes are not valid records. A backup copies these bytes only on request."""

    start_offset_bytes: int
    end_offset_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"commit log {self.start_offset_bytes}..{self.end_offset_bytes}: {self.reason}"


class Manifest(msgspec.Struct, frozen=True):
    """The content of a backup, as its manifest lists it."""

    number: int
    """Number of backups that were made in this backup's folder, including this one."""
    made_at_ms: int
    """Wall-clock time, in ms since 1970, at which the log's position was read from the store."""
    store: str
    """Path of the store's folder, to be shown to people."""
    store_id: str
    """The store's id in ``flint/epochs``; empty for a store that FlintMQ has never opened."""
    file_bytes: int
    """Size of each commit log file of the store; 0 if the store has no commit log file."""
    begin_offset_bytes: int
    """Physical offset of the first byte of the log in the backup."""
    end_offset_bytes: int
    """Physical offset up to which the backup has all records. This offset is the end of a record."""
    told_by: str
    """Source of the backup's end position: ``feed`` for the file ``flint/feed``, ``queues`` for the consume queues, or ``walk``
    for a search for the last complete record of the log."""
    sizes: dict[str, int]
    """Sizes of the store's consume queue and index files, keyed by the setting of the size. A size is missing if the store has
    no file from which the size can be read."""
    log: tuple[LoggedFile, ...]
    tables: tuple[Table, ...]
    damage: tuple[Damage, ...] = ()

    def table_path(self, target: Path, table: Table) -> Path:
        """Return the path of a table in the backup's folder."""
        return tables_folder(target, self.number) / table.path


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of a segment or table of a backup."""
    return new_digest(data).hexdigest()


def new_digest(data: bytes | memoryview = b"") -> hashlib.blake2b:
    """Return an object that computes the digest of a segment incrementally, from one part of the segment after another."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES)


def manifest_path(target: Path) -> Path:
    """Return the path of the manifest in a backup's folder."""
    return target / "manifest.json"


def log_path(target: Path, start_offset_bytes: int) -> Path:
    """Return the path of a log file in a backup's folder."""
    return target / "log" / file_name(start_offset_bytes)


def tables_folder(target: Path, number: int) -> Path:
    """Return the folder ``tables/<number>`` in a backup's folder, for the files of the backup that are not commit log files.

    Args:
        target: the backup's folder.
        number: the :attr:`Manifest.number` of the backup that the files belong to.
    """
    return target / "tables" / str(number)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of ``manifest.json``: readable JSON with a digest."""
    inner = msgspec.json.encode(manifest)
    outer = {"format": FORMAT, "digest": digest_of(inner), "backup": msgspec.Raw(inner)}
    return msgspec.json.format(msgspec.json.encode(outer), indent=1) + b"\n"


class _Outer(msgspec.Struct):
    format: int
    digest: str
    backup: msgspec.Raw


def decode_manifest(data: bytes, where: Path) -> Manifest:
    """Return the manifest that the content of ``manifest.json`` encodes. The manifest's paths cannot leave the backup's folder.

    Raises:
        StoreFormatError: the content is damaged or of a later format. The error names the file and the remedy.
    """
    advice = "take an earlier copy of the backup, or make a new one into another folder"
    try:
        outer = msgspec.json.decode(data, type=_Outer)
        if outer.format != FORMAT:
            raise StoreFormatError(f"{where}: a backup of format {outer.format}; this FlintMQ reads format {FORMAT}")
        inner = msgspec.json.format(bytes(outer.backup), indent=-1)
        if digest_of(inner) != outer.digest:
            raise StoreFormatError(f"{where} is damaged: its content does not match its digest; {advice}")
        manifest = msgspec.json.decode(inner, type=Manifest)
    except msgspec.MsgspecError as error:
        raise StoreFormatError(f"{where} is damaged ({error}); {advice}") from error
    if why := _why_wrong(manifest):
        raise StoreFormatError(f"{where} contradicts itself: {why}; {advice}")
    return manifest


def read_manifest(target: Path) -> Manifest | None:
    """Return the manifest in a backup's folder; None if the folder has no manifest.

    Raises:
        StoreFormatError: see :func:`decode_manifest`.
        StoreError: the file cannot be read.
    """
    path = manifest_path(target)
    with reading(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return decode_manifest(path.read_bytes(), path)
    return None


def _why_wrong(manifest: Manifest) -> str:
    """Return the reason why a manifest contradicts itself, as text; empty if the manifest is consistent."""
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
    """Return the number of segments of a commit log file with the given size in bytes. A segment is a part of
    :data:`SEGMENT_BYTES`, for which a backup has one digest. The last segment of a file may be shorter."""
    return -(-size_bytes // SEGMENT_BYTES)
