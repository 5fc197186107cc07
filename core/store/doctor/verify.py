"""Checks everything: each record of the log, unit of the queues, slot and entry of the index, file of ``config``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flintmq.core.message.record import BLANK_MIN_BYTES
from flintmq.core.store.doctor.expected import Expected, is_lost, request_of
from flintmq.core.store.doctor.files import StoreFiles, misfits
from flintmq.core.store.doctor.finding import Level
from flintmq.core.store.doctor.report import Report
from flintmq.core.store.doctor.verify_config import check_checkpoint, check_config
from flintmq.core.store.doctor.verify_index import check_index
from flintmq.core.store.doctor.verify_queues import check_queues
from flintmq.core.store.doctor.walk import Kind, is_torn, walk
from flintmq.core.store.store_lock import is_locked

_SALVAGE = "flintmq store salvage copies everything whole, also what lies behind it, into a new store"


def verify(
    files: StoreFiles, delay_level_ms: Mapping[int, int], progress: Callable[[int], None] | None = None
) -> Report:
    """Checks a store that nobody writes to. Read-only; costs one pass over the log and its queues' size in memory.

    Raises:
        StoreError: a file cannot be read at all.
    """
    report = Report()
    expected = Expected()
    _check_log(files, delay_level_ms, expected, report, progress)
    check_queues(files, expected, report)
    check_index(files, expected, report)
    check_checkpoint(files, expected, report)
    check_config(files, report)
    if is_locked(files.root):
        what = "a broker runs on the store and holds its lock: what it writes meanwhile may look like damage"
        report.add(Level.NOTE, files.root / "lock", what, "stop it to be sure, or check a copy")
    elif not files.is_clean:
        report.add(Level.WARNING, files.root / "abort", "the last broker did not stop in order", "a start will recover")
    return report


def _check_log(
    files: StoreFiles,
    delay_level_ms: Mapping[int, int],
    expected: Expected,
    report: Report,
    progress: Callable[[int], None] | None,
) -> None:
    for number, folder in enumerate(files.log_folders):
        for path, why in misfits(folder, files.log if number == 0 else ()):
            report.add(Level.ERROR, path, why)
    blank_bytes = 0
    for piece in walk(files, progress):
        place = f"commit log {piece.start}..{piece.end}"
        if piece.kind is Kind.RECORD and piece.record is not None:
            report.records += 1
            report.log_end_bytes = piece.end
            size = piece.end - piece.start
            if blank_bytes >= size + BLANK_MIN_BYTES:
                expected.lose(blank_bytes)  # there was room for this record: something else lay there
            blank_bytes = 0
            if is_torn(piece.record, piece.end):
                what = "the properties hold zeros up to the end of a sector: torn, unless a client sent them"
                report.add(Level.NOTE, place, what)
            if is_lost(piece.record):
                expected.lose(size)
                report.add(Level.NOTE, place, "records were lost here: an earlier start took damage out of the log")
            expected.add(request_of(piece.record, delay_level_ms))
        elif piece.kind is Kind.BLANK:
            report.log_end_bytes = piece.end
            blank_bytes = piece.end - piece.start
            if piece.reason:
                report.add(Level.ERROR, place, piece.reason, "nothing is lost: readers go by its magic")
        elif piece.kind is Kind.DAMAGE:
            size = piece.end - piece.start
            report.damaged_bytes += size
            report.damaged.append((piece.start, piece.end))
            expected.lose(size)
            report.add(Level.ERROR, place, f"damage in the middle: {piece.reason}", _SALVAGE)
        elif piece.kind is Kind.TAIL:
            what = f"bytes behind the last whole record: {piece.reason}"
            report.add(Level.WARNING, place, what, "a start cuts them and keeps a copy in flint/quarantine")
        elif piece.kind is Kind.STALE:
            what = f"behind the last record: {piece.reason}"
            report.add(Level.NOTE, place, what, "a start cuts them and keeps a copy in flint/quarantine")
    for gap in expected.gaps:
        report.add(
            Level.WARNING if gap.lost else Level.ERROR,
            f"commit log {gap.position}",
            f"queue offset {gap.found} in {gap.topic}/{gap.queue_id}, {gap.wanted} was next",
            "the messages between were in the damaged part" if gap.lost else "",
        )
    for (topic, queue_id), position in expected.begun_anew.items():
        report.add(
            Level.NOTE,
            f"commit log {position}",
            f"the offsets of {topic}/{queue_id} begin at 0 again: the topic was deleted and made anew",
            "repair and salvage bring the older messages back",
        )
