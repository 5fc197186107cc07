"""Compares two stores: their logs record by record, and their configuration files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.io import fastjson
from flintmq.core.record.log_walk import Kind
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.walk import Piece, walk

_CONFIGS = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
_SHOWN = 20


def compare(left: StoreFiles, right: StoreFiles, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Return the differences of two stores as a dictionary, in which ``same`` is true if there are none. If one log begins
    earlier than the other, its first part is not compared."""
    start = max(left.log_start, right.log_start)
    first = None
    common = differing = only_left = only_right = 0
    for mine, theirs in _side_by_side(_records(left, start, progress), _records(right, start, None)):
        if mine is not None and theirs is not None and _bytes(left, mine) == _bytes(right, theirs):
            common += 1
            continue
        if first is None:
            first = {"left": _describe(mine), "right": _describe(theirs)}
        only_left += theirs is None
        only_right += mine is None
        differing += mine is not None and theirs is not None
    configs = {name: _config_difference(left, right, name) for name in _CONFIGS}
    found = {name: lines for name, lines in configs.items() if lines}
    return {
        "same": first is None and not found,
        "compared_from": start,
        "common_records": common,
        "differing_records": differing,
        "records_only_left": only_left,
        "records_only_right": only_right,
        "first_difference": first,
        "config": found,
    }


def _side_by_side(left: Iterator[Piece], right: Iterator[Piece]) -> Iterator[tuple[Piece | None, Piece | None]]:
    """Yield the records of two stores' logs, paired by position; None for a store without a record at the position."""
    mine, theirs = next(left, None), next(right, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine.start < theirs.start):
            yield mine, None
            mine = next(left, None)
        elif mine is None or theirs.start < mine.start:
            yield None, theirs
            theirs = next(right, None)
        else:
            yield mine, theirs
            mine, theirs = next(left, None), next(right, None)


def _records(files: StoreFiles, start: int, progress: Callable[[int], None] | None) -> Iterator[Piece]:
    return (piece for piece in walk(files, progress) if piece.kind is Kind.RECORD and piece.start >= start)


def _bytes(files: StoreFiles, piece: Piece) -> bytes:
    file = files.log_file(piece.start)
    assert file is not None
    return bytes(file.view[piece.start - file.start : piece.end - file.start])


def _describe(piece: Piece | None) -> dict[str, Any] | None:
    if piece is None or piece.record is None:
        return None
    record = piece.record
    return {
        "position": piece.start,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "size_bytes": record.size_bytes,
    }


def _config_difference(left: StoreFiles, right: StoreFiles, name: str) -> list[str]:
    mine, theirs = (_flat(_load(files, name)) for files in (left, right))
    keys = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    found = [
        f"{key}: {mine.get(key, 'absent')} | {theirs.get(key, 'absent')}" for key in keys if "dataVersion" not in key
    ]
    return found[:_SHOWN] + ([f"… {len(found) - _SHOWN} more"] if len(found) > _SHOWN else [])


def _load(files: StoreFiles, name: str) -> Any:
    path = files.root / "config" / name
    if not path.exists():
        return {}
    try:
        return fastjson.loads(path.read_bytes())
    except JsonSyntaxError as error:
        return {"unreadable": str(error)}


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, member in value.items():
            flat |= _flat(member, f"{prefix}/{key}" if prefix else str(key))
        return flat
    return {prefix: value}
