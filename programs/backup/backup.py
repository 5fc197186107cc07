"""Makes a backup of a store in a folder, or updates the backup in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreError, StoreFormatError, StoreLockedError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log.epochs import Epochs
from flintmq.programs.backup.log_copy import (
    NO_RECORD,
    LogCopy,
    Progress,
    Walked,
    check_continues,
    check_kept,
    walk_copy,
)
from flintmq.programs.backup.manifest import (
    Damage,
    LoggedFile,
    Manifest,
    Table,
    digest_of,
    encode_manifest,
    log_path,
    manifest_path,
    read_manifest,
    tables_folder,
)
from flintmq.programs.backup.source import Position, Source, now_ms
from flintmq.programs.backup.tables import Tables, read_names, read_positions
from flintmq.programs.backup.writing import Pace, Writer
from flintmq.programs.doctor.files import StoreFiles, listed
from flintmq.programs.doctor.rebuild import fitting, log_folders

_OWN_NAMES: Final = frozenset({"lock", "log", "tables", "manifest.json", "manifest.json.tmp"})
_TOLD_MOST: Final = 5
_TRIES: Final = 5


class DamagedLogError(StoreFormatError):
    """No backup was made, because the store's commit log is damaged below the position up to which it would be copied."""


@attrs.frozen(kw_only=True)
class BackupPlan:
    """The settings of a backup."""

    store: Path
    """The folder of the store that is backed up."""
    target: Path
    """The folder of the backup."""
    config: BrokerConfig = attrs.field(factory=BrokerConfig)
    """Configuration of the store's broker. If the commit log has several folders, the configuration names them."""
    prune: bool = False
    """Whether the backup removes its copies of log files that retention has deleted in the store."""
    keep_damage: bool = False
    """Whether damaged parts of the log are copied unchanged; if False, a damaged log raises an error."""


@attrs.frozen(kw_only=True)
class BackupResult:
    """The manifest that a backup wrote, and counts of the bytes and records that it copied and of the log files that it
    removed."""

    manifest: Manifest
    new_bytes: int
    """Number of bytes of the log that this backup copied, because the previous backup did not have them."""
    records: int
    """Number of complete records in the bytes of the log that this backup copied. Each record was checked."""
    pruned_files: int
    """Number of log files that were removed from the backup."""

    def to_json(self) -> dict[str, object]:
        """Return the result of a backup as JSON."""
        made = self.manifest
        return {
            "store": made.store,
            "store_id": made.store_id or None,
            "number": made.number,
            "begin": made.begin_offset_bytes,
            "position": made.end_offset_bytes,
            "told_by": made.told_by,
            "new_bytes": self.new_bytes,
            "new_records": self.records,
            "log_files": len(made.log),
            "pruned_files": self.pruned_files,
            "tables": [table.path for table in made.tables],
            "damage": [str(one) for one in made.damage],
        }


def make_backup(
    plan: BackupPlan, *, writer: Writer | None = None, pace: Pace | None = None, progress: Progress | None = None
) -> BackupResult:
    """Back up a store and return the result. A broker may write to the store meanwhile. The backup does not change the store.

    Args:
        plan: the settings of the backup.
        writer: makes all changes in the folder of the backup.
        pace: limits the speed of copying the log.
        progress: called with the number of copied bytes of the log and the total.

    Raises:
        DamagedLogError: the log is damaged; the previous backup is unchanged.
        StoreLockedError: another process makes a backup in the folder.
        StoreFormatError: the store does not exist, or the backup's folder has a backup of another store. The error names the
            remedy.
        StoreError: a file cannot be read or written.
    """
    with _locked(plan):
        return _Backup(plan, writer or Writer(), pace or Pace(), progress).make()


