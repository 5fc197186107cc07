"""Under which boot of the kernel a store was last in use: while it is the same, all that a killed process wrote is there."""

from __future__ import annotations

from pathlib import Path

from flintmq.core.io.disk import Disk


def boot_path(root: Path) -> Path:
    """Return the file that says so, in a store's folder."""
    return root / "flint" / "boot"


def is_same_boot(disk: Disk, root: Path) -> bool:
    """Return whether the machine has been running ever since the store in a folder was last in use. Changes nothing."""
    now = disk.incarnation(root).encode()
    path = boot_path(root)
    return bool(now) and disk.exists(path) and disk.read(path) == now
