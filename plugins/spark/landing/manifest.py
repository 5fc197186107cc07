"""The manifest of a landing zone: one small file for each commit, with the part of the log that the commit has landed.

``_flintmq/commit-<start>-<end>.json`` records that the log between two physical offsets has landed, and in which files. Commits
follow each other without gap or overlap. A commit is published in one step, before its files get their final names. After a
crash, the files of published commits get their final names, and all other files are removed.

From time to time, old commits are joined into ``_flintmq/joined-<start>-<end>.jsonl``, with one commit in each line.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.core.io.disk import Disk
from flintmq.plugins.spark.landing.task import LandingError, LogSource

MANIFEST_FOLDER: Final = "_flintmq"
"""Name of the manifest's folder in a landing zone. Readers of the zone ignore names that begin with an underscore."""
VERSION: Final = 1
JOIN_AT: Final = 1_000
"""Minimum number of commits to join. If a manifest has this number of files with a single commit each, the commits are joined
into one file."""
_COMMIT: Final = re.compile(r"commit-(\d{20})-(\d{20})\.json")
_JOINED: Final = re.compile(r"joined-(\d{20})-(\d{20})\.jsonl")


@attrs.frozen
class LandedFile:
    """A data file of a landing zone, as a commit lists the file."""

    path: str
    """Path of the landed file, relative to the landing zone's folder."""
    topic: str
    rows: int
    size_bytes: int


