"""Explains one place of the log, one message of a queue, one key, and what a start would decide."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

from flintmq.core.errors import StoreError
from flintmq.core.log.store_checkpoint import CHECKPOINT_BYTES
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record import record as rec
from flintmq.core.record.host import host_text
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.record import Record
from flintmq.core.recovery.log_walk import is_unwritten
from flintmq.core.store.consume_queue import UNIT, UNIT_BYTES
from flintmq.core.store.consume_queue_ext import is_address
from flintmq.core.store.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from flintmq.core.store.queue_units import FILLER_SIZE
from flintmq.plugins.doctor.files import FileView, StoreFiles, misfits, read_bytes
from flintmq.plugins.doctor.verify_config import CHECKPOINT, CHECKPOINT_NAMES
from flintmq.plugins.doctor.verify_index import INDEX_ENTRY, INDEX_HEADER
from flintmq.plugins.doctor.verify_queues import ext_units
from flintmq.plugins.doctor.walk import NEVER, Kind, Piece, walk

_SLACK_MS: Final = 3_000
_RECOVER_FILES: Final = 3

_BODY_SHOWN_BYTES: Final = 256


def record_json(record: Record, *, whole_body: bool = False) -> dict[str, Any]:
    """A record as JSON; the body as text where it is UTF-8, else in hex, cut to 256 bytes unless whole."""
    body = record.body if whole_body else record.body[:_BODY_SHOWN_BYTES]
    try:
        shown: dict[str, Any] = {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        shown = {"body_hex": body.hex()}
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "commit_log_offset_bytes": record.commit_log_offset_bytes,
        "size_bytes": record.size_bytes,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "body_crc": record.body_crc,
        "born_timestamp_ms": record.born_timestamp_ms,
        "born_host": host_text(record.born_host),
        "store_timestamp_ms": record.store_timestamp_ms,
        "store_host": host_text(record.store_host),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset_bytes": record.prepared_transaction_offset_bytes,
        "properties": record.properties,
        "body_bytes": len(record.body),
        **shown,
    }


def explain_position(files: StoreFiles, position: int) -> dict[str, Any]:
    """What lies at a physical offset: the piece it belongs to, walked from its file's start (a body may hold anything)."""
    file = files.log_file(position)
    if file is None:
        why = f"the log's files hold {files.log_start} to {files.log_end}" if files.log else "there is no log"
        return {"position": position, "is": "outside", "why": why}
    for piece in walk(files.tail_from(file)):
        if piece.start <= position < piece.end:
            return _piece_json(piece, position) | {"file": str(file.path), "at_in_file": position - file.start}
    return {"position": position, "is": "outside", "why": "the log's files have a gap there"}


def _piece_json(piece: Piece, position: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "position": position,
        "is": piece.kind.value,
        "begins_at": piece.start,
        "ends_at": piece.end,
    }
    if piece.reason:
        found["why"] = piece.reason
    if piece.record is not None:
        found["record"] = record_json(piece.record)
        if position != piece.start:
            found["why"] = f"in the middle of the record that begins at {piece.start}"
    return found


def explain_queue_offset(files: StoreFiles, topic: str, queue_id: int, queue_offset: int) -> dict[str, Any]:
    """A queue's unit and the message it points at."""
    parts = files.queue(topic, queue_id)
    found: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "queue_offset": queue_offset}
    if not parts:
        return found | {"is": "missing", "why": "there is no such queue"}
    position = queue_offset * UNIT_BYTES
    for part in parts:
        if part.start <= position and position + UNIT_BYTES <= part.start + part.size:
            physical, size, tags_code = UNIT.unpack_from(part.view, position - part.start)
            found |= {"file": str(part.path), "unit": {"position": physical, "size": size, "tags_code": tags_code}}
            if size <= 0 or physical < 0:
                return found | {
                    "is": "unused",
                    "why": "the unit was never written, or was cut: the queue ends before it",
                }
            if size == FILLER_SIZE and not physical:
                return found | {"is": "filler", "why": "the queue's first message came later"}
            if is_address(tags_code):
                found["extension"] = dict(ext_units(files.ext_files(topic, queue_id), tags_code)) or "missing"
            message = explain_position(files, physical)
            return found | {"is": "unit", "fits": _fits(message, found, size), "message": message}
    end = (parts[-1].start + parts[-1].size) // UNIT_BYTES
    return found | {
        "is": "outside",
        "why": f"the queue's files hold offsets {parts[0].start // UNIT_BYTES} to {end - 1}",
    }


