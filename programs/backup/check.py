"""Checks a backup: every digest, every record of the log, every table."""

from __future__ import annotations

from pathlib import Path

import attrs

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.programs.backup.log_copy import Progress, read_checked, walk_copy
from flintmq.programs.backup.manifest import Manifest, Table, digest_of, log_path, read_manifest
from flintmq.programs.doctor.files import read_bytes


@attrs.frozen(kw_only=True)
class CheckResult:
    """The findings of a check of a backup's files: the backup's manifest, the number of complete records in its log, and a
    description of each error. A backup without errors is sound."""

    manifest: Manifest
    records: int
    """Number of complete records in the backup's log."""
    findings: tuple[str, ...]
    """Descriptions of the errors in a backup; empty if the backup is sound. Damage that was copied with ``--keep-damage`` does
    not count."""

    @property
    def is_sound(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, object]:
        """Return the result of a backup's check as JSON."""
        made = self.manifest
        return {
            "sound": self.is_sound,
            "store": made.store,
            "number": made.number,
            "begin": made.begin_offset_bytes,
            "position": made.end_offset_bytes,
            "records": self.records,
            "findings": list(self.findings),
            "kept_damage": [str(one) for one in made.damage],
        }


def existing_manifest(target: Path) -> Manifest:
    """Return the manifest in a backup's folder.

    Raises:
        StoreFormatError: the folder has no manifest, or the manifest is damaged.
    """
    manifest = read_manifest(target)
    if manifest is None:
        raise StoreFormatError(f"{target}: no backup lies there (no manifest.json)")
    return manifest


def check_backup(target: Path, progress: Progress | None = None) -> CheckResult:
    """Check the digests and the records of a backup, and return the findings. Does not change the backup.

    Args:
        target: the backup's folder.
        progress: called with the number of checked bytes and the total. Each byte of the log counts twice, because first the
            digests are checked, and then the records.

    Raises:
        StoreFormatError: the folder does not contain a backup, or the backup's manifest is damaged.
    """
    manifest = existing_manifest(target)
    findings: list[str] = []
    total, done = 2 * (manifest.end_offset_bytes - manifest.begin_offset_bytes), 0
    is_there = True
    for file in manifest.log:
        try:
            for chunk, damage in read_checked(log_path(target, file.start_offset_bytes), file):
                done += len(chunk)
                if damage is not None:
                    findings.append(str(damage))
                if progress is not None:
                    progress(done, total)
        except StoreError as error:
            findings.append(str(error))
            is_there = False
    records = 0
    if is_there:
        walked = walk_copy(
            lambda start: log_path(target, start),
            manifest.log,
            manifest.begin_offset_bytes,
            (lambda at, _: progress(total // 2 + at, total)) if progress is not None else None,
        )
        records = walked.records
        findings += map(str, walked.unexpected(manifest))
    for table in manifest.tables:
        try:
            read_table(target, manifest, table)
        except StoreError as error:
            findings.append(str(error))
    return CheckResult(manifest=manifest, records=records, findings=tuple(findings))


def read_table(target: Path, manifest: Manifest, table: Table) -> bytes:
    """Return the content of a table in a backup.

    Raises:
        StoreFormatError: the content has changed since it was written.
        StoreError: the file cannot be read.
    """
    path = manifest.table_path(target, table)
    data = read_bytes(path)
    if len(data) != table.size_bytes or digest_of(data) != table.digest:
        raise StoreFormatError(f"{path}: its content does not match its digest")
    if path.suffix == ".json":
        try:
            fastjson.loads(data)
        except (JsonSyntaxError, UnicodeDecodeError) as error:
            raise StoreFormatError(f"{path}: {error}") from error
    return data
