"""What verify holds queues and index against is gathered here, so a mistake here would call a sound store damaged."""

from __future__ import annotations

import msgspec

from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.java_hash import index_key_hash
from flintmq.core.record.queue_unit import UNIT
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from flintmq.programs.doctor.expected import UNKNOWN, Expected, Gap

FIRST = DispatchRequest("T", 0, 0, 100, 7, 1_000, 0, "k1 k2", "u", 0, 0, {})


def taken(*requests: DispatchRequest, lost_bytes: int = 0) -> Expected:
    """What a walk over some records gathers; with a damaged stretch of so many bytes before them."""
    expected = Expected()
    expected.lose(lost_bytes)
    for request in requests:
        expected.add(request)
    return expected


def at(queue_offset: int, position: int, **changes: object) -> DispatchRequest:
    """A record like the first one at another place."""
    return msgspec.structs.replace(FIRST, queue_offset=queue_offset, commit_log_offset_bytes=position, **changes)


def test_the_doctor_expects_a_consume_queue_unit_for_each_record_and_an_index_entry_for_each_key() -> None:
    """The unique key first, as the broker writes them."""
    found = taken(FIRST, at(1, 100))
    assert bytes(found.units["T", 0]) == UNIT.pack(0, 100, 7) + UNIT.pack(100, 100, 7)
    assert list(found.key_hashes[:3]) == [index_key_hash("T", key) for key in ("u", "k1", "k2")]
    assert list(found.key_positions) == [0] * 3 + [100] * 3
    assert found.newest_timestamp_ms == 1_000
    assert not found.gaps


def test_the_doctor_expects_no_consume_queue_entry_for_a_half_message_or_a_rollback_record() -> None:
    """RocketMQ's rules, which a broker's own dispatchers follow."""
    assert taken(msgspec.structs.replace(FIRST, sys_flag=TRANSACTION_PREPARED)).units == {}
    rolled_back = taken(msgspec.structs.replace(FIRST, sys_flag=TRANSACTION_ROLLBACK))
    assert rolled_back.units == {}
    assert not rolled_back.key_hashes


def test_missing_records_are_attributed_to_log_damage_only_if_the_damaged_region_is_large_enough() -> None:
    """And not by less of it: then messages have vanished from a log that looks whole."""
    explained = taken(FIRST, at(3, 500), lost_bytes=2 * RECORD_MIN_BYTES)
    assert explained.gaps == [Gap("T", 0, wanted=1, found=3, position=500, lost=True)]
    assert bytes(explained.units["T", 0]) == UNIT.pack(0, 100, 7) + 2 * UNKNOWN + UNIT.pack(500, 100, 7)
    unexplained = taken(FIRST, at(3, 500), lost_bytes=RECORD_MIN_BYTES)
    assert [gap.lost for gap in unexplained.gaps] == [False]


def test_the_queue_of_a_topic_created_again_restarts_at_queue_offset_0() -> None:
    """Its older units are gone with the old queue."""
    found = taken(at(4, 0), at(5, 100), at(0, 200), at(1, 300))
    assert found.begun_anew == {("T", 0): 200}
    assert found.first_queue_offset == {("T", 0): 0}
    assert bytes(found.units["T", 0]) == UNIT.pack(200, 100, 7) + UNIT.pack(300, 100, 7)
    assert not found.gaps