def _fits(message: dict[str, Any], unit: dict[str, Any], size: int) -> bool:
    """Whether the unit's message is there, and says that it is this one."""
    record = message.get("record")
    return (
        record is not None
        and message["begins_at"] == message["position"]
        and record["size_bytes"] == size
        and all(record[name] == unit[name] for name in ("topic", "queue_id", "queue_offset"))
    )


def explain_key(files: StoreFiles, topic: str, key: str) -> dict[str, Any]:
    """How the index is asked for a key: hash, slot and chain of every file, and what the entries point at.

    Raises:
        StoreFormatError: an index file of a size that fits no geometry.
    """
    key_hash = index_key_hash(topic, key)
    chains = []
    for file, geometry in files.index_files():
        slot = key_hash % geometry.slots
        (index,) = struct.unpack_from(">i", file.view, HEADER_BYTES + slot * SLOT_BYTES)
        count = INDEX_HEADER.unpack_from(file.view)[5]
        chain = []
        while 0 < index < min(count, geometry.entries):
            at = HEADER_BYTES + geometry.slots * SLOT_BYTES + index * ENTRY_BYTES
            entry_hash, physical, seconds, previous = INDEX_ENTRY.unpack_from(file.view, at)
            same = entry_hash == key_hash
            chain.append(
                {"entry": index, "position": physical, "seconds": seconds, "same_hash": same}
                | (_held(files, physical, topic, key) if same else {})
            )
            if previous >= index:
                chain[-1]["why"] = f"the chain is broken: the entry before it is said to be {previous}"
                break
            index = previous
        chains.append({"file": str(file.path), "slot": slot, "entries": max(0, count - 1), "chain": chain})
    return {"topic": topic, "key": key, "hash": key_hash, "files": chains}


def _held(files: StoreFiles, position: int, topic: str, key: str) -> dict[str, Any]:
    file = files.log_file(position)
    if file is None:
        return {"message": "deleted" if position < files.log_start else "none: behind the log"}
    try:
        record = rec.decode_record(file.view, position - file.start)
    except rec.RecordError as error:
        return {"message": f"no record: {error}"}
    properties = record.properties
    is_it = record.topic == topic and (
        properties.get("UNIQ_KEY") == key or key in properties.get("KEYS", "").split(" ")
    )
    return {"message": "has the key" if is_it else "another key of the same hash", "topic": record.topic}


