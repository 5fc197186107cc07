"""Restores a backup to a new store: its log and tables, with queues and index rebuilt from the log."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io.paths import RESTORE_MARK, RESTORE_NOT_FINISHED, file_name
from flintmq.core.log.epochs import RECOVERED, Epochs
from flintmq.programs.backup.check import existing_manifest, read_table
from flintmq.programs.backup.log_copy import Progress, read_checked, walk_copy
from flintmq.programs.backup.manifest import Damage, LoggedFile, Manifest, log_path
from flintmq.programs.backup.writing import Writer
from flintmq.programs.doctor.rebuild import rebuild

_EPOCHS: Final = "flint/epochs"
_TOLD_MOST: Final = 5


@attrs.frozen(kw_only=True)
class RestorePlan:
    """The settings of a restore."""

    backup: Path
    """The folder of the backup that is restored."""
    store: Path
    """The new store's folder, which is empty or does not exist yet."""
    config: BrokerConfig = attrs.field(factory=BrokerConfig)
    """The settings of the new store."""
    chosen: frozenset[str] = frozenset()
    """Keys of the settings that override the backup's file sizes, such as ``store.consume_queue_file_bytes``."""
    delay_level_ms: Mapping[int, int] | None = None
    """Delay in ms of each delay level, keyed by level; see :func:`flintmq.programs.doctor.rebuild.rebuild`."""
    keep_damage: bool = False
    """Whether the undamaged part of a damaged backup is restored."""


@attrs.frozen(kw_only=True)
class RestoreResult:
    """The result of restoring a store from a backup: the backup's manifest, the size of the new store's log, and the damage
    that was found in the backup's log."""

    manifest: Manifest
    records: int
    """Number of complete records in the restored log. Each record was checked."""
    log_end_offset_bytes: int
    """Physical offset of the end of the new store's log."""
    damage: tuple[Damage, ...]
    """Damaged parts of the backup's log. The restore removed these parts from the new log, as a broker's start does."""

    def to_json(self) -> dict[str, object]:
        """Return the result of a restore as JSON."""
        return {
            "position": self.manifest.end_offset_bytes,
            "begin": self.manifest.begin_offset_bytes,
            "log_ends_at": self.log_end_offset_bytes,
            "records": self.records,
            "made_at_ms": self.manifest.made_at_ms,
            "damage": [str(one) for one in self.damage],
        }


def restore_backup(
    plan: RestorePlan,
    *,
    writer: Writer | None = None,
    progress: Progress | None = None,
    rebuilding: Callable[[int], None] | None = None,
) -> RestoreResult:
    """Restore a backup to a new store, and return the result. If an error occurs, the new store is removed.

    Args:
        plan: the settings of the restore.
        writer: writes all files of the store except queues and index, which are rebuilt from the log afterwards.
        progress: called with the number of copied bytes of the log and the total.
        rebuilding: called with the number of bytes of the log from which queues and index are rebuilt.

    Raises:
        StoreFormatError: the folder of the new store is not empty, the backup does not exist, or the backup is damaged. The
            error names the remedy.
        StoreError: a file cannot be read or written.
    """
    manifest = existing_manifest(plan.backup)
    config = _config(plan, manifest)
    with _new_folder(plan):
        records, damage = _copy(plan, manifest, writer or Writer(), progress)
    end = manifest.end_offset_bytes
    if manifest.log:
        end, _kept = rebuild(plan.store, config, plan.delay_level_ms, rebuilding, damaged=bool(damage))
    return RestoreResult(manifest=manifest, records=records, log_end_offset_bytes=end, damage=damage)


