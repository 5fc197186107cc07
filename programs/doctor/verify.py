"""Checks a whole store: each record, queue unit, index slot and entry, and each file of ``config``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.log.store_lock import is_locked
from flintmq.core.record import properties as props
from flintmq.core.record.java_number import parse_int
from flintmq.core.record.log_walk import Kind
from flintmq.core.record.record import BLANK_MIN_BYTES, Record, check_host
from flintmq.dispatchers.consume_queue.delay_times import DelayTimes, delay_times_path
from flintmq.programs.doctor.delays import Delays, delays_of
from flintmq.programs.doctor.expected import Expected, is_lost, request_of
from flintmq.programs.doctor.files import StoreFiles, misfits
from flintmq.programs.doctor.report import Level, Report
from flintmq.programs.doctor.verify_config import check_checkpoint, check_config
from flintmq.programs.doctor.verify_ends import check_ends
from flintmq.programs.doctor.verify_index import check_index
from flintmq.programs.doctor.verify_queues import check_queues
from flintmq.programs.doctor.walk import walk

_UNREADABLE = "RocketMQ's clients leave out the rest of a pull's answer there; flintmq store salvage mends a port"
_SALVAGE = "flintmq store salvage copies everything whole, also what lies after it, into a new store"


def verify(
    files: StoreFiles, delay_level_ms: Mapping[int, int] | None = None, progress: Callable[[int], None] | None = None
) -> Report:
    """Check a store that no broker writes to, read-only. Takes one pass over the log, and memory of the size of the queues.

    Args:
        files: the store.
        delay_level_ms: milliseconds by delay level from the operator, for records whose delays the store's file of delay levels
            does not contain.
        progress: called with the number of bytes of the log that are done.

    Raises:
        StoreError: a file cannot be read at all.
    """
    report = Report()
    expected = Expected()
    delays = delays_of(files, delay_level_ms)
    _check_log(files, delays.times, expected, report, progress)
    _tell_of_delays(files, delays, report)
    check_queues(files, expected, report)
    check_index(files, expected, report)
    check_checkpoint(files, expected, report)
    check_config(files, report)
    check_ends(files, report)
    if is_locked(files.root):
        what = "a broker runs on the store and holds its lock: what it writes meanwhile may look like damage"
        report.add(Level.NOTE, files.root / "lock", what, "stop it to be sure, or check a copy")
    elif not files.is_clean:
        report.add(Level.WARNING, files.root / "abort", "the last broker did not stop in order", "a start will recover")
    return report


def _check_log(
    files: StoreFiles,
    delays: DelayTimes,
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
                # A broker ends a log file with a blank if the next record does not fit into the file.
                # If the record after a blank fits into the blank's space, a larger record caused the blank and was lost.
                expected.lose(blank_bytes)
            blank_bytes = 0
            for what in _refused_by_readers(piece.record):
                report.add(Level.ERROR, place, what, _UNREADABLE)
            if is_lost(piece.record):
                expected.lose(size)
                report.add(Level.NOTE, place, "records were lost here: an earlier start took damage out of the log")
            expected.add(request_of(piece.record, delays))
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
            f"the offsets of {topic}/{queue_id} begin at {expected.first_queue_offset[topic, queue_id]} again: the topic was "
            "deleted and created again",
            "nothing: the older messages stay in the log until its files are deleted, and in no queue",
        )


def _refused_by_readers(record: Record) -> Iterator[str]:
    """Yield a description of each invalid value in a record's fields. FlintMQ reads records with these values, but RocketMQ's
    clients or brokers refuse them."""
    for name, host in (("born", record.born_host), ("store", record.store_host)):
        try:
            check_host(host)
        except ValueError as error:
            yield f"the {name} host cannot be one: {error}"
    if not record.topic and not is_lost(record):
        yield "the message has no topic"
    level = record.properties.get(props.DELAY)
    if record.topic == SCHEDULE_TOPIC and level is not None:
        try:
            parse_int(level)
        except ValueError:
            yield f"the delay level {level[:40]!r} is not a number"


def _tell_of_delays(files: StoreFiles, delays: Delays, report: Report) -> None:
    if delays.unreadable:
        report.add(Level.WARNING, delay_times_path(files.root), delays.unreadable, "a start writes it again")
    unsure = ", ".join(map(str, delays.unsure_levels()))
    if unsure:
        report.add(
            Level.NOTE,
            files.root / "consumequeue" / SCHEDULE_TOPIC,
            f"the delays of levels {unsure} are taken from the queues: nothing says which levels the broker had",
            "to have delivery times checked: --set delay.levels=… as the broker's (messageDelayLevel)",
        )
