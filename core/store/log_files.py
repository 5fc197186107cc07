"""The files of a store's commit log, in one folder or in several, as the settings say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final

from flintmq.config.sections.store import StoreSection
from flintmq.core.io.disk import Disk
from flintmq.core.kernel.ports import TransientStorePool
from flintmq.core.log.mapped_file_queue import MappedFileQueue
from flintmq.core.log.multi_path_queue import MultiPathMappedFileQueue

_STEP_BYTES: Final = 64 * 1024 * 1024


def commit_log_folders(settings: StoreSection) -> tuple[Path, ...]:
    """Return the folders where the commit log's files are made."""
    return tuple(map(Path, settings.commit_log_paths)) or (Path(settings.path) / "commitlog",)


def log_files(
    settings: StoreSection,
    folders: Sequence[Path],
    disk: Disk,
    pool: TransientStorePool | None,
    background: Executor | None,
) -> MappedFileQueue:
    """Return the files of a commit log, not mapped yet.

    Args:
        settings: sizes, and folders that are read only.
        folders: where files are made.
        disk: where they lie.
        pool: buffers that records are appended to first; None where they are appended to the maps.
        background: makes files ahead; None where none are.
    """
    read_only = [Path(path) for path in settings.read_only_commit_log_paths]
    make: Callable[..., MappedFileQueue]
    if len(folders) == 1 and not read_only:
        make = partial(MappedFileQueue, disk, folders[0])
    else:
        make = partial(MultiPathMappedFileQueue, disk, list(folders), read_only)
    return make(
        settings.commit_log_file_bytes,
        step_bytes=_STEP_BYTES,
        pool=pool,
        ahead=background,
        warm=settings.warm,
        holds=True,
    )
