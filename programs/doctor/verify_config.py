"""Checks the checkpoint, the configuration files, and the stored offsets against the queues."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.groups import SubscriptionGroupWrapper
from flintmq.core.broker.topic_config import TopicConfigSerializeWrapper
from flintmq.core.errors import JsonSyntaxError, JsonTypeError
from flintmq.core.io import fastjson
from flintmq.core.io.typed_json import read_as
from flintmq.core.log.store_checkpoint import CHECKPOINT_BYTES
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.core.recovery.small_files import table_fault
from flintmq.programs.doctor.expected import Expected, QueueKey
from flintmq.programs.doctor.files import StoreFiles, listed, read_bytes
from flintmq.programs.doctor.report import Level, Report
from flintmq.programs.doctor.verify_queues import used_units

CHECKPOINT: Final = struct.Struct(">qqq")
CHECKPOINT_NAMES: Final = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
_TABLES: Final[dict[str, Any]] = {
    "topics.json": TopicConfigSerializeWrapper,
    "subscriptionGroup.json": SubscriptionGroupWrapper,
}


def check_checkpoint(files: StoreFiles, expected: Expected, report: Report) -> None:
    path = files.root / "checkpoint"
    if not path.exists():
        if files.log:
            report.add(Level.WARNING, path, "there is none", "a start after a crash walks the whole log")
        return
    raw = read_bytes(path)
    if len(raw) != CHECKPOINT_BYTES:
        if raw:
            report.add(Level.ERROR, path, f"{len(raw)} bytes, a checkpoint has {CHECKPOINT_BYTES}", "delete it")
        else:
            report.add(Level.WARNING, path, "it is empty", "a start writes it again")
        return
    newest = expected.newest_timestamp_ms
    if newest and not any(CHECKPOINT.unpack_from(raw)):
        report.add(Level.NOTE, path, "it vouches for nothing", "a start after a crash walks the whole log")
    for name, value in zip(CHECKPOINT_NAMES, CHECKPOINT.unpack_from(raw), strict=True):
        if value < 0:
            report.add(Level.ERROR, path, f"{name} is {value}", "delete it")
        elif newest and value > newest:
            what = f"{name} {value} is later than the last record's {newest}"
            report.add(Level.WARNING, path, what, "after a crash a start would walk too little: delete it")


def check_config(files: StoreFiles, report: Report) -> None:
    """Check that each configuration file can be read, and that no stored offset is past its queue's end."""
    for path in listed(files.root / "config"):
        if path.is_dir() or not path.name.endswith((".json", ".json.bak")):
            continue
        raw = read_bytes(path)
        if path.suffix == ".bak":
            if fault := table_fault(raw):
                report.add(Level.WARNING, path, fault, "the next change writes it again")
            continue
        try:
            value = fastjson.loads(raw)
        except (JsonSyntaxError, UnicodeDecodeError) as error:
            backup = path.with_name(path.name + ".bak")
            advice = f"a start falls back to {backup.name}" if backup.exists() else "restore it from a backup"
            report.add(Level.ERROR, path, str(error) if raw.strip() else "it is empty", advice)
            continue
        if not isinstance(value, dict):
            report.add(Level.ERROR, path, "it does not hold a JSON object", "a start takes its backup, or refuses")
            continue
        if path.name in _TABLES:
            try:
                read_as(value, _TABLES[path.name])
            except JsonTypeError as error:
                report.add(Level.ERROR, path, str(error), "a start ends with this: correct the value")
        if path.name in ("consumerOffset.json", "delayOffset.json"):
            _check_offsets(files, path, value, report)


def offsets_of(path: Path, value: Any) -> Iterator[tuple[str, QueueKey | None, Any]]:
    """Yield each stored offset as three values: its owner, its queue (None if unknown), and the offset."""
    table = value.get("offsetTable") if isinstance(value, dict) else None
    for name, queues in table.items() if isinstance(table, dict) else ():
        if path.name == "delayOffset.json":
            level = _number(name)
            yield f"delay level {name}", None if level is None else (SCHEDULE_TOPIC, level - 1), queues
            continue
        topic, _, group = str(name).partition("@")
        for queue_id, consumer_offset in queues.items() if isinstance(queues, dict) else (("?", queues),):
            number = _number(queue_id)
            yield f"group {group}", None if number is None else (topic, number), consumer_offset


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _check_offsets(files: StoreFiles, path: Path, value: Any, report: Report) -> None:
    ends = {
        (topic, queue_id): (parts[0].start + len(used_units(parts))) // UNIT_BYTES if parts else 0
        for topic, queue_id, parts in files.queues()
    }
    for who, key, consumer_offset in offsets_of(path, value):
        number = _number(consumer_offset)
        if key is None or number is None or isinstance(consumer_offset, bool):
            report.add(Level.ERROR, path, f"{who}: no offset of a queue: {str(consumer_offset)[:80]}")
            continue
        place = f"{key[0]}/{key[1]}"
        end = ends.get(key)
        if end is None:
            if number > 0:
                report.add(Level.NOTE, path, f"{who} is at {number} in {place}, which has no queue")
        elif number > end or number < 0:
            what = f"{who} is at {number} in {place}, which ends at {end}"
            report.add(Level.WARNING, path, what, "it would miss what is stored until then: reset it")
