"""Compares a store with the file ``flint/ends``, in which a broker notes where the store's data end. A loss of the newest data
leaves no other trace."""

from __future__ import annotations

import zlib
from typing import Final

from flintmq.core.errors import StoreError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.record.log_part import is_file_end
from flintmq.core.record.queue_unit import UNIT_BYTES
from flintmq.core.recovery.ends import TAIL_BYTES, Ends, EndsFile, Tail, counter_of
from flintmq.core.recovery.lost_parts import gone_topics
from flintmq.programs.doctor.files import StoreFiles, read_bytes
from flintmq.programs.doctor.report import REPAIR, Level, Report
from flintmq.programs.doctor.verify_index import INDEX_HEADER
from flintmq.programs.doctor.verify_queues import used_units

_LOST: Final = "a start refuses: put the files back, or flintmq store repair goes on with what is left"
_REBUILT: Final = f"a start makes it again; or {REPAIR}"


def check_ends(files: StoreFiles, report: Report) -> None:
    """Report files and messages of a store that are missing or differ from the ends noted in the file ``flint/ends``. Call this
    function after the other checks."""
    ends = EndsFile(OS_DISK, files.root)
    noted = ends.noted
    if noted is None:
        if ends.damage:
            report.add(
                Level.WARNING, ends.path, ends.damage, "a start writes it again, and misses nothing that is lost now"
            )
        elif (files.root / "flint" / "epochs").exists():
            what = "there is none: a store that FlintMQ has used has one"
            report.add(Level.WARNING, ends.path, what, "a start writes it again, and misses nothing that is lost now")
        return
    if files.is_clean and ends.was_in_use:
        what = "there is none, although the last broker did not stop in order"
        report.add(Level.WARNING, files.root / "abort", what, "a start recovers")
    _check_log(files, noted, report)
    _check_queues(files, noted, report)
    _check_index(files, noted, report)
    is_outdated = noted.is_stop and _log_end(files, report) > noted.log_end
    if is_outdated:
        report.add(Level.NOTE, ends.path, "another broker has used the store since: its files are not compared with it")
    _check_files(files, noted, report, is_exact=noted.is_stop and files.is_clean and not is_outdated)


def _log_end(files: StoreFiles, report: Report) -> int:
    """Return the physical offset of the log's end, including a blank record after its last record."""
    end = max(report.log_end_bytes, files.log_start)
    for file in files.log:
        if file.start <= end < file.start + file.size and is_file_end(file.view, end - file.start):
            end = file.start + file.size
    return end


def _check_log(files: StoreFiles, noted: Ends, report: Report) -> None:
    end = _log_end(files, report)
    is_told = bool(report.damaged) or any(found.what.startswith("bytes behind") for found in report.findings)
    if end < noted.log_end:
        what = f"the log ends at {end}, and went to {noted.log_end}: its last records are missing"
        report.add(Level.WARNING if is_told else Level.ERROR, files.log_folders[0], what, "" if is_told else _LOST)
    if noted.log_end and (not files.log or files.log_start > noted.log_begin):
        what = f"the log begins at {files.log_start}, and began at {noted.log_begin}"
        report.add(Level.WARNING, files.log_folders[0], what, "unless retention has deleted files, messages are lost")
    known = {file.start: file for file in files.log}
    for tail in () if is_told or report.errors else noted.tails:
        file = known.get(tail.start_offset_bytes)
        if file is not None and tail.end_bytes <= file.size:
            crc32 = zlib.crc32(file.view[max(0, tail.end_bytes - TAIL_BYTES) : tail.end_bytes])
            if tail != Tail(file.start, tail.end_bytes, crc32):
                what = f"other bytes lie before place {tail.end_bytes} than were noted: it is not as it was"
                report.add(Level.ERROR, file.path, what, _LOST)


def _check_queues(files: StoreFiles, noted: Ends, report: Report) -> None:
    found = {(topic, queue_id): parts for topic, queue_id, parts in files.queues()}
    gone: frozenset[str] | None = None
    for end in noted.queues:
        parts = found.get((end.topic, end.queue_id), [])
        begin = parts[0].start // UNIT_BYTES if parts else 0
        have = begin + len(used_units(parts)) // UNIT_BYTES
        is_late = noted.is_stop and files.log_start == noted.log_begin and begin > end.min_queue_offset
        if have >= end.max_queue_offset and not is_late:
            continue
        if gone is None:
            gone = gone_topics(OS_DISK, files.root, noted)
        where = files.queue_folder(end.topic, end.queue_id)
        # A deleted topic is left out, because check_queues() reports it.
        if end.topic not in gone:
            what = f"it has {begin}..{have}, and had {end.min_queue_offset}..{end.max_queue_offset}"
            report.add(Level.WARNING if have > begin else Level.ERROR, where, what, _REBUILT)


def _check_index(files: StoreFiles, noted: Ends, report: Report) -> None:
    """Report missing or outdated index files. The check of the index reports damaged index files."""
    if not noted.index:
        return
    try:
        ends = [INDEX_HEADER.unpack_from(file.view)[3] for file, _geometry in files.index_files()]
    except StoreError:
        return
    lost = [end for end in noted.index[:-1] if end >= files.log_start and end not in ends]
    if lost or (max(ends, default=-1) < noted.index[-1] and noted.is_stop):
        report.add(Level.WARNING, files.root / "index", "files or entries that were noted are missing", _REBUILT)


def _check_files(files: StoreFiles, noted: Ends, report: Report, *, is_exact: bool) -> None:
    told = {found.where for found in report.findings}
    for name, note in noted.files.items():
        path = files.root / name
        if str(path) in told or str(path).removesuffix(".bak") in told:
            continue
        if not path.exists():
            if is_exact or name.endswith((".json", "checkpoint", "epochs")):
                report.add(
                    Level.ERROR, path, "it was noted, and is missing", "put a good copy back, or see what a start says"
                )
            continue
        raw = read_bytes(path) if note.size_bytes >= 0 or path.name in noted.counters else b""
        if is_exact and note.size_bytes >= 0 and (len(raw), zlib.crc32(raw)) != (note.size_bytes, note.crc32):
            what = "it is not as the last stop left it"
            report.add(Level.WARNING, path, what, "an older copy, or changed by hand")
        elif not is_exact and 0 <= counter_of(raw) < noted.counters.get(path.name, -1):
            what = f"it had changed {noted.counters[path.name]} times, and says {counter_of(raw)}: an older copy"
            report.add(Level.WARNING, path, what, "put the newest one back")
