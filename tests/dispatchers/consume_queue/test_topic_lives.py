"""A topic that is deleted and made again begins at queue offset 0: its queue must never give the older messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flintmq.core.io import lazy_numpy
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import DispatchRequest, RecordBatch
from flintmq.core.record.bulk_columns import columns_of
from flintmq.core.record.topic_lives import deletion
from flintmq.dispatchers.consume_queue.consume_queue_ext import ExtFiles
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable
from flintmq.testing.store import BY_HAND, BY_HAND_SYNCHRONOUS, message, opened

lazy_numpy.load()

MakeBatch = Callable[[Sequence[DispatchRequest]], RecordBatch]


def request(number: int, queue_offset: int, topic: str = "T", queue_id: int = 0) -> DispatchRequest:
    """The number-th record of 100 bytes."""
    return DispatchRequest(topic, queue_id, number * 100, 100, -number, number, queue_offset, "", "", 0, 0, {})


def deleted(number: int, topic: str = "T") -> DispatchRequest:
    asked = deletion(topic, 0)
    return DispatchRequest(asked.topic, 0, number * 100, 100, 0, number, number, "", "", 0, -1, asked.properties)


FORMS: dict[str, MakeBatch] = {
    "requests": RecordBatch.of_requests,
    "units": lambda records: RecordBatch(units=records),
    "columns": lambda records: RecordBatch.of_columns(columns_of(records)),
}


@pytest.fixture(params=["plain", "strict", "ext"])
def queues(tmp_path: Path, request: pytest.FixtureRequest) -> ConsumeQueueTable:
    ext = ExtFiles(tmp_path / "ext", 4096, request.param == "ext")
    return ConsumeQueueTable(OS_DISK, tmp_path / "q", 200, ext, fills_gaps=request.param != "strict")


def positions(queues: ConsumeQueueTable, topic: str = "T") -> dict[int, int]:
    """Queue offset to the number of the record."""
    queue = queues.find(topic, 0)
    if queue is None:
        return {}
    queue.correct_min_offset(0)
    units = {at: queue.unit(at) for at in range(queue.min_queue_offset, queue.max_queue_offset)}
    return {at: unit[0] // 100 for at, unit in units.items() if unit is not None and unit[1] == 100}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("together", [True, False])
def test_a_second_record_with_queue_offset_0_removes_the_earlier_messages_of_its_queue(
    queues: ConsumeQueueTable, form: str, together: bool
) -> None:
    """So lie two lives in a log that RocketMQ wrote."""
    records = [*(request(n, n) for n in range(25)), *(request(25 + n, n) for n in range(3))]
    for part in [records] if together else [records[:25], records[25:26], records[26:]]:
        queues.dispatch(FORMS[form](part))
    assert positions(queues) == {0: 25, 1: 26, 2: 27}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("together", [True, False])
def test_dispatching_the_deletion_record_of_a_topic_deletes_only_the_queues_of_that_topic(
    queues: ConsumeQueueTable, form: str, together: bool
) -> None:
    """Whatever was appended before it; other topics go on."""
    records = [request(0, 0), request(1, 0, "U"), request(2, 1), deleted(3), request(4, 1, "U"), deleted(5, "V")]
    for part in [records] if together else [[record] for record in records]:
        queues.dispatch(FORMS[form](part))
    assert positions(queues) == {}
    assert not (queues.root / "T").exists()
    assert positions(queues, "U") == {0: 1, 1: 4}
    queues.dispatch(FORMS[form]([request(6, 0)]))
    assert positions(queues) == {0: 6}


@pytest.mark.parametrize("form", FORMS)
def test_a_consume_queue_has_no_entries_for_messages_sent_before_the_topic_was_deleted(
    queues: ConsumeQueueTable, form: str
) -> None:
    """Behind a deletion the queue begins with what is there, though the offset would go on where the old one ended."""
    queues.dispatch(FORMS[form]([*(request(n, n) for n in range(5)), deleted(5), request(20, 5), request(21, 6)]))
    assert positions(queues) == {5: 20, 6: 21}


@pytest.mark.parametrize("form", FORMS)
def test_consume_queues_stay_unchanged_if_records_of_a_recreated_topic_are_dispatched_again(
    queues: ConsumeQueueTable, form: str
) -> None:
    """A start hands over what is known already: neither an older life nor its deletion ends the present one."""
    records = [request(0, 0), request(1, 1), deleted(2), request(3, 0), deleted(4), request(5, 0), request(6, 1)]
    queues.dispatch(FORMS[form](records))
    for begin in range(len(records)):
        queues.dispatch(FORMS[form](records[begin:]))
        assert positions(queues) == {0: 5, 1: 6}


@pytest.mark.parametrize("cut", range(0, 800, 100))
def test_queues_truncated_at_any_log_position_are_restored_by_dispatch_from_that_position(
    queues: ConsumeQueueTable, cut: int
) -> None:
    """Units behind a position are cut, and the records from there on come again."""
    records = [request(0, 0), request(1, 1), deleted(2), request(3, 0), request(4, 1), deleted(5), request(6, 0)]
    queues.dispatch(RecordBatch.of_requests(records))
    queues.truncate(cut)
    queues.dispatch(RecordBatch.of_requests(records[cut // 100 :]))
    assert positions(queues) == {0: 6}


def test_a_record_is_not_added_to_a_queue_if_its_topic_is_deleted_before_dispatch(tmp_path: Path) -> None:
    """Under a synchronous strategy records wait for their sync before they are dispatched."""
    with opened(tmp_path, strategy=BY_HAND_SYNCHRONOUS) as store:
        store.put([message("T", 0, b"old0")])
        store.commit_log.flush(0)
        store.dispatch()
        store.put([message("T", 0, b"old1")])
        store.delete_topic("T")
        store.put([message("T", 0, b"new0")])
        store.commit_log.flush(0)
        store.dispatch()
        found = store.reader.get_message("T", 0, 0, 32, None)
        assert [b"new0" in bytes(piece) for piece in found.slices] == [True]
        assert store.reader.max_queue_offset("T", 0) == 1


def test_a_key_query_finds_no_message_of_a_deleted_topic(tmp_path: Path) -> None:
    """Its queue offset is another message's now."""
    with opened(tmp_path, strategy=BY_HAND) as store:
        for body in (b"old", b"new"):
            store.put([message("T", 0, body, keys="k")])
            store.dispatch()
            (found,), _ms, _at = store.reader.query_message("T", "k", 32, 0, 2**62)
            assert body in bytes(found)
            if body == b"old":
                store.delete_topic("T")
                assert store.reader.query_message("T", "k", 32, 0, 2**62)[0] == []


def test_queues_of_a_deleted_topic_are_restored_if_its_deletion_record_is_cut_from_the_log(tmp_path: Path) -> None:
    """A slave's log is cut where its master's ends: what the cut part had deleted is there again."""
    with opened(tmp_path, strategy=BY_HAND) as store:
        store.put([message("T", 0, b"first")])
        store.delete_topic("T")
        store.put([message("T", queue_id, b"old%d" % n) for n in range(3) for queue_id in (0, 1)])
        store.dispatch()
        end = store.watermarks.wrote
        store.delete_topic("T")
        store.put([message("T", 0, b"new0")])
        store.dispatch()
        store.truncate(end)
        assert [store.reader.max_queue_offset("T", queue_id) for queue_id in (0, 1)] == [3, 3]
        store.put([message("T", 0, b"old3")])
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 4