class _Backup:
    """A backup in progress."""

    def __init__(self, plan: BackupPlan, writer: Writer, pace: Pace, progress: Progress | None) -> None:
        self._plan = plan
        self._writer = writer
        self._source = Source(plan.store, log_folders(plan.config))
        self._before = read_manifest(plan.target)
        self._copy = LogCopy(plan.target, writer, pace, progress)

    def make(self) -> BackupResult:
        plan, before = self._plan, self._before
        epochs = self._source.epochs()
        # The consumer offsets are read before the end of the log is determined, so that no offset is past the end.
        positions = read_positions(plan.store)
        made_at_ms = now_ms()
        position = self._source.position(before.end_offset_bytes if before is not None else 0, made_at_ms)
        if not plan.keep_damage:
            self._check_reaches_queues(position)
        kept = self._kept(epochs, position.end_offset_bytes)
        check_kept(plan.target, kept)
        copied_from = kept[-1].end_offset_bytes if kept else self._source.begin
        log = self._copied(kept, position)
        tables = positions | read_names(plan.store)
        self._check_not_cut(epochs, position.end_offset_bytes)
        walked = walk_copy(lambda start: log_path(plan.target, start), log, copied_from)
        damage = _damage(walked, position.end_offset_bytes)
        if damage and not plan.keep_damage:
            raise DamagedLogError(
                f"{plan.store}: its log is damaged, and no backup was made: {'; '.join(map(str, damage[:_TOLD_MOST]))}. "
                "flintmq store verify shows all damage, and a start of the broker removes it; "
                "--keep-damage copies the log as it is"
            )
        manifest = Manifest(
            number=before.number + 1 if before is not None else 1,
            made_at_ms=made_at_ms,
            store=str(plan.store.absolute()),
            store_id=epochs.store_id if epochs is not None else "",
            file_bytes=self._source.file_bytes or (before.file_bytes if before is not None else 0),
            begin_offset_bytes=log[0].start_offset_bytes if log else position.end_offset_bytes,
            end_offset_bytes=position.end_offset_bytes,
            told_by=position.told_by,
            sizes=self._sizes(),
            log=log,
            tables=tuple(Table(name, len(data), digest_of(data)) for name, data in tables.items()),
            damage=(*(_old_damage(before, log) if kept else ()), *damage),
        )
        self._commit(manifest, tables)
        return BackupResult(
            manifest=manifest,
            new_bytes=position.end_offset_bytes - copied_from,
            records=walked.records,
            pruned_files=self._tidy(manifest),
        )

    def _check_reaches_queues(self, position: Position) -> None:
        """Check that the log reaches the newest message to which any consume queue refers. If the log ends earlier, some of the
        log's files are elsewhere or lost.

        Raises:
            DamagedLogError: the log ends earlier. The error names the remedy.
        """
        source, root = self._source, self._plan.store
        named, end = source.named_end(), source.end
        if named > end:
            raise DamagedLogError(
                f"{root}: its queues name messages up to {named}, but its log's files in {', '.join(map(str, source.folders))} "
                f"end at {end}; no backup was made. If the log has other folders: --set store.commit_log_paths=…; if a crash "
                "removed files, a start of the broker repairs the queues; --keep-damage copies the remaining files"
            )
        if position.told_by == "walk" and named > position.end_offset_bytes and not (root / "abort").exists():
            raise DamagedLogError(
                f"{root}: its last stop was clean, and its queues name messages up to {named}, but the last whole record of "
                f"its log ends at {position.end_offset_bytes}: its end is damaged, and no backup was made. "
                "flintmq store verify shows more; --keep-damage copies what lies before"
            )

    # --- the previous backup of the same store ---

    def _kept(self, epochs: Epochs | None, end: int) -> tuple[LoggedFile, ...]:
        """Return the log files of the previous backup that the new backup keeps.

        Raises:
            StoreFormatError: the previous backup cannot be continued with this store. The backup is of another store, the log
                was truncated, or retention has deleted bytes that the backup lacks. The error names the remedy.
        """
        before, source, target = self._before, self._source, self._plan.target
        if before is None or not before.log:
            return ()
        store_id = epochs.store_id if epochs is not None else ""
        if before.store_id and store_id != before.store_id:
            raise StoreFormatError(
                f"{target}: is a backup of the store {before.store_id} ({before.store}), but {source.root} is the store "
                f"{store_id or 'of a broker that gives it no id'}; name another folder"
            )
        if source.files and source.file_bytes != before.file_bytes:
            raise StoreFormatError(
                f"{target}: has commit log files of {before.file_bytes} bytes, but {source.root} has files of "
                f"{source.file_bytes}: it is a backup of another store; name another folder"
            )
        if end < before.end_offset_bytes:
            raise StoreFormatError(
                f"{source.root}: its log ends at {end}, before the backup in {target} ends ({before.end_offset_bytes}): the "
                "log was truncated, or this is another store. Name a new folder for its backups; the old backup is unchanged"
            )
        if source.begin > before.end_offset_bytes:
            if self._plan.prune:
                return ()
            raise StoreFormatError(
                f"{source.root}: retention has deleted {before.end_offset_bytes}..{source.begin} before it was backed up. "
                "With --prune the backup begins at the remaining log; with a new folder the old backup is unchanged"
            )
        if source.begin < before.end_offset_bytes:
            check_continues(source, before.log[-1], target)
        if self._plan.prune:
            return tuple(file for file in before.log if file.end_offset_bytes > source.begin)
        return before.log

    def _check_not_cut(self, epochs: Epochs | None, end: int) -> None:
        """Raise StoreFormatError if a broker's recovery has truncated the store's log while the log was copied."""
        now = self._source.epochs()
        if epochs is None or now is None:
            return
        newest = epochs.current.number
        if now.store_id != epochs.store_id or any(
            one.number > newest and one.start_offset_bytes < end for one in now.entries
        ):
            raise StoreFormatError(
                f"{self._plan.store}: its broker was restarted during the backup and has truncated its log; run the command "
                "again"
            )

    # --- copies of the log's files ---

    def _copied(self, kept: tuple[LoggedFile, ...], position: Position) -> tuple[LoggedFile, ...]:
        """Copy the log files that the backup lacks, and return all log files of the backup."""
        end = position.end_offset_bytes
        known = {file.start_offset_bytes: file for file in kept}
        begin = kept[-1].end_offset_bytes if kept else self._source.begin
        self._copy.total_bytes = end - begin
        made: dict[int, LoggedFile] = dict(known)
        for file in self._source.files:
            if file.end > begin and file.start < end:
                made[file.start] = self._copy.copy(
                    file, known.get(file.start), min(end, file.end), synced_to=position.flushed_offset_bytes
                )
        log = tuple(made[start] for start in sorted(made))
        if (log[-1].end_offset_bytes if log else end) != end:
            raise StoreFormatError(
                f"{self._source.root}: its log should be copied up to {end}, but ends at {log[-1].end_offset_bytes}; "
                "run the command again"
            )
        return log

    # --- tables, manifest and cleanup ---

    def _sizes(self) -> dict[str, int]:
        """Return the file sizes that a restored store must be configured with."""
        for tries_left in reversed(range(_TRIES)):
            try:
                files = StoreFiles(self._plan.store, log_folders=self._source.folders)
                fitted = fitting(BrokerConfig(), files)
                break
            except StoreError:
                # StoreFiles raises StoreError if a listed file is deleted before StoreFiles opens the file.
                # The loop creates StoreFiles again, because a new list of files lacks the file that the broker has deleted.
                if not tries_left:
                    raise
        default = BrokerConfig()
        found = {
            f"store.{name}": getattr(fitted.store, name)
            for name in ("consume_queue_file_bytes", "consume_queue_ext_file_bytes")
            if getattr(fitted.store, name) != getattr(default.store, name)
        }
        return found | {
            f"index.{name}": getattr(fitted.index, name)
            for name in ("max_hash_slot_num", "max_index_num")
            if getattr(fitted.index, name) != getattr(default.index, name)
        }

    def _commit(self, manifest: Manifest, tables: Tables) -> None:
        """Write the backup's tables, sync all files, and then replace the manifest, which completes the backup."""
        folder = tables_folder(self._plan.target, manifest.number)
        for name, data in tables.items():
            self._writer.write_file(folder / name, data)
        self._writer.settle()
        self._writer.replace(manifest_path(self._plan.target), encode_manifest(manifest))

    def _tidy(self, manifest: Manifest) -> int:
        """Remove files in a backup's folder that belong to no backup, and return the number of log files among the removed
        files."""
        target = self._plan.target
        wanted = {log_path(target, file.start_offset_bytes) for file in manifest.log}
        old = [path for path in listed(target / "log") if path not in wanted]
        for path in old:
            self._writer.remove(path)
        for folder in listed(target / "tables"):
            if folder != tables_folder(target, manifest.number):
                for path in sorted(folder.rglob("*"), reverse=True):
                    self._writer.remove(path)
                self._writer.remove(folder)
        return len(old)