def explain_start(files: StoreFiles, *, cuts_damage: bool = False) -> dict[str, Any]:
    """What a broker would decide when it starts on this store: where it walks from, where the log ends, what it takes out.

    ``cuts_damage``: with ``compat: strict``, as in RocketMQ, the log ends at the first bytes that are no record, however
    much lies behind them; otherwise damage is replaced by records that no queue and no key leads to.
    """
    path = files.root / "checkpoint"
    raw = read_bytes(path) if path.exists() else b""
    times = CHECKPOINT.unpack_from(raw) if len(raw) >= CHECKPOINT.size else (0, 0, 0)
    decision: dict[str, Any] = {
        "last_stop": _last_stop(files),
        "checkpoint": dict(zip(CHECKPOINT_NAMES, times, strict=True)) if raw else None,
        "refuses": _refusals(files, raw),
    }
    if not files.log:
        return decision | {
            "walks_from": 0,
            "because": "there is no log: the queues are deleted",
            "records_walked": 0,
            "log_ends_at": 0,
            "cut": None,
            "damage": [],
            "queues_describe_up_to": -1,
            "queues": "are deleted",
        }
    trusted_ms = max(0, min(times[0], times[1]) - _SLACK_MS)
    first, why = _first_file(files, trusted_ms)
    described = _described(files)
    if files.is_clean:
        anew_from, what = max(0, described), "queues are"
    else:
        anew_from, what = _indexed_to(files, times[2], NEVER), "index is"
    while True:
        if (earlier := _file_of(files, anew_from)).start < first.start:
            first, why = earlier, f"the {what} made anew from position {anew_from}, and that part is walked too"
        end, records, cut, damage = _walked(files, first, cuts_damage, NEVER if files.is_clean else trusted_ms)
        anew_from, what = _indexed_to(files, times[2], end), "index is"
        if _file_of(files, anew_from).start >= first.start:
            break
    return decision | {
        "walks_from": first.start,
        "because": why,
        "records_walked": records,
        "log_ends_at": end,
        "cut": cut,
        "damage": damage,
        "queues_describe_up_to": described,
        "queues": "are cut back to the log's end"
        if described > end
        else "catch up with the log"
        if described < end
        else "fit",
    }


def _last_stop(files: StoreFiles) -> str:
    if is_locked(files.root):
        return "none yet: a broker runs on the store and holds its lock"
    return "clean" if files.is_clean else "unclean: there is an abort file"


def _refusals(files: StoreFiles, checkpoint: bytes) -> list[str]:
    """Why a start would not happen at all."""
    found: list[tuple[Path, str]] = []
    for number, folder in enumerate(files.log_folders):
        found += misfits(folder, files.log if number == 0 else ())
    for topic, queue_id, parts in files.queues():
        found += misfits(files.queue_folder(topic, queue_id), parts, UNIT_BYTES)
    for path in files.index_paths():
        try:
            files.index_file(path)
        except StoreError as error:
            found.append((path, str(error).removeprefix(f"{path}: ")))
    if checkpoint and len(checkpoint) != CHECKPOINT_BYTES:
        found.append((files.root / "checkpoint", f"{len(checkpoint)} bytes, a checkpoint has {CHECKPOINT_BYTES}"))
    return [f"{path}: {why}" for path, why in found]


Cut = dict[str, Any]


def _walked(
    files: StoreFiles, first: FileView, cuts_damage: bool, trusted_ms: int
) -> tuple[int, int, Cut | None, list[Cut]]:
    """Where the walk of a start ends, how many records it passes, what it cuts off, and what damage it passes."""
    end, records = first.start, 0
    last_ms = 0
    damage: list[Cut] = []
    torn: list[_TornAppend] = []
    for piece in walk(files.tail_from(first), trusted_ms=trusted_ms):
        torn = [append for append in torn if append.goes_on_with(piece)]
        if torn and piece.kind in (Kind.UNUSED, Kind.TAIL, Kind.STALE):
            break
        if piece.record is not None:
            stored_ms = piece.record.store_timestamp_ms
            if damage and damage[-1]["to"] == piece.start and stored_ms < last_ms:
                damage[-1]["to"] = piece.end  # a start goes on with what is no older than the last good one
                continue
            last_ms = stored_ms
            records += 1
            end = piece.end
        elif piece.kind is Kind.BLANK:
            # The last file's blank is overwritten: nothing came after it.
            end = piece.end if piece.end < files.log_end else piece.start
            if damage and damage[-1]["to"] == piece.start:
                damage[-1]["to"] = piece.end  # a start goes on with the next record
        elif piece.kind is Kind.UNUSED:
            return piece.start, records, None, damage
        elif piece.kind is Kind.DAMAGE and not cuts_damage:
            damage.append({"from": piece.start, "to": piece.end, "why": piece.reason})
            file = files.log_file(piece.start)
            if file is None or trusted_ms == NEVER:
                continue
            if is_unwritten(file.view, piece.start - file.start, piece.end - file.start):
                torn.append(_TornAppend(piece, file, records))
        else:
            return piece.start, records, {"is": piece.kind.value, "from": piece.start, "why": piece.reason}, damage
    if torn:
        bad = torn[0].piece
        passed = [part for part in damage if part["from"] < bad.start]
        return bad.start, torn[0].records, {"is": Kind.TAIL.value, "from": bad.start, "why": bad.reason}, passed
    return end, records, None, damage


