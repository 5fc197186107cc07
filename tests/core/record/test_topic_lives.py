"""One rule says where a topic's life ends. What makes queues of a log must read it the same in every form of a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.config.rocketmq.system_topics import DELETED_TOPIC
from flintmq.core.record.record import decode_record, encode_record, record_size
from flintmq.core.record.record_batch import RecordBatch
from flintmq.core.record.topic_lives import begins_again, deleted_topic, deleted_topics, deletion
from flintmq.testing.store import BY_HAND, message, opened


def test_an_encoded_deletion_record_contains_the_name_of_the_deleted_topic() -> None:
    """It is an ordinary record otherwise: a RocketMQ broker gives it a place in a queue of its own."""
    asked = deletion("Orders", 7)
    head, body, tail, properties = encode_record(asked, record_size(asked), 0, 0, 8)
    record = decode_record(memoryview(head + body + tail + properties))
    assert (record.topic, record.queue_id, record.body) == (DELETED_TOPIC, 0, b"")
    assert deleted_topic(record) == "Orders"


def test_a_message_that_a_client_sends_to_the_system_topic_of_deletions_deletes_no_topic() -> None:
    """A RocketMQ broker lets its clients send there, but gives them no way to set the preparedOffset."""
    asked = message(DELETED_TOPIC, 0, REAL_TOPIC="Orders")
    head, body, tail, properties = encode_record(asked, record_size(asked), 0, 0, 8)
    assert deleted_topic(decode_record(memoryview(head + body + tail + properties))) == ""


@pytest.mark.parametrize(
    ("queue_offset", "end", "again"), [(0, 0, False), (5, 5, False), (7, 5, False), (0, 5, True), (4, 5, False)]
)
def test_a_queue_whose_offsets_restart_at_0_belongs_to_a_recreated_topic(
    queue_offset: int, end: int, again: bool
) -> None:
    """At its end it goes on, beyond the end messages are missing, and any other offset may be a bit that flipped."""
    assert begins_again(queue_offset, end) is again


def test_the_names_of_deleted_topics_are_read_from_a_batch_of_records(tmp_path: Path) -> None:
    """Appended units, requests and columns."""
    with opened(tmp_path, strategy=BY_HAND, commit_log_file_bytes=1 << 20) as store:
        store.put([message("A", 0), deletion("A", 1), message("B", 0), deletion("C", 1)])
        (read,) = store.commit_log.batches(0, store.watermarks.wrote)
        for batch in (read, RecordBatch.of_requests(read.requests()), RecordBatch.of_units(read.units())):
            assert deleted_topics(batch) == ["A", "C"]