@attrs.frozen(kw_only=True)
class Commit:
    """One step of copying the log to a landing zone: the copied range of the log, and the written files."""

    start_offset_bytes: int
    """Physical offset of the first byte of the log range that the commit covers."""
    end_offset_bytes: int
    """Physical offset just past the last byte of the log range that the commit covers."""
    files: tuple[LandedFile, ...] = ()
    """The files of the commit, ordered by topic and day."""
    store_id: str
    """Id of the store whose log the commit covers."""
    epoch: int
    """Number of the log's epoch when the commit was made. An epoch is a part of the log in which each physical offset was used
    only once."""
    broker_name: str
    committed_at_ms: int
    """Wall-clock time of the commit, in ms since 1970."""
    lost_to_bytes: int | None = None
    """Physical offset up to which the log was deleted before it was copied to the landing zone; None if nothing was lost."""

    @property
    def name(self) -> str:
        return f"commit-{self.start_offset_bytes:020d}-{self.end_offset_bytes:020d}.json"

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION} | attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> Commit:
        """Parse a text that :meth:`to_json` wrote, and return its commit. Raises LandingError for any other text."""
        try:
            content: dict[str, Any] = json.loads(text)
            if content.pop("version") != VERSION:
                raise LandingError(
                    f"{where} was written by a later version of FlintMQ: use that version, or another landing zone"
                )
            files = tuple(LandedFile(**file) for file in content.pop("files"))
            return cls(files=files, **content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LandingError(
                f"{where} is damaged ({error}); restore a good copy, or land into another folder (spark_feed.landing.path)"
            ) from error


class Manifest:
    """The commits of one landing zone. Not thread-safe. Only one process may use a zone's manifest at a time.

    Args:
        disk: the disk that holds the zone.
        root: the landing zone's folder.

    Raises:
        LandingError: the commits have a gap or an overlap, or a commit cannot be read.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self.folder = root / MANIFEST_FOLDER
        self._ranges = _ranges(disk, self.folder)
        _check_chain(self.folder, [found[:2] for found in self._ranges])
        self.last: Commit | None = self._load_last()
        """The newest commit of the landing zone; None if the zone has no commit."""

    def add(self, commit: Commit) -> None:
        """Add a commit to the landing zone's manifest durably. Raises StoreError or OSError if the commit is not published."""
        temporary = self.folder / f".{commit.name}"
        self._disk.write_file(temporary, commit.to_json().encode())
        self._disk.replace(temporary, self.folder / commit.name)
        self._ranges.append((commit.start_offset_bytes, commit.end_offset_bytes, commit.name))
        self.last = commit

    def commits(self) -> Iterator[Commit]:
        """Yield all commits of the landing zone, oldest first."""
        for _start, _end, name in self._ranges:
            path = self.folder / name
            for line in self._disk.read(path).splitlines():
                yield Commit.from_json(line, path)

    def join_old(self, at: int = JOIN_AT) -> bool:
        """Move all commits that have a separate file, except the newest, to one joined file. Do nothing if there are fewer than
        ``at`` such commits.

        Return whether commits were joined. After a crash, some of the separate files may remain beside the joined file;
        :meth:`clean` removes them.
        """
        single = [found for found in self._ranges[:-1] if _COMMIT.fullmatch(found[2])]
        if len(single) < at:
            return False
        lines = [self._disk.read(self.folder / name).strip() + b"\n" for _start, _end, name in single]
        name = f"joined-{single[0][0]:020d}-{single[-1][1]:020d}.jsonl"
        temporary = self.folder / f".{name}"
        self._disk.write_file(temporary, b"".join(lines))
        self._disk.replace(temporary, self.folder / name)
        for _start, _end, old in single:
            self._disk.remove(self.folder / old)
        self._ranges = _ranges(self._disk, self.folder)
        return True

    def clean(self) -> None:
        """Remove what a crash can leave in a landing zone's manifest: unfinished files, and single commits that a joined file
        contains."""
        kept = {name for _start, _end, name in self._ranges}
        for path in self._disk.list_files(self.folder):
            known = _COMMIT.fullmatch(path.name) or _JOINED.fullmatch(path.name)
            if path.name.startswith(".") or (known and path.name not in kept):
                self._disk.remove(path)

    def _load_last(self) -> Commit | None:
        if not self._ranges:
            return None
        path = self.folder / self._ranges[-1][2]
        last = Commit.from_json(self._disk.read(path).splitlines()[-1], path)
        if last.end_offset_bytes != self._ranges[-1][1]:
            raise LandingError(
                f"{path}: the range in the file differs from the range in its name; land into another folder "
                "(spark_feed.landing.path)"
            )
        return last


def check_source(root: Path, source: LogSource, last: Commit) -> None:
    """Raise LandingError if a landing zone contains messages of another log, or messages of this log that were truncated
    later."""
    if last.store_id != source.store_id:
        raise LandingError(
            f"{root}: the folder has the messages of another store (id {last.store_id}, broker {last.broker_name}); "
            f"this store has the id {source.store_id}: set spark_feed.landing.path to another folder"
        )
    cut = source.cut_below(last.epoch, last.end_offset_bytes)
    if cut is not None:
        raise LandingError(
            f"{root}: the log was copied to this landing zone up to position {last.end_offset_bytes}, but a recovery has "
            f"cut the log at {cut}: the log no longer contains the rows after {cut}. "
            "Set spark_feed.landing.path to another folder"
        )


def committed_position(disk: Disk, root: Path) -> int | None:
    """Return the physical offset up to which the log has been copied to a landing zone. The names of the zone's commits show
    the offset; None if the zone has no commit."""
    ranges = _ranges(disk, root / MANIFEST_FOLDER)
    return ranges[-1][1] if ranges else None


def _ranges(disk: Disk, folder: Path) -> list[tuple[int, int, str]]:
    """Return the start offset, the end offset and the file name of each commit file in a landing zone's manifest, in the order
    of the log. Offsets are physical.

    A commit file has a single commit or, after a join, many consecutive commits. If a joined file contains a commit, the file
    that has only this commit is left out.
    """
    found: list[tuple[int, int, str]] = []
    for path in disk.list_files(folder):
        match = _COMMIT.fullmatch(path.name) or _JOINED.fullmatch(path.name)
        if match:
            found.append((int(match[1]), int(match[2]), path.name))
    found.sort(key=lambda one: (one[0], -one[1], one[2]))
    kept: list[tuple[int, int, str]] = []
    for one in found:
        if kept and one[1] <= kept[-1][1] and kept[-1][2].startswith("joined-"):
            continue  # The commit is skipped, because a file of joined commits contains the same commit.
        kept.append(one)
    return kept


def _check_chain(folder: Path, ranges: Sequence[tuple[int, int]]) -> None:
    for before, after in itertools.pairwise(ranges):
        if before[1] != after[0]:
            raise LandingError(
                f"{folder}: a commit ends at {before[1]} and the next one begins at {after[0]}: commits are missing or "
                "foreign; restore them, or land into another folder (spark_feed.landing.path)"
            )
