"""A configuration file that survives a crash at any moment (docs/internals/store-format.md, Configuration files).

Written as: new content to ``<file>.tmp`` and synced, the old file's content to ``<file>.bak``, then one atomic replace and a
sync of the folder. RocketMQ deletes the file before it renames and syncs nothing; what it reads and writes is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flintmq.core.errors import JsonSyntaxError, StoreError, StoreFormatError, store_error_kind
from flintmq.core.io import fastjson
from flintmq.core.io.disk import Disk
from flintmq.core.io.os_disk import OS_DISK


class JsonFile:
    """One file of JSON in RocketMQ's dialect with its backup. Not thread-safe; both calls block on the disk.

    Args:
        path: the file; its folder is made by the first :meth:`save`.
        disk: where it lies.
    """

    def __init__(self, path: Path, disk: Disk = OS_DISK) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._disk = disk
        self._is_readable = True
        """Whether the file may become the backup: one that could not be read must not replace a good one."""

    def load(self) -> Any:
        """The file's value; the backup's when the file is missing, empty or unreadable; None when neither is there.

        Raises:
            StoreFormatError: there are files, and none of them can be read.
        """
        reasons = []
        for path in (self.path, self.backup_path):
            try:
                raw = self._disk.read(path)
                if raw.strip():
                    return fastjson.loads(raw)
            except FileNotFoundError:
                continue
            except (OSError, JsonSyntaxError) as error:
                self._is_readable = False
                reasons.append(f"{path}: {error}")
        if reasons:
            raise StoreFormatError("; ".join(reasons))
        return None

    def save(self, value: Any) -> None:
        """Replace the file by a value, durably; the old content becomes the backup.

        Raises:
            StoreError: the disk refused (StoreFullError: it is full). The old file is still there.
        """
        new = fastjson.dumps_pretty(value).encode("utf-8")
        temporary = self.path.with_name(self.path.name + ".tmp")
        disk = self._disk
        try:
            disk.make_folder(self.path.parent)
            disk.write_file(temporary, new)
            if self._is_readable and disk.exists(self.path) and (old := disk.read(self.path)).strip():
                disk.write_file(self.backup_path, old)
            disk.replace(temporary, self.path)
        except OSError as error:
            kind = store_error_kind(error)
            raise kind(f"{self.path}: cannot be written: {error.strerror or error}") from error
        except StoreError as error:
            raise type(error)(f"{self.path}: cannot be written: {error}") from error
        self._is_readable = True
