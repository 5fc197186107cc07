"""A position on disk before the copies it stands for would lose them in a power cut."""

from __future__ import annotations

import attrs

from flintmq.core.broker.durable_positions import DurablePositions


@attrs.define
class Log:
    """Where a log ends, moved by hand."""

    wrote_offset_bytes: int = 0
    flushed_offset_bytes: int = 0


def test_delivery_positions_are_saved_only_after_the_delivered_messages_are_on_disk() -> None:
    """Those of the moment are held back; when the log has caught up with that moment, these are written, not newer ones."""
    log = Log(100, 40)
    positions = DurablePositions[int](log)
    assert positions.ready(1) is None
    log.wrote_offset_bytes, log.flushed_offset_bytes = 200, 99
    assert positions.ready(2) is None
    log.flushed_offset_bytes = 100
    assert positions.ready(2) == 1
    positions.saved = 1
    assert positions.ready(2) is None
    log.flushed_offset_bytes = 200
    assert positions.ready(2) == 2


def test_delivery_positions_can_be_saved_immediately_if_the_whole_log_is_on_disk() -> None:
    """Under group commit every position may be written at once; one that was written is not written again."""
    log = Log(100, 100)
    positions = DurablePositions[int](log)
    assert positions.ready(1) == 1
    positions.saved = 1
    assert positions.ready(1) is None
    assert positions.ready(2) == 2


def test_saved_delivery_positions_are_never_replaced_with_older_delivery_positions() -> None:
    """Older positions must not be written over newer ones."""
    log = Log(100, 40)
    positions = DurablePositions[int](log)
    assert positions.ready(1) is None
    log.flushed_offset_bytes = 100
    assert positions.ready(2) == 2
    positions.saved = 2
    log.wrote_offset_bytes = 300
    assert positions.ready(2) is None
    log.flushed_offset_bytes = 299
    assert positions.ready(2) is None
