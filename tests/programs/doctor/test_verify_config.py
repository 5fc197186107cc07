"""An offset that is wrong loses messages or sends them twice: what verify finds in the checkpoint and the tables."""

from __future__ import annotations

import json
import struct

import pytest

from flintmq.programs.doctor.report import Level

from .conftest import Small


def test_verify_reports_a_checkpoint_that_is_missing_or_malformed_or_has_impossible_timestamps(small: Small) -> None:
    """Times behind the last record, before 1970, and a wrong size."""
    newest = small.records[-1].record
    assert newest is not None
    small.edit("checkpoint", 8, struct.pack(">q", newest.store_timestamp_ms + 1))
    assert [level for level, what in small.findings if "logicsMsgTimestamp" in what] == [Level.WARNING]
    small.edit("checkpoint", 8, struct.pack(">q", -1))
    assert [level for level, what in small.findings if "logicsMsgTimestamp" in what] == [Level.ERROR]
    (small.root / "checkpoint").write_bytes(bytes(100))
    assert [level for level, what in small.findings if "a checkpoint has 4096" in what] == [Level.ERROR]
    (small.root / "checkpoint").write_bytes(b"")
    assert [level for level, what in small.findings if "empty" in what] == [Level.WARNING]
    (small.root / "checkpoint").unlink()
    assert [level for level, what in small.findings if "there is none" in what] == [Level.WARNING]


@pytest.mark.parametrize(
    ("text", "part", "level"),
    [
        ("{", "consumerOffset.json", Level.ERROR),
        ("", "it is empty", Level.ERROR),
        ('{"offsetTable":{"Orders@billing":{0:23}}}', "is at 23 in Orders/0, which ends at 22", Level.WARNING),
        ('{"offsetTable":{"Orders@billing":{0:-1}}}', "is at -1", Level.WARNING),
        ('{"offsetTable":{"Gone@billing":{0:3}}}', "which has no queue", Level.NOTE),
        ('{"offsetTable":{"Orders@billing":{"x":3}}}', "no offset of a queue", Level.ERROR),
        ('{"offsetTable":{"Orders@billing":7}}', "no offset of a queue", Level.ERROR),
        ('{"offsetTable":{"Orders@billing":{0:"abc"}}}', "no offset of a queue", Level.ERROR),
    ],
)
def test_verify_reports_consumer_offsets_that_are_invalid_or_outside_their_consume_queue(
    small: Small, text: str, part: str, level: Level
) -> None:
    """Whatever stands in the file; nothing of it may end the check."""
    (small.root / "config" / "consumerOffset.json").write_text(text)
    found = small.findings
    assert [one for one, what in found if part in what] == [level], found


@pytest.mark.parametrize("text", ['{"offsetTable":5}', '{"offsetTable":{}}', "{}"])
def test_verify_accepts_a_consumer_offsets_file_that_contains_no_offsets(small: Small, text: str) -> None:
    """Another shape must not raise."""
    (small.root / "config" / "consumerOffset.json").write_text(text)
    assert small.verify().is_sound


@pytest.mark.parametrize("text", ["5", "[]", "null", "", "\0\0\0"])
def test_verify_reports_an_error_if_the_consumer_offsets_file_is_malformed(small: Small, text: str) -> None:
    """A start refuses it, or takes its backup: no group may begin anew."""
    (small.root / "config" / "consumerOffset.json").write_text(text)
    assert not small.verify().is_sound


def test_verify_reports_delay_levels_with_an_invalid_offset_or_a_missing_consume_queue(small: Small) -> None:
    """A level's offset is one of queue level - 1."""
    (small.root / "config" / "delayOffset.json").write_text('{"offsetTable":{1:4,"x":2}}')
    found = [what for _level, what in small.findings]
    assert any("delay level 1 is at 4 in SCHEDULE_TOPIC_XXXX/0, which has no queue" in what for what in found)
    assert any("delay level x: no offset" in what for what in found)


@pytest.mark.parametrize("odd", [2**31, 2**70, 1.5, "x", [], True], ids=repr)
def test_verify_reports_a_topic_permission_that_is_not_a_32_bit_integer(small: Small, odd: object) -> None:
    """A start ends with it, so a store that has one is not sound; the field and the value are named."""
    table = {"topicConfigTable": {"Orders": {"topicName": "Orders", "perm": odd}}}
    (small.root / "config" / "topics.json").write_text(json.dumps(table))
    report = small.verify()
    assert not report.is_sound
    assert any("topicConfigTable.Orders.perm is " in finding.what for finding in report.findings)
