"""Audits a whole store: counts by topic, gaps in queues, damaged bodies and duplicate messages."""

from __future__ import annotations

import hashlib
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
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes
from flintmq.plugins.spark.decoder import Decoder
from flintmq.plugins.spark.decoder.bodies import wrong_crc
from flintmq.plugins.spark.maintenance.engines import Engine, Report, silent
from flintmq.plugins.spark.maintenance.pieces import PieceTask, check_end, columns_of, plan
from flintmq.programs.doctor.expected import QueueKey
from flintmq.programs.doctor.files import StoreFiles, map_read_only

if TYPE_CHECKING:
    from flintmq.core.record.bulk_columns import RecordColumns

EXAMPLES_MAX: Final = 20
"""Maximum number of examples that an audit reports for each kind of finding."""
_UNIQ: Final = np.dtype([("hash", "<u8"), ("physical", "<i8")])


@attrs.frozen
class AuditTask(PieceTask):
    """The task to audit one piece of the commit log."""

    uniq_path: str | None
    """Path of the file to which the task writes the hashes of the unique keys of the piece's messages; None if the audit does
    not search duplicates."""


@attrs.define
class TopicCount:
    """The number, the size and the store times of a topic's messages, as an audit finds them."""

    messages: int
    bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int

    def add(self, other: TopicCount) -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.first_timestamp_ms = min(self.first_timestamp_ms, other.first_timestamp_ms)
        self.last_timestamp_ms = max(self.last_timestamp_ms, other.last_timestamp_ms)


@attrs.define
class Findings:
    """The findings of an audit in consecutive records of the log. A task makes the findings of one piece; the driver adds up
    the findings of all pieces."""

    records: int = 0
    topics: dict[str, TopicCount] = attrs.field(factory=dict)
    queues: dict[QueueKey, tuple[int, int]] = attrs.field(factory=dict)
    """First and last queue offset in each queue, keyed by topic and queue id."""
    holes: list[dict[str, Any]] = attrs.field(factory=list)
    """The first gaps in the queue offsets. A gap has the topic, the queue, the expected and the found queue offset, and the
    physical offset of the found message. The physical offset is None for a gap between two pieces of the log."""
    hole_count: int = 0
    wrong_crcs: list[int] = attrs.field(factory=list)
    """Physical offsets of the first messages whose body does not match its CRC."""
    wrong_crc_count: int = 0

    def add(self, columns: RecordColumns, data: Any) -> None:
        """Check records of the log, and add the results to these findings. The records must follow the records that were added
        before, because gaps are searched in the queue offsets of consecutive records.

        Args:
            columns: the fields of the records.
            data: the bytes of the log file that contains the records.
        """
        self.records += len(columns)
        bad = wrong_crc(data, read_heads(data, columns.begin_at))
        if bad is not None:
            positions = columns.physical[bad].tolist()
            self._add_wrong_crcs(positions, len(positions))
        rows = queue_units.visible_rows(columns)
        codes, sizes, stored = columns.topic_code[rows], columns.size[rows], columns.store_timestamp_ms[rows]
        for code in np.unique(codes).tolist():
            mine = codes == code
            count = TopicCount(
                int(mine.sum()), int(sizes[mine].sum()), int(stored[mine].min()), int(stored[mine].max())
            )
            self._add_topic(columns.topics[code], count)
        for key, group in queue_units.by_queue(columns, rows) if len(rows) else ():
            offsets = columns.queue_offset[group]
            first, last = self.queues.get(key, (int(offsets[0]), int(offsets[0]) - 1))
            before = np.concatenate(([last], offsets[:-1]))
            for at in np.flatnonzero((offsets != before + 1) & (offsets != 0)).tolist():
                self._add_hole(key, int(before[at]) + 1, int(offsets[at]), int(columns.physical[group[at]]))
            self.queues[key] = (first, int(offsets[-1]))

    def follow(self, piece: Findings) -> None:
        """Merge the findings of another audit into these findings. ``piece`` has the findings in the piece of the log that
        begins where these findings end. The order matters, because gaps in the queue offsets are also searched between two
        pieces."""
        self.records += piece.records
        for topic, count in piece.topics.items():
            self._add_topic(topic, count)
        for key, (begin, end) in piece.queues.items():
            first, last = self.queues.get(key, (begin, begin - 1))
            if begin not in (0, last + 1):  # Queues of a recreated topic begin at 0 again, so offset 0 is not a gap.
                self._add_hole(key, last + 1, begin, None)
            self.queues[key] = (first, end)
        self.hole_count += piece.hole_count
        self.holes += piece.holes[: EXAMPLES_MAX - len(self.holes)]
        self._add_wrong_crcs(piece.wrong_crcs, piece.wrong_crc_count)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "topics": {topic: attrs.asdict(count) for topic, count in sorted(self.topics.items())},
            "queues": len(self.queues),
            "holes": {"count": self.hole_count, "first": self.holes},
            "wrong_crcs": {"count": self.wrong_crc_count, "first": self.wrong_crcs},
        }

    def _add_topic(self, topic: str, count: TopicCount) -> None:
        if topic in self.topics:
            self.topics[topic].add(count)
        else:
            self.topics[topic] = count

    def _add_hole(self, key: QueueKey, wanted: int, found: int, position: int | None) -> None:
        self.hole_count += 1
        if len(self.holes) < EXAMPLES_MAX:
            hole = {"topic": key[0], "queue": key[1], "wanted": wanted, "found": found, "position": position}
            self.holes.append(hole)

    def _add_wrong_crcs(self, positions: list[int], count: int) -> None:
        self.wrong_crc_count += count
        self.wrong_crcs += positions[: EXAMPLES_MAX - len(self.wrong_crcs)]


