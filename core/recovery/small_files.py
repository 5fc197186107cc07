"""Compares the tables and other small files of a store with their recorded state (:mod:`.ends`), before a start reads them.

A table file that is empty, has only zeros or ``null``, or has disappeared, must not count as an empty table: groups would begin
as new groups, and topics would be unreachable. The table's backup replaces it, and topics are rebuilt from the queues. If
offsets would be lost, the start is refused.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from flintmq.core.errors import JsonSyntaxError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.disk import Disk
from flintmq.core.log_events import event_log
from flintmq.core.recovery.ends import Ends, counter_of

log = event_log("flintmq.store")

TOPICS: Final = "topics.json"
_NEEDED: Final = {
    "consumerOffset.json": "every group would start like a new group",
    "delayOffset.json": "every delayed message would be delivered again",
    "subscriptionGroup.json": "the settings of groups would be lost",
}
_OWN: Final = ("flint/epochs", "flint/feed", "checkpoint")
"""Small files of the store that every start checks in another way than by their recorded size and checksum."""


def changed_files(disk: Disk, root: Path, noted: Ends | None) -> tuple[str, ...]:
    """Return the names of a store's tables and other small files whose sizes or checksums have changed since the last clean
    stop.

    These files are the JSON tables in the folder ``config`` and files of features in the folder ``flint``. Backups are left
    out. If the store did not stop cleanly, only missing JSON files are returned. Call this function before a start writes
    anything. Raises OSError if a file cannot be read.
    """
    changed = []
    for name, note in noted.files.items() if noted is not None else ():
        if name in _OWN or name.endswith(".bak"):
            continue
        path = root / name
        if not disk.exists(path):
            if name.endswith(".json") or (noted is not None and noted.is_stop):
                changed.append(name)
        elif noted is not None and noted.is_stop and note.size_bytes >= 0:
            raw = disk.read(path)
            if (len(raw), zlib.crc32(raw)) != (note.size_bytes, note.crc32):
                changed.append(name)
    return tuple(changed)


def check_small_files(
    disk: Disk, root: Path, noted: Ends | None, changed: tuple[str, ...], *, is_outdated: bool, is_unused: bool
) -> list[str]:
    """Replace invalid tables by their backups, and log the small files that differ from their recorded state.

    Args:
        disk: the disk interface.
        root: the store's folder.
        noted: the state recorded before this start; None if no state was recorded.
        changed: the result of :func:`changed_files`.
        is_outdated: whether another broker has used the store after the state was recorded. Differences are then expected.
        is_unused: whether the log has never had a message, as in a store whose first start was killed. Such a store has no
            offsets to lose.

    Returns:
        The names of tables that lack entries or may lack entries. If ``topics.json`` is among them, the caller completes that
        table from the queues.

    Raises:
        StoreFormatError: a table that a start needs is lost; the message states the remedy.
        StoreError, OSError: the disk refused an operation.
    """
    config = root / "config"
    names = {path.name for path in disk.list_files(config) if path.suffix == ".json"}
    names |= {Path(name).name for name in changed if name.startswith("config/")}
    lacking = []
    for name in sorted(names):
        path = config / name
        raw = disk.read(path) if disk.exists(path) else None
        fault = table_fault(raw)
        if fault:
            _replace(disk, root, path, raw, fault, is_needed=name in _NEEDED and not is_unused)
            lacking.append(name)
        elif not is_outdated and noted is not None and raw is not None:
            counter, known = counter_of(raw), noted.counters.get(name, -1)
            if f"config/{name}" in changed or 0 <= counter < known:
                what = (
                    f"replaced by an older copy (change {counter} instead of {known})" if counter < known else "changed"
                )
                log.warning(
                    "store.file_changed",
                    "%(path)s differs from its recorded state: %(what)s since the last broker wrote it",
                    path=path,
                    what=what,
                )
                lacking.append(name)
    own = [name for name in noted.files if _is_own_table(name)] if noted is not None else []
    for name in own:
        path = root / name
        raw = disk.read(path) if disk.exists(path) else None
        if raw is not None and (fault := table_fault(raw)):
            _replace(disk, root, path, raw, fault, is_needed=path.name in _NEEDED and not is_unused)
            lacking.append(name)
    for name in changed:
        if not name.startswith("config/") and not is_outdated and name not in lacking:
            there = disk.exists(root / name)
            log.warning(
                "store.file_changed",
                "%(path)s differs from its recorded state: %(what)s since the last broker wrote it",
                path=root / name,
                what="changed" if there else "removed",
            )
            lacking.append(name)
    return lacking


def _is_own_table(name: str) -> bool:
    return name.startswith("flint/") and name.endswith(".json")


def table_fault(raw: bytes | None) -> str:
    """Return the reason why the content of a file cannot be a table; empty if the content may be a table."""
    if raw is None:
        return "it is missing"
    if not raw.strip():
        return "it is empty"
    if 0 in raw:
        return "it contains zero bytes"
    text = raw.strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return "it is not a JSON object"
    if text.count(b"{") != text.count(b"}"):
        # Strings in JSON may contain braces, so only a parser can decide whether the object is complete.
        try:
            fastjson.loads(raw)
        except JsonSyntaxError as error:
            return str(error)
    return ""


def _replace(disk: Disk, root: Path, path: Path, raw: bytes | None, fault: str, *, is_needed: bool) -> None:
    """Replace the lost file of a table by its backup; without a backup, raise if a start needs the table."""
    backup = path.with_name(path.name + ".bak")
    has_backup = disk.exists(backup) and not table_fault(disk.read(backup))
    if not has_backup and is_needed:
        raise StoreFormatError(
            f"{path}: {fault}, and so is its backup: {_NEEDED[path.name]}. Restore a good copy, for example from a backup. "
            "To start without the data of the file, write {} into it"
        )
    kept = ""
    if raw is not None:
        kept = f"; the earlier content is in {_set_aside(disk, root, path, raw)}"
    if has_backup:
        disk.write_file(path, disk.read(backup))
        taken = "its backup replaces it, and the last changes may be missing"
    elif path.name == TOPICS:
        taken = "topics are rebuilt from their queues: check their numbers of queues and their permissions"
    else:
        taken = "it is now empty"
    log.warning(
        "store.table_lost",
        "%(path)s: %(reason)s; %(taken)s%(quarantine)s",
        path=path,
        reason=fault,
        taken=taken,
        quarantine=kept,
    )


def _set_aside(disk: Disk, root: Path, path: Path, raw: bytes) -> Path:
    """Move a small file of a store to the quarantine, durably."""
    folder = root / "flint" / "quarantine"
    disk.make_folder(folder)
    number = 0
    while disk.exists(kept := folder / f"{path.name}-{number}"):
        number += 1
    disk.write_file(kept, raw)
    disk.remove(path)
    return kept