def _copy(
    plan: RestorePlan, manifest: Manifest, writer: Writer, progress: Progress | None
) -> tuple[int, tuple[Damage, ...]]:
    """Write the log and the tables of a restored store, and return the number of records and the damage. Raises StoreError."""
    commit_log = plan.store / "commitlog"
    mark = commit_log / RESTORE_MARK
    writer.write_file(mark, b"")
    writer.settle()
    damage: list[Damage] = []
    total, done = manifest.end_offset_bytes - manifest.begin_offset_bytes, 0

    def chunks(file: LoggedFile) -> Iterator[bytes]:
        nonlocal done
        for chunk, wrong in read_checked(log_path(plan.backup, file.start_offset_bytes), file):
            if wrong is not None:
                damage.append(wrong)
                _refuse(plan, damage)
            yield chunk
            done += len(chunk)
            if progress is not None:
                progress(done, total)

    for file in manifest.log:
        writer.extend(commit_log / file_name(file.start_offset_bytes), 0, chunks(file), manifest.file_bytes)
    walked = walk_copy(lambda start: commit_log / file_name(start), manifest.log, manifest.begin_offset_bytes)
    damage += walked.unexpected(manifest)
    _refuse(plan, damage)
    for table in manifest.tables:
        data = read_table(plan.backup, manifest, table)
        writer.write_file(plan.store / table.path, _new_epoch(data, manifest) if table.path == _EPOCHS else data)
    writer.settle()
    writer.remove(mark)
    writer.settle()
    return walked.records, (*manifest.damage, *damage)


def _refuse(plan: RestorePlan, damage: list[Damage]) -> None:
    if damage and not plan.keep_damage:
        raise StoreFormatError(
            f"{plan.backup}: the backup is damaged, and nothing was restored: {'; '.join(map(str, damage[:_TOLD_MOST]))}. "
            "--verify shows all damage; use another backup, or restore the undamaged files with --keep-damage"
        )


def _new_epoch(data: bytes, manifest: Manifest) -> bytes:
    """Return the epochs of a restored store: the epochs of the backup, and a new epoch that begins at the backup's end.

    The new epoch is necessary because the restored store and the original store will contain different messages after the
    backup's end.
    """
    try:
        epochs = Epochs.from_bytes(data)
    except ValueError as error:
        raise StoreFormatError(f"{_EPOCHS} in the backup of {manifest.store} is damaged: {error}") from error
    end = manifest.end_offset_bytes
    return epochs.cut_at(end).begun(end, RECOVERED).to_bytes()


def _config(plan: RestorePlan, manifest: Manifest) -> BrokerConfig:
    """Return the configuration with which the queues and the index of a restored store are rebuilt."""
    sizes = {key: size for key, size in manifest.sizes.items() if key not in plan.chosen}
    store: dict[str, Any] = {key.partition(".")[2]: size for key, size in sizes.items() if key.startswith("store.")}
    index: dict[str, Any] = {key.partition(".")[2]: size for key, size in sizes.items() if key.startswith("index.")}
    if manifest.file_bytes:
        store["commit_log_file_bytes"] = manifest.file_bytes
    try:
        made = attrs.evolve(
            plan.config.store, path=str(plan.store), commit_log_paths=(), read_only_commit_log_paths=(), **store
        )
        return attrs.evolve(plan.config, store=made, index=attrs.evolve(plan.config.index, **index))
    except (ConfigError, TypeError) as error:
        raise StoreFormatError(f"{plan.backup}: its file sizes are not valid for a broker: {error}") from error


@contextlib.contextmanager
def _new_folder(plan: RestorePlan) -> Iterator[None]:
    """Create a store's folder for the ``with`` block. If the block raises, leave the folder empty, or remove it if it did not
    exist before."""
    store, backup = plan.store.resolve(), plan.backup.resolve()
    if store.is_relative_to(backup) or backup.is_relative_to(store):
        raise StoreFormatError(
            f"{plan.store}: a store may be neither inside of its backup's folder nor around it; name another folder"
        )
    try:
        was_there = store.exists()
        there = sorted(path.name for path in store.iterdir()) if was_there else []
        if there:
            if (store / "commitlog" / RESTORE_MARK).exists():
                raise StoreFormatError(f"{plan.store}: {RESTORE_NOT_FINISHED}")
            raise StoreFormatError(
                f"{plan.store}: is not empty ({there[0][:80]}), and a restore overwrites no file: "
                "name a new folder, or move this folder away"
            )
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{plan.store}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    except BaseException:
        # After a failed restore, the store's files are removed.
        # A file that cannot be removed is ignored, because no broker starts on a store with the file RESTORE_MARK.
        for path in store.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):
                store.rmdir()
        raise
