"""A store as it is at one moment: which files of the log there are, how far they may be read, and in which history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import attrs

from flintmq.core.log.epochs import Epochs, read_epochs
from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.store.log_files import LogFiles
from flintmq.plugins.spark.store.visible_end import VisibleEnd, visible_end

_TRIES: Final = 10


@attrs.frozen
class StoreView:
    """The store as it is at one moment."""

    log: LogFiles
    end: VisibleEnd
    epochs: Epochs | None


def root_of(options: ReadOptions) -> Path:
    """The store's folder; Spark may have made a ``file:`` address of it."""
    assert options.path is not None
    path = options.path
    return Path(unquote(urlsplit(path).path) if path.startswith("file:") else path)


def open_view(root: Path, options: ReadOptions) -> StoreView:
    """Log, end and epochs that belong together.

    Raises:
        OptionError: no store lies there.
        UnsettledStoreError: nothing tells how far it may be read.
        StoreError: a file of it cannot be read.
    """
    folders = options.commit_log_path or (root / "commitlog",)
    _check_store(root, folders)
    for _ in range(_TRIES):
        epochs = read_epochs(root)
        log_files = LogFiles(folders)
        end = visible_end(root, log_files, options.visibility, reads_torn=options.bad_records == "skip")
        if read_epochs(root) == epochs:
            break
    if end.end > log_files.end:
        log_files = LogFiles(folders)  # a file was added meanwhile
    if end.epoch_number is not None and epochs is not None and epochs.current.number > end.epoch_number:
        # A broker has just started, and its feed is not written again yet: what it may have cut is not read.
        start = next(one.start_offset_bytes for one in epochs.entries if one.number > end.epoch_number)
        end = attrs.evolve(end, end=min(end.end, start), units_complete_to=min(end.units_complete_to, start))
    return StoreView(log_files, end, epochs)


def _check_store(root: Path, log_folders: Sequence[str | Path]) -> None:
    if not root.is_dir():
        raise OptionError(
            f"{root}: there is no such folder: load() wants a store's folder, at the same path on every executor"
        )
    is_store = any(Path(folder).is_dir() for folder in (root / "consumequeue", *log_folders))
    if not is_store and not (root / "checkpoint").is_file():
        raise OptionError(
            f"{root}: no store lies there (no commitlog, no consumequeue): load() wants the folder that storePathRootDir "
            "names; where the commit log lies elsewhere, give option commitLogPath"
        )