def audit_piece(task: AuditTask) -> Findings:
    """Audit one piece of the commit log, and return the findings. Raises MaintenanceError if the piece is damaged."""
    piece = task.piece
    view = map_read_only(Path(piece.path))
    data = np.frombuffer(view, np.uint8)
    found = Findings()
    uniq: list[bytes] = []
    end = piece.at
    for columns in columns_of(view, piece, DelayTimes()):
        end = columns.end_offset_bytes - piece.base
        found.add(columns, data)
        if task.uniq_path is not None:
            uniq.append(_uniq_keys(data, columns))
    check_end(view, piece, end)
    if task.uniq_path is not None:
        Path(task.uniq_path).write_bytes(b"".join(uniq))
    return found


def _uniq_keys(data: Any, columns: RecordColumns) -> bytes:
    """Return the 64-bit hash of each message's unique key, with the message's physical offset, as bytes."""
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
    """Check every record of a store, and return the findings. The store is not changed.

    Args:
        files: the store; if a broker runs on it, give ``end_offset_bytes``.
        engine: runs the tasks.
        duplicates: whether to search for messages with the same unique key. This needs 16 bytes of disk and of memory per
            message.
        end_offset_bytes: the physical offset at which reading ends; see :func:`flintmq.plugins.spark.maintenance.pieces.plan`.
        work: a folder for the hashes that every worker can reach; by default the system's temporary folder.
        report: called to report progress.

    Returns:
        Counts and findings, ready for JSON; ``sound`` is true if there are neither gaps nor damaged bodies.

    Raises:
        MaintenanceError: the log is damaged. The text names the place.
    """
    began_s = time.monotonic()
    pieces = plan(files, engine.parallelism, end_offset_bytes)
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="flintmq-audit-", dir=work) as folder:
        paths = [Path(folder) / f"{number:08d}" for number in range(len(pieces))]
        tasks = [AuditTask(piece, str(path) if duplicates else None) for piece, path in zip(pieces, paths, strict=True)]
        for done in engine.run("auditing", audit_piece, tasks, report):
            found.follow(done)
        result = found.as_json()
        if duplicates:
            result["duplicates"] = _duplicates(files, paths)
    result["sound"] = not (result["holes"]["count"] or result["wrong_crcs"]["count"])
    result["seconds"] = round(time.monotonic() - began_s, 3)
    return result


def _duplicates(files: StoreFiles, paths: Sequence[Path]) -> dict[str, Any]:
    """Return the number of duplicates, which are messages with the same unique key as an earlier message, and some examples.

    For the number, only the 64-bit hashes of the keys are compared. For the first :data:`EXAMPLES_MAX` duplicates, the keys
    themselves are read and compared, so that the examples contain only messages with equal keys.
    """
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
