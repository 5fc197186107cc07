"""Reads the checkpoint folder of a streaming query and moves the query to another offset.

The layout is Spark's (``OffsetSeqLog`` and ``CommitLog``, version 1). ``offsets/N`` holds the metadata of batch N and one line
per source with the offset at which the batch ends. ``commits/N`` exists if the batch is done. A restarted query continues after
the newest batch that has both files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.core.io.paths import sync_file, sync_folder
from flintmq.plugins.spark.errors import CheckpointError
from flintmq.plugins.spark.ports import Offset

_VERSION: Final = "v1"
_ENTRY_MAX_BYTES: Final = 64 * 1024 * 1024


@attrs.frozen
class CheckpointEntry:
    """A batch of a streaming query, as read from its checkpoint."""

    batch: int
    metadata: str
    """The settings that the query had at its first start, as JSON that Spark wrote."""
    sources: tuple[str, ...]
    """Offsets at which the batch ends, as JSON, one for each source of the query. The text ``-`` stands for a source without an
    offset."""
    is_done: bool
    """Whether Spark has committed the batch."""

    @property
    def place(self) -> int:
        """The index of FlintMQ's source among the query's :attr:`sources`. Raises CheckpointError if the query has no FlintMQ
        source, or more than one."""
        found = [place for place, text in enumerate(self.sources) if _offset(text) is not None]
        if len(found) != 1:
            raise CheckpointError(
                f"batch {self.batch} has {len(found)} FlintMQ sources among {len(self.sources)} sources, and must have one"
            )
        return found[0]

    @property
    def offset(self) -> Offset:
        """The offset at which the batch ends in FlintMQ's source. Raises CheckpointError if the query has no FlintMQ source, or
        more than one."""
        found = _offset(self.sources[self.place])
        assert found is not None
        return found


@attrs.frozen
class Checkpoint:
    """The checkpoint of a streaming query, in a folder that this process can read and write. The query must not run during
    :meth:`move`."""

    folder: Path

    def newest(self) -> CheckpointEntry:
        """Return the newest batch that a checkpoint's query has planned.

        Raises:
            CheckpointError: the folder has no checkpoint, or the checkpoint has an unknown version.
        """
        batches = self._batches("offsets")
        if not batches:
            below = sorted(one.parent.name for one in self.folder.glob("*/offsets"))
            hint = f"; the sinks of a pipeline have one each, here {', '.join(below)}" if below else ""
            raise CheckpointError(f"{self.folder}: no checkpoint of a streaming query lies there (no offsets/0){hint}")
        lines = self._lines("offsets", batches[-1])
        if len(lines) < 2:
            raise CheckpointError(f"{self.folder}/offsets/{batches[-1]} has no source")
        return CheckpointEntry(batches[-1], lines[0], tuple(lines[1:]), batches[-1] in self._batches("commits"))

    @property
    def has_state(self) -> bool:
        """Whether the query keeps state, such as aggregates. A query with state cannot be moved to another offset, because the
        state depends on the rows that were read."""
        return (self.folder / "state").is_dir()

    def move(self, entry: CheckpointEntry, offset: Offset) -> int:
        """Add a finished batch to the checkpoint, and return the batch's number. At its next start, the query continues from
        the end of this batch.

        Args:
            entry: the newest batch.
            offset: the offset from which FlintMQ's source reads next.

        Raises:
            CheckpointError: the newest batch is not done, or the query keeps state.
            OSError: the checkpoint cannot be written.
        """
        if not entry.is_done:
            raise CheckpointError(
                f"{self.folder}: batch {entry.batch} is planned but not finished: rows that it has written would be written "
                "again. Run the query once to finish the batch"
            )
        if self.has_state:
            raise CheckpointError(
                f"{self.folder}: the query keeps state (aggregates, joins, duplicates) that depends on the rows that it has "
                "read: start the query with another checkpointLocation and startingOffsets"
            )
        batch = entry.batch + 1
        sources = list(entry.sources)
        sources[entry.place] = json.dumps(offset)
        commit = self._lines("commits", entry.batch)
        self._write("offsets", batch, [entry.metadata, *sources])
        self._write("commits", batch, commit)
        return batch

    def _batches(self, log: str) -> list[int]:
        try:
            names = os.listdir(self.folder / log)  # noqa: PTH208 - names alone
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def _lines(self, log: str, batch: int) -> list[str]:
        path = self.folder / log / str(batch)
        if path.stat().st_size > _ENTRY_MAX_BYTES:
            raise CheckpointError(
                f"{path} is larger than {_ENTRY_MAX_BYTES} bytes: an entry of a checkpoint is smaller"
            )
        version, *lines = path.read_text("utf-8").splitlines() or [""]
        if version != _VERSION:
            raise CheckpointError(f"{path} has version {version[:20]!r}; this FlintMQ reads version {_VERSION}")
        return lines

    def _write(self, log: str, batch: int, lines: list[str]) -> None:
        path = self.folder / log / str(batch)
        made = path.with_name(f".{batch}.flintmq")
        made.write_text("\n".join((_VERSION, *lines)), "utf-8")
        sync_file(made)
        made.rename(path)
        sync_folder(path.parent)


def _offset(text: str) -> Offset | None:
    """Return the offset in one line of a checkpoint file; None if the line belongs to another source than FlintMQ's."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("transport") in ("store", "broker") else None
