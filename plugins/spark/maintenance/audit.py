"""Audits a whole store: holes in queues, bodies that changed, messages that are there twice, and counts by topic."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from flintmq.core.record import record as rec
from flintmq.core.record.heads import read_heads
from flintmq.dispatchers.consume_queue import queue_units
from flintmq.plugins.delay.delay_times import DelayTimes
from flintmq.plugins.doctor.files import StoreFiles, map_read_only
from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.bodies import wrong_crc
from flintmq.plugins.spark.maintenance.engines import Engine, Report, silent
from flintmq.plugins.spark.maintenance.pieces import PieceTask, check_end, columns_of, plan
from flintmq.plugins.spark.maintenance.rebuild_task import QueueKey

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns

EXAMPLES_MAX: Final = 20
"""So many places of each kind of finding are reported."""
_UNIQ: Final = np.dtype([("hash", "<u8"), ("physical", "<i8")])


@attrs.frozen
class AuditTask(PieceTask):
    """What one task reads."""

    uniq_path: str | None
    """Where it leaves hashes of unique keys; None when duplicates are not looked for."""


@attrs.frozen
class TopicCount:
    """What there is of one topic."""

    messages: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int

    def plus(self, other: TopicCount | None) -> TopicCount:
        if other is None:
            return self
        return TopicCount(
            self.messages + other.messages,
            self.bytes + other.bytes,
            min(self.first_timestamp_ms, other.first_timestamp_ms),
            max(self.last_timestamp_ms, other.last_timestamp_ms),
        )


Hole = dict[str, Any]
"""Topic, queue, wanted and found queue offset, and the position of the message; None for that between two pieces."""


@attrs.frozen
class AuditDone:
    """What one task found."""

    records: int
    topics: dict[str, TopicCount]
    queues: dict[QueueKey, tuple[int, int]]
    """First and last queue offset of each queue."""
    holes: list[Hole]
    """The first ones within the piece."""
    hole_count: int
    wrong_crcs: list[int]
    """Positions of the first ones."""
    wrong_crc_count: int


def audit_piece(task: AuditTask) -> AuditDone:
    """Read one piece. Raises MaintenanceError where it is damaged."""
    piece = task.piece
    view = map_read_only(Path(piece.path))
    data = np.frombuffer(view, np.uint8)
    topics: dict[str, TopicCount] = {}
    queues: dict[QueueKey, tuple[int, int]] = {}
    holes: list[Hole] = []
    wrong: list[int] = []
    uniq: list[bytes] = []
    records = hole_count = 0
    end = piece.at
    for columns in columns_of(view, piece, DelayTimes()):
        records += len(columns)
        end = columns.end_offset_bytes - piece.base
        _count(columns, topics)
        found = _follow(columns, queues)
        hole_count += len(found)
        holes += found[: EXAMPLES_MAX - len(holes)]
        bad = wrong_crc(data, read_heads(data, columns.begin_at))
        if bad is not None:
            wrong += columns.physical[bad].tolist()
        if task.uniq_path is not None:
            uniq.append(_uniq_keys(data, columns))
    check_end(view, piece, end)
    if task.uniq_path is not None:
        Path(task.uniq_path).write_bytes(b"".join(uniq))
    return AuditDone(records, topics, queues, holes, hole_count, wrong[:EXAMPLES_MAX], len(wrong))


def _count(columns: RecordColumns, topics: dict[str, TopicCount]) -> None:
    rows = queue_units.visible_rows(columns)
    codes, stored = columns.topic_code[rows], columns.store_timestamp_ms[rows]
    for code in np.unique(codes).tolist():
        mine = codes == code
        found = TopicCount(
            int(mine.sum()), int(columns.size[rows][mine].sum()), int(stored[mine].min()), int(stored[mine].max())
        )
        topic = columns.topics[code]
        topics[topic] = found.plus(topics.get(topic))


def _follow(columns: RecordColumns, queues: dict[QueueKey, tuple[int, int]]) -> list[Hole]:
    """Note the queues' offsets; return places where one is not the next of its queue."""
    holes: list[Hole] = []
    rows = queue_units.visible_rows(columns)
    if not len(rows):
        return holes
    for key, group in queue_units.by_queue(columns, rows):
        offsets = columns.queue_offset[group]
        first, last = queues.get(key, (int(offsets[0]), int(offsets[0]) - 1))
        before = np.concatenate(([last], offsets[:-1]))
        holes += [
            _hole(key, int(before[at]) + 1, int(offsets[at]), int(columns.physical[group[at]]))
            for at in np.flatnonzero(offsets != before + 1).tolist()
        ]
        queues[key] = (first, int(offsets[-1]))
    return holes


