"""Make what a crash may leave, from the journal of :class:`flintmq.testing.journaled_files.JournaledFiles`.

A :class:`CrashPoint` stands behind the first n operations. A *killed process* leaves what was written, of the write under way
perhaps only the beginning (:meth:`CrashPoint.killed`). A *power cut* leaves what was synced, and of everything else what luck
and the kernel had brought to the disk by then (:meth:`CrashPoint.power_cut`), in one of these kinds:

===========  ==================================================================================================
lost         nothing that was not synced
kept         all of it
pages        of each page of 4 KiB the old or the new content
sectors      of each sector of 512 bytes the old or the new content
reordered    the last writes, not the first ones
ordered      the first writes, not the last ones
stale        of each sector the content at some moment since the last sync, in the middle of a copy perhaps
zeroed       all of it, but some pages that were never synced are zeros
===========  ==================================================================================================

Names that were made and not synced may be missing, names that were removed may be there again, and a file whose size was not
synced may be empty. A file's content is lost with its name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flintmq.testing.journaled_files import IN_ORDER, WRITES, Image, JournaledFiles, JournalReplay, ReplayedFile

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096
KINDS: Final = ("lost", "kept", "pages", "sectors", "reordered", "ordered", "stale", "zeroed")
_ATOMIC_BYTES: Final = 64
"""A copy of so few bytes is made of words of 8; a longer one may end anywhere."""
_ORDERED_BYTES: Final = 256
"""A copy of fewer bytes goes from the first to the last."""


class CrashPoint(JournalReplay):
    """What a crash behind some operations of a journal may leave."""

    def killed(self, rng: random.Random | None = None) -> Image:
        """Return what a killed process leaves; with ``rng`` a part of the next operation too, where that is a write."""
        files = {path: bytes(self._files[file].cache) for path, file in self._names.items()}
        if rng is not None and self.number < len(self._journal) and self._journal[self.number][0] in WRITES:
            how, file, position, data = self._journal[self.number]
            for path, named in self._names.items():
                if named == file:
                    content = bytearray(files[path])
                    for begin, end in _copied(len(data), rng, in_order=how == IN_ORDER):
                        content[position + begin : position + end] = data[begin:end]
                    files[path] = bytes(content)
        return Image(files, frozenset(self._folders))

    def power_cut(self, kind: str, rng: random.Random) -> Image:
        """Return what a power cut of a kind leaves."""
        names = dict(self._durable_names)
        folders: set[Path] = set()
        for folder in sorted(self._folders | self._durable_folders):  # parents first
            durable = folder in self._durable_folders or (kind != "lost" and (kind == "kept" or rng.random() < 0.7))
            if durable and (folder.parent in folders or folder == folder.parent):
                folders.add(folder)
        if kind != "lost":
            for path, file in self._names.items():
                if names.get(path) != file and (kind == "kept" or rng.random() < 0.7):
                    names[path] = file
            named_now = set(self._names.values())
            for path in [path for path in names if path not in self._names]:
                # One of two names of a file is always that of a renaming, which is done or not: the old name stays where the
                # new one is not there.
                renamed = [new for new, file in names.items() if file == names[path] and new != path]
                gone = kind == "kept" or bool(renamed) or rng.random() < 0.5
                if gone and (renamed or names[path] not in named_now):
                    del names[path]
        files: dict[Path, bytes] = {}
        threshold = rng.randrange(self.number + 1)
        for path, file in names.items():
            if path.parent in folders:
                files[path] = self._content(self._files[file], kind, threshold, rng)
        return Image(files, frozenset(folders))

    def _content(self, file: ReplayedFile, kind: str, threshold: int, rng: random.Random) -> bytes:
        if file.kept_bytes < len(file.durable) and kind != "kept" and (kind == "lost" or rng.random() < 0.3):
            return bytes(file.durable[: file.kept_bytes])
        if kind == "lost" or not file.pending:
            return bytes(file.durable)
        if kind == "kept":
            return bytes(file.cache)
        content = bytearray(file.durable)
        if kind in ("ordered", "reordered"):
            for number, position, data in file.pending:
                if (number < threshold) == (kind == "ordered"):
                    content[position : position + len(data)] = data
            return bytes(content)
        block_bytes = PAGE_BYTES if kind in ("pages", "zeroed") else SECTOR_BYTES
        for start in _dirty(file, block_bytes):
            end = min(start + block_bytes, len(content))
            if kind == "stale":
                content[start:end] = self._earlier(file, start, end, rng)
            elif kind == "zeroed":
                never_synced = not file.durable[start:end].strip(b"\0")
                if not never_synced or rng.random() < 0.7:
                    content[start:end] = file.cache[start:end]
            elif rng.random() < 0.5:
                content[start:end] = file.cache[start:end]
        return bytes(content)

    @staticmethod
    def _earlier(file: ReplayedFile, start: int, end: int, rng: random.Random) -> bytes:
        """Return a block as it was at some moment since the last sync; the last of its writes may be cut short."""
        content = bytearray(file.durable)
        writes = [
            (position, data) for _n, position, data in file.pending if position < end and position + len(data) > start
        ]
        done = rng.randrange(len(writes) + 1)
        for position, data in writes[:done]:
            content[position : position + len(data)] = data
        if done < len(writes):
            position, data = writes[done]
            for begin, until in _copied(len(data), rng):
                content[position + begin : position + until] = data[begin:until]
        return bytes(content[start:end])


def _dirty(file: ReplayedFile, block_bytes: int) -> list[int]:
    """Return the starts of the blocks with bytes that were not synced."""
    blocks: set[int] = set()
    for _number, position, data in file.pending:
        blocks.update(range(position // block_bytes, (position + len(data) - 1) // block_bytes + 1))
    return [block * block_bytes for block in sorted(blocks)]


def _copied(length: int, rng: random.Random, *, in_order: bool = False) -> list[tuple[int, int]]:
    """Return the parts of so many bytes that an interrupted copy has done. A large copy need not go in order."""
    if length <= _ATOMIC_BYTES:
        return [(0, rng.randrange(0, length, 8))]
    how = rng.randrange(3)
    at = rng.randrange(length)
    if how == 0 or length < _ORDERED_BYTES or in_order:
        return [(0, at)]
    if how == 1:
        return [(at, length)]
    return [
        (begin, min(length, begin + _ATOMIC_BYTES)) for begin in range(0, length, _ATOMIC_BYTES) if rng.random() < 0.5
    ]


def states(
    disk: JournaledFiles, numbers: Sequence[int], seed: int, kinds: Sequence[str] = KINDS
) -> Iterator[tuple[int, str, Image]]:
    """Return (operations done, kind, contents) for each of some crash points: killed, killed in a write, every power cut.

    ``numbers`` must ascend. The same seed, number and kind give the same contents, whatever else is asked for.
    """
    point = CrashPoint(disk)
    for number in numbers:
        point.advance(number)
        yield number, "killed", point.killed()
        if number < len(disk.journal) and disk.journal[number][0] in WRITES:
            yield number, "cut", point.killed(_rng(seed, number, "cut"))
        for kind in kinds:
            yield number, kind, point.power_cut(kind, _rng(seed, number, kind))


def _rng(seed: int, number: int, kind: str) -> random.Random:
    return random.Random((seed * 1_000_003 + number) * 31 + (KINDS.index(kind) if kind in KINDS else len(KINDS)))
