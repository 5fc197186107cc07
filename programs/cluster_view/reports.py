"""Describes a FlintMQ broker's last start and quarantine in words. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flintmq.remoting.wire.broker_report import BrokerReport, RemovedPart

_STOPS: Final = {
    "clean": "in order",
    "killed": "its process was killed; the machine went on running",
    "crashed": "not in order, and perhaps the machine with it: only what was synced was trusted",
}


def start_facts(report: BrokerReport) -> Iterator[tuple[str, str]]:
    """Yield the findings and actions of a broker's last start, as labels and sentences in the order of the events."""
    start = report.start
    yield "the broker before stopped", _STOPS.get(start.last_stop, start.last_stop)
    yield (
        "the log was walked",
        f"{start.records:,} records from byte {start.walked_from_offset_bytes:,}: {start.because}",
    )
    yield "the log ended", f"at byte {start.end_offset_bytes:,}, {_cut(start.cut)}"
    if start.hole_count:
        first = start.holes[0] if start.holes else RemovedPart()
        places = f"{start.hole_count} place{'' if start.hole_count == 1 else 's'}"
        text = (
            f"{places}, the first from byte {first.start_offset_bytes:,} to {first.end_offset_bytes:,}: {first.reason}"
        )
        yield "damage was taken out of the middle", text
    if start.rewritten_from_offset_bytes is not None:
        yield "the log was written to disk once more", f"from byte {start.rewritten_from_offset_bytes:,}"
    is_whole = start.dispatched_from_offset_bytes >= start.end_offset_bytes
    text = "none: the queues had all" if is_whole else f"from byte {start.dispatched_from_offset_bytes:,}"
    yield "records that were dispatched again", text
    if start.indexed_from_offset_bytes is not None:
        yield "records that were indexed again", f"from byte {start.indexed_from_offset_bytes:,}"
    yield "that took", f"{start.recovery_ms:,} ms for the log, {start.catch_up_ms:,} ms for what is derived from it"


def _cut(cut: RemovedPart | None) -> str:
    return "and nothing was cut" if cut is None else f"where it was cut: {cut.reason}"


def needs_a_look(report: BrokerReport) -> bool:
    """Return whether a broker's last start found a store that was not closed in order."""
    return report.start.last_stop != "clean" or report.start.cut is not None or report.start.hole_count > 0


def in_a_line(report: BrokerReport) -> str:
    """Return the findings of a broker's last start in one sentence."""
    start = report.start
    words = [f"stopped {_STOPS.get(start.last_stop, start.last_stop)}"]
    if start.cut is not None:
        words.append(f"log cut at byte {start.cut.start_offset_bytes:,}: {start.cut.reason}")
    if start.hole_count:
        words.append(f"damage taken out in {start.hole_count} place{'' if start.hole_count == 1 else 's'}")
    return "; ".join(words)
