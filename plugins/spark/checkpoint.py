"""The checkpoint of a streaming query, as Spark keeps it: what was planned, what is done, and one more entry that moves it.

``offsets/N`` has the metadata of batch N and a line for each source, where the batch ends; ``commits/N`` says that it is done
(Spark's ``OffsetSeqLog`` and ``CommitLog``, version 1). A query that starts goes on behind the newest entry that is in both.
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
    """One batch of a query."""

    batch: int
    metadata: str
    """The settings that the query began with; Spark's JSON."""
    sources: tuple[str, ...]
    """Where the batch ends, in each source; ``-`` for nowhere."""
    is_done: bool
    """Whether it is committed."""

    @property
    def place(self) -> int:
        """Which of the sources is FlintMQ's. Raises CheckpointError where that is none, or several."""
        found = [place for place, text in enumerate(self.sources) if _offset(text) is not None]
        if len(found) != 1:
            raise CheckpointError(
                f"batch {self.batch} has {len(found)} sources of FlintMQ's among {len(self.sources)}: one is needed"
            )
        return found[0]

    @property
    def offset(self) -> Offset:
        """FlintMQ's offset. Raises CheckpointError as :attr:`place`."""
        found = _offset(self.sources[self.place])
        assert found is not None
        return found


@attrs.frozen
class Checkpoint:
    """A checkpoint in a folder that this process sees. Nothing may run on it while :meth:`move` is used."""

    folder: Path

    def newest(self) -> CheckpointEntry:
        """Return the newest batch that was planned.

        Raises:
            CheckpointError: the folder holds no checkpoint, or one of another version.
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
        """Whether the query keeps state, which belongs to its batches."""
        return (self.folder / "state").is_dir()

    def move(self, entry: CheckpointEntry, offset: Offset) -> int:
        """Add a batch that is done and ends at an offset, so that the query goes on there; return its number.

        Args:
            entry: the newest one.
            offset: where FlintMQ's source goes on.

        Raises:
            CheckpointError: the newest batch is not done, or the query keeps state.
            OSError: it cannot be written.
        """
        if not entry.is_done:
            raise CheckpointError(
                f"{self.folder}: batch {entry.batch} is planned and not done: what it has written already would come again. "
                "Run the query once, so that it ends it"
            )
        if self.has_state:
            raise CheckpointError(
                f"{self.folder}: the query keeps state (aggregates, joins, duplicates) that belongs to what it has read: start "
                "it with another checkpointLocation and startingOffsets"
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
            raise CheckpointError(f"{path} is of version {version[:20]!r}; this FlintMQ reads {_VERSION}")
        return lines

    def _write(self, log: str, batch: int, lines: list[str]) -> None:
        path = self.folder / log / str(batch)
        made = path.with_name(f".{batch}.flintmq")
        made.write_text("\n".join((_VERSION, *lines)), "utf-8")
        sync_file(made)
        made.rename(path)
        sync_folder(path.parent)


def _offset(text: str) -> Offset | None:
    """Return an offset of FlintMQ's; None for another source's."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("transport") in ("store", "broker") else None