def _damage(walked: Walked, end: int) -> tuple[Damage, ...]:
    """Return the damaged parts of the copied commit log. If the last complete record ends before the backup's end position, the
    bytes between these two positions are damaged, too."""
    if walked.damage or walked.end_offset_bytes == end:
        return walked.damage
    return (Damage(walked.end_offset_bytes, end, NO_RECORD),)


def _old_damage(before: Manifest | None, log: tuple[LoggedFile, ...]) -> Iterator[Damage]:
    """Yield the damaged parts of the previous backup's log that are also in the log files of the new backup."""
    for one in before.damage if before is not None else ():
        if log and one.end_offset_bytes > log[0].start_offset_bytes:
            yield one


@contextlib.contextmanager
def _locked(plan: BackupPlan) -> Iterator[None]:
    """Create a backup's folder, and hold the folder's lock while the ``with`` block runs."""
    target, store = plan.target.resolve(), plan.store.resolve()
    if target.is_relative_to(store) or store.is_relative_to(target):
        raise StoreFormatError(
            f"{plan.target}: a backup may be neither inside of the store's folder nor around it; name another folder"
        )
    if target.exists() and not target.is_dir():
        raise StoreFormatError(f"{plan.target} is a file; name a folder")
    try:
        there = {path.name for path in target.iterdir()} if target.exists() else set()
        if strange := sorted(there - _OWN_NAMES):
            raise StoreFormatError(
                f"{plan.target}: holds {strange[0][:80]!r}, which does not belong to a backup; name a new, empty folder"
            )
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        release = OS_DISK.lock(target / "lock")
    except BlockingIOError as error:
        raise StoreLockedError(f"{plan.target}: another process makes a backup into it; wait for its end") from error
    except OSError as error:
        raise StoreError(f"{plan.target}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        release()