class _TornAppend:
    """Damage that may be the beginning of one append which a crash cut short (see ``LogWalk._is_torn_append``)."""

    def __init__(self, piece: Piece, file: FileView, records: int) -> None:
        self.piece = piece
        self.records = records
        """Before it."""
        self._file_end = file.start + file.size
        self._stored_ms = -1

    def goes_on_with(self, piece: Piece) -> bool:
        """Whether what follows may still be that append."""
        if piece.kind in (Kind.UNUSED, Kind.TAIL, Kind.STALE):
            return True
        if piece.kind is Kind.BLANK or piece.end > self._file_end:
            return False
        if piece.record is not None:
            stored_ms = piece.record.store_timestamp_ms
            if self._stored_ms not in (-1, stored_ms):
                return False
            self._stored_ms = stored_ms
        return True


def _first_file(files: StoreFiles, trusted_ms: int) -> tuple[FileView, str]:
    log = [file for number, file in enumerate(files.log) if file.size or number < len(files.log) - 1]
    log = log or files.log
    if files.is_clean:
        return log[max(0, len(log) - _RECOVER_FILES)], "after a clean stop the last three files are walked"
    for file in reversed(log[1:]):
        try:
            record = rec.decode_record(file.view)
        except rec.RecordError:
            continue  # of which a crash left only the head, perhaps
        if record.commit_log_offset_bytes == file.start and 0 < record.store_timestamp_ms <= trusted_ms:
            return file, f"it is the last file that begins no later than the checkpoint vouches for ({trusted_ms})"
    return log[0], f"no later file begins at or before what the checkpoint vouches for ({trusted_ms})"


def _file_of(files: StoreFiles, position: int) -> FileView:
    """The commit log's file that holds a position, or the nearest one."""
    return files.log[max(0, min((position - files.log_start) // files.log_file_bytes, len(files.log) - 1))]


def _indexed_to(files: StoreFiles, index_timestamp_ms: int, log_end: int) -> int:
    """The physical offset from which a start indexes anew, with the index switched on, when the log ends at another one.

    See ``IndexService.load`` and ``IndexService.drop_beyond``.
    """
    end = 0
    paths = files.index_paths()
    same_boot = files.is_of_this_boot
    for path in paths:
        if not path.stat().st_size:
            continue
        try:
            file, geometry = files.index_file(path)
        except StoreError:
            return end  # such a store is refused
        _begin_ms, end_ms, _begin, physical_end, _slots, count = INDEX_HEADER.unpack_from(file.view)
        vouched = count >= geometry.entries and end_ms <= index_timestamp_ms and path != paths[-1]
        if not (files.is_clean or same_boot or vouched):
            return end
        if count > 1 and physical_end < log_end:
            end = physical_end
    return end


def _described(files: StoreFiles) -> int:
    """The largest physical end that a queue's last unit describes, as recovery finds it."""
    newest = -1
    for _topic, _queue_id, parts in files.queues():
        for part in parts[-_RECOVER_FILES:]:
            valid = 0
            for physical, size, _tags in UNIT.iter_unpack(part.view[: part.size - part.size % UNIT_BYTES]):
                if physical < 0 or size <= 0:
                    break
                valid += 1
                if size != FILLER_SIZE or physical:
                    newest = max(newest, physical + size)
            if valid * UNIT_BYTES < part.size:
                break
    return newest
