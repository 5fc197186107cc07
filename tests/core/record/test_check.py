"""What makes bytes a record of a log: each condition fails with its reason, and the short way never accepts more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.core.io import lazy_numpy
from flintmq.core.record import bulk_scan
from flintmq.core.record.check import RecordCheck, check_record, why_no_topic
from flintmq.core.record.record import RecordError
from flintmq.core.record.sys_flag import TRANSACTION_PREPARED
from flintmq.tests.support.records import HOST_V6, RecordFields

PLACE = 4_096


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (RecordFields(topic=b"a/b"), "a/b"),
        (RecordFields(topic=b""), "topic"),
        (RecordFields(topic=b"\xff"), "not UTF-8"),
        (RecordFields(queue_id=-1), "queue id -1 is negative"),
        (RecordFields(queue_offset=-1), "queue offset -1 is negative"),
        (RecordFields(crc=1), "body has CRC"),
    ],
)
def test_the_error_about_an_invalid_record_states_the_reason(fields: RecordFields, why: str) -> None:
    """An operator reads the reason in the log, and a slave's in the error that names its master."""
    with pytest.raises(RecordError, match=why):
        check_record(memoryview(fields.encode(PLACE)), 0, PLACE)


def test_a_record_whose_physical_offset_field_differs_from_its_position_is_refused() -> None:
    """A body may hold a whole record of another place."""
    raw = memoryview(RecordFields().encode(PLACE))
    assert check_record(raw, 0, PLACE).commit_log_offset_bytes == PLACE
    with pytest.raises(RecordError, match="physical offset field contains 4096"):
        check_record(raw, 0, PLACE + 1)


def test_a_half_message_is_valid_without_a_topic_or_a_queue_id_or_a_queue_offset() -> None:
    """Fillers have no topic, and half messages no queue offset."""
    for fields in (RecordFields(topic=b""), RecordFields(queue_id=-1), RecordFields(queue_offset=-1)):
        raw = memoryview(_prepared(fields).encode(PLACE))
        check_record(raw, 0, PLACE)


def _prepared(fields: RecordFields) -> RecordFields:
    return RecordFields(
        topic=fields.topic, queue_id=fields.queue_id, queue_offset=fields.queue_offset, sys_flag=TRANSACTION_PREPARED
    )


def test_the_fast_record_check_leaves_the_first_record_of_each_topic_to_the_full_check() -> None:
    """The first record of each topic is checked wholly."""
    raw = memoryview(RecordFields(properties=b"TAGS\x01A", store_timestamp_ms=9).encode(PLACE))
    check = RecordCheck()
    assert check.plain(raw, 0, len(raw), PLACE) is None
    check.record(raw, 0, PLACE)
    assert check.plain(raw, 0, len(raw), PLACE) == (len(raw), 0, 9, len(raw) - 6)
    assert check.plain(raw, 0, len(raw) - 1, PLACE) is None
    assert check.plain(raw, 0, len(raw), PLACE + 1) is None
    v6 = memoryview(RecordFields(born_host=HOST_V6).encode(PLACE))
    assert check.plain(v6, 0, len(v6), PLACE) is None


@given(at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_every_record_that_passes_the_fast_check_also_passes_the_full_check(at: int, value: int) -> None:
    """Whatever byte of a record is changed."""
    check = RecordCheck()
    raw = bytearray(RecordFields(body=b"body", properties=b"KEYS\x01k\x02TAGS\x01A").encode(PLACE))
    check.record(memoryview(bytes(raw)), 0, PLACE)
    raw[at % len(raw)] = value
    view = memoryview(bytes(raw) + bytes(64))
    plain = check.plain(view, 0, len(view), PLACE)
    if plain is not None:
        record = check_record(view, 0, PLACE)
        end = record.size_bytes
        assert plain == (end, record.sys_flag, record.store_timestamp_ms, end - len(record.properties_bytes))


def test_the_number_of_topics_remembered_by_the_record_check_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave checks what one connection brings for months, while topics come and go."""
    lazy_numpy.load()
    monkeypatch.setattr("flintmq.core.record.check._NUMBERED_MAX", 2)
    monkeypatch.setattr("flintmq.core.record.check._TOPICS_MAX", 2)
    check = RecordCheck()
    for number, topic in enumerate((b"A", b"B", b"C", b"a/b", b"D", b"A", b"..", b"E")):
        raw = memoryview(RecordFields(topic=topic).encode(PLACE))
        rows = bulk_scan.whole_heads(raw, bulk_scan.chain(raw, 0, len(raw), 9))
        assert rows is not None
        is_good = topic not in (b"a/b", b"..")
        assert check.rows(raw, rows, PLACE) == is_good, number
        if is_good:
            assert check.record(raw, 0, PLACE).topic == topic.decode()
            assert check.plain(raw, 0, len(raw), PLACE) is not None
        assert len(check._numbered.names) <= 3
        assert len(check._topics) <= 2


def test_the_check_of_topic_names_returns_an_error_text_only_for_an_invalid_name() -> None:
    """Its queues could have no folder."""
    assert why_no_topic("Orders") == ""
    assert why_no_topic("..")