def _hole(key: QueueKey, wanted: int, found: int, position: int | None) -> Hole:
    return {"topic": key[0], "queue": key[1], "wanted": wanted, "found": found, "position": position}


def _uniq_keys(data: Any, columns: RecordColumns) -> bytes:
    """A hash of each message's unique key, 64 bits, with its place."""
    rows = queue_units.visible_rows(columns)
    batch = Decoder(columns=("uniqKey", "physicalOffset")).decode(data, columns.begin_at[rows])
    import pyarrow.compute as pc

    kept = batch.filter(pc.is_valid(batch.column(0)))
    made = np.empty(kept.num_rows, _UNIQ)
    made["physical"] = kept.column(1).to_numpy()
    made["hash"] = [
        int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
        for key in kept.column(0).to_pylist()
    ]
    return made.tobytes()


def audit(
    files: StoreFiles,
    engine: Engine,
    *,
    duplicates: bool = True,
    end_offset_bytes: int | None = None,
    work: Path | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """Look at every record of a store. Changes nothing.

    Args:
        files: the store; where a broker runs on it, give ``end_offset_bytes``.
        engine: where the work is done.
        duplicates: looks for messages with the same unique key; 16 bytes of disk and of the driver's memory each.
        end_offset_bytes: where the log is read to; see :func:`flintmq.plugins.spark.maintenance.pieces.plan`.
        work: a folder for those that every worker reaches; in the system's temporary folder without it.
        report: called with the progress.

    Returns:
        Counts and findings, ready for JSON; ``sound`` says whether nothing was found that should not be.

    Raises:
        MaintenanceError: the log is damaged; says where.
    """
    began_s = time.monotonic()
    pieces = plan(files, engine.parallelism, end_offset_bytes)
    folder = Path(tempfile.mkdtemp(prefix="flintmq-audit-", dir=work)) if duplicates else None
    try:
        tasks = [
            AuditTask(piece, str(folder / f"{number:08d}") if folder is not None else None)
            for number, piece in enumerate(pieces)
        ]
        result = _summary(engine.run("auditing", audit_piece, tasks, report))
        if folder is not None:
            result["duplicates"] = _duplicates(files, [Path(str(task.uniq_path)) for task in tasks])
    finally:
        if folder is not None:
            shutil.rmtree(folder)
    result["sound"] = not (result["holes"]["count"] or result["wrong_crcs"]["count"])
    result["seconds"] = round(time.monotonic() - began_s, 3)
    return result


def _summary(found: Sequence[AuditDone]) -> dict[str, Any]:
    topics: dict[str, TopicCount] = {}
    last: dict[QueueKey, int] = {}
    holes: list[Hole] = []
    hole_count = 0
    for done in found:
        for topic, count in done.topics.items():
            topics[topic] = count.plus(topics.get(topic))
        for key, (begin, end) in done.queues.items():
            if key in last and begin != last[key] + 1:
                hole_count += 1
                holes.append(_hole(key, last[key] + 1, begin, None))
            last[key] = end
        hole_count += done.hole_count
        holes += done.holes
    return {
        "records": sum(done.records for done in found),
        "topics": {topic: attrs.asdict(count) for topic, count in sorted(topics.items())},
        "queues": len(last),
        "holes": {"count": hole_count, "first": holes[:EXAMPLES_MAX]},
        "wrong_crcs": {
            "count": sum(done.wrong_crc_count for done in found),
            "first": [at for done in found for at in done.wrong_crcs][:EXAMPLES_MAX],
        },
    }


def _duplicates(files: StoreFiles, paths: Sequence[Path]) -> dict[str, Any]:
    """Messages whose unique key another one has too; hashes that are equal by chance are found out when places are reported."""
    keys = np.concatenate([np.fromfile(path, _UNIQ) for path in paths]) if paths else np.empty(0, _UNIQ)
    keys = keys[np.argsort(keys["hash"], kind="stable")]
    same = np.flatnonzero(keys["hash"][1:] == keys["hash"][:-1]) + 1
    examples = []
    for at in same[:EXAMPLES_MAX].tolist():
        first, second = int(keys["physical"][at - 1]), int(keys["physical"][at])
        key = _uniq_key_at(files, first)
        if key is not None and key == _uniq_key_at(files, second):
            examples.append({"uniq_key": key, "position": second, "same_as": first})
    return {"count": len(same), "first": examples}


def _uniq_key_at(files: StoreFiles, position: int) -> str | None:
    file = files.log_file(position)
    if file is None:
        return None
    return rec.decode_record(file.view, position - file.start, check_crc=False).properties.get("UNIQ_KEY")
