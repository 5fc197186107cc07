"""Explains a position of the log, a message of a queue, a key, and what a broker would do at its start."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import msgspec

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import StoreError
from flintmq.core.log.store_checkpoint import CHECKPOINT_BYTES
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record import record as rec
from flintmq.core.record.host import host_text
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.message_keys import index_keys
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES, is_address
from flintmq.core.record.record import Record
from flintmq.core.recovery.plan import RecoveryPlan
from flintmq.core.recovery.start_walk import Cut
from flintmq.core.store.opened_store import plan_of
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from flintmq.programs.doctor.files import StoreFiles, misfits, read_bytes
from flintmq.programs.doctor.look_disk import LookDisk
from flintmq.programs.doctor.rebuild import fitting, spec_of
from flintmq.programs.doctor.verify_config import CHECKPOINT, CHECKPOINT_NAMES
from flintmq.programs.doctor.verify_index import INDEX_ENTRY, INDEX_HEADER
from flintmq.programs.doctor.verify_queues import ext_units
from flintmq.programs.doctor.walk import Piece, walk

_BODY_SHOWN_BYTES: Final = 256


def record_json(record: Record, *, whole_body: bool = False) -> dict[str, Any]:
    """Return a record as JSON. The record's body is shown as text if it is UTF-8, else as hex. The body is cut to 256 bytes
    unless ``whole_body`` is set."""
    body = record.body if whole_body else record.body[:_BODY_SHOWN_BYTES]
    try:
        shown: dict[str, Any] = {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        shown = {"body_hex": body.hex()}
    fields = msgspec.structs.asdict(record)
    del fields["body"], fields["properties_bytes"]
    return {
        **fields,
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
        "properties": record.properties,
        "body_bytes": len(record.body),
        **shown,
    }


def explain_position(files: StoreFiles, position: int) -> dict[str, Any]:
    """Return the part of the log at a physical offset: a record, a blank record or a damaged part. The log is read from the
    start of the file, because a body may contain bytes that look like the start of a record."""
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
    """Return a unit of a consume queue, and the message that the unit refers to."""
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
    """Return whether the message that a queue unit refers to exists and has the unit's size, topic, queue id and queue
    offset."""
    record = message.get("record")
    return (
        record is not None
        and message["begins_at"] == message["position"]
        and record["size_bytes"] == size
        and all(record[name] == unit[name] for name in ("topic", "queue_id", "queue_offset"))
    )


def explain_key(files: StoreFiles, topic: str, key: str) -> dict[str, Any]:
    """Return how the index is searched for a key: hash, slot and chain in each file, and the messages of the entries.

    Raises:
        StoreFormatError: an index file has an impossible size.
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
    is_it = record.topic == topic and key in index_keys(record)
    return {"message": "has the key" if is_it else "another key of the same hash", "topic": record.topic}


def explain_start(files: StoreFiles, config: BrokerConfig = BrokerConfig()) -> dict[str, Any]:
    """Return what a broker would do if it started on this store. The result contains the recovery plan that the broker itself
    would make.

    Args:
        files: the store; it is not changed.
        config: the broker's configuration; file sizes come from the store's files. With ``compat: strict`` the log ends, as in
            RocketMQ, at the first bytes that are not a record, even if records follow. Otherwise damaged parts are replaced by
            records that are not in any queue and cannot be found by a key.
    """
    path = files.root / "checkpoint"
    raw = read_bytes(path) if path.exists() else b""
    times = CHECKPOINT.unpack_from(raw) if len(raw) >= CHECKPOINT.size else (0, 0, 0)
    refuses: list[str] = []
    plan = None
    try:
        plan = plan_of(spec_of(fitting(config, files), disk=LookDisk()))
    except StoreError as error:
        refuses = _refusals(files, raw) or [str(error)]
    return {
        "last_stop": _last_stop(files),
        "checkpoint": dict(zip(CHECKPOINT_NAMES, times, strict=True)) if raw else None,
        "refuses": refuses,
        **(_plan_json(plan) if plan is not None else _NO_PLAN),
    }


_NO_PLAN: Final[dict[str, Any]] = {
    "walks_from": 0,
    "because": "a start refuses the store as it is",
    "records_walked": 0,
    "log_ends_at": 0,
    "cut": None,
    "damage": [],
    "queues_describe_up_to": -1,
    "queues": "stay as they are",
}


def _plan_json(plan: RecoveryPlan) -> dict[str, Any]:
    walked, described = plan.walked, plan.described_to_offset_bytes
    found: dict[str, Any] = {"walks_from": plan.walked_from_offset_bytes, "because": plan.because}
    if walked is None:
        return _NO_PLAN | found | {"queues": "are deleted"}
    end, cut = walked.end_offset_bytes, walked.cut
    return found | {
        "records_walked": walked.records,
        "log_ends_at": end,
        "cut": None if cut is None else {"is": _cut_kind(cut).value, "from": cut.offset_bytes, "why": cut.reason},
        "damage": [
            {"from": hole.start_offset_bytes, "to": hole.end_offset_bytes, "why": hole.reason} for hole in walked.holes
        ],
        "queues_describe_up_to": described,
        "queues": "are cut back to the log's end"
        if described > end
        else "catch up with the log"
        if described < end
        else "fit",
    }


def _cut_kind(cut: Cut) -> Kind:
    return Kind.DAMAGE if cut.damaged else Kind.STALE if cut.stale else Kind.TAIL


def _last_stop(files: StoreFiles) -> str:
    if is_locked(files.root):
        return "none yet: a broker runs on the store and holds its lock"
    return "clean" if files.is_clean else "unclean: there is an abort file"


def _refusals(files: StoreFiles, checkpoint: bytes) -> list[str]:
    """Return the reasons for which a broker's start on a store would fail."""
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
