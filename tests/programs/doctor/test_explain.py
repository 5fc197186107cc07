"""What lies at a place, behind a message of a queue and behind a key; and what a start decides, held against real starts."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.store.opened_store import recover
from flintmq.programs.doctor.explain import (
    explain_key,
    explain_position,
    explain_queue_offset,
    explain_start,
    record_json,
)
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.rebuild import fitting
from flintmq.testing.store import store_spec

from .conftest import COLLIDING, FILE_BYTES, Small

QUEUE = "consumequeue/Orders/0/00000000000000000000"


def test_explain_shows_the_whole_record_for_any_log_position_inside_the_record(small: Small) -> None:
    """Its first byte, one in the middle, its last."""
    piece = small.records[20]
    assert piece.record is not None
    begin = explain_position(small.files, piece.start)
    assert (begin["is"], begin["begins_at"], begin["ends_at"]) == ("record", piece.start, piece.end)
    assert "why" not in begin
    assert begin["record"]["topic"] == piece.record.topic
    assert begin["record"]["properties"] == piece.record.properties
    for position in (piece.start + 1, piece.end - 1):
        found = explain_position(small.files, position)
        assert found["why"] == f"in the middle of the record that begins at {piece.start}"
        assert found["record"] == begin["record"]
        assert found["at_in_file"] == position % FILE_BYTES


def test_explain_shows_whether_a_log_position_is_blank_or_unused_or_damaged_or_outside_the_log(small: Small) -> None:
    """In a blank, in damage, behind the end, outside."""
    blank = small.blanks[0]
    assert explain_position(small.files, blank.start + 3)["is"] == "blank"
    end = small.records[-1].end
    assert explain_position(small.files, end + 5)["is"] == "unused"
    assert explain_position(small.files, 10**9)["is"] == "outside"
    assert explain_position(small.files, -1)["is"] == "outside"
    bad = small.records[5]
    small.flip_log(bad.start + 5)
    found = explain_position(small.files, bad.start + 30)
    assert (found["is"], found["begins_at"], found["ends_at"]) == ("damage", bad.start, bad.end)
    assert "magic" in found["why"]
    small.edit_log(end, b"\x01\x02\x03")
    assert explain_position(small.files, end + 100)["is"] == "tail"
    small.edit_log(blank.start, struct.pack(">I", 5))
    assert "says 5 bytes are left" in explain_position(small.files, blank.start)["why"]


def test_a_binary_body_is_shown_in_hex_and_shortened(small: Small) -> None:
    """And a long one is cut, unless all of it is asked for."""
    record = small.records[0].record
    assert record is not None
    record.body = b"\xff" * 300
    assert record_json(record)["body_hex"] == "ff" * 256
    assert record_json(record, whole_body=True)["body_hex"] == "ff" * 300
    assert record_json(record)["body_bytes"] == 300


def test_explaining_a_queue_offset_shows_whether_the_queue_unit_matches_its_message(small: Small) -> None:
    """The unit, and whether its message is this one."""
    found = explain_queue_offset(small.files, "Orders", 0, 7)
    assert (found["is"], found["fits"], found["message"]["record"]["queue_offset"]) == ("unit", True, 7)
    other = explain_queue_offset(small.files, "Orders", 0, 8)["unit"]
    small.edit(QUEUE, 7 * 20, struct.pack(">qiq", *other.values()))
    assert explain_queue_offset(small.files, "Orders", 0, 7)["fits"] is False
    small.edit(QUEUE, 7 * 20, struct.pack(">qiq", 10**12, 5, 0))
    found = explain_queue_offset(small.files, "Orders", 0, 7)
    assert (found["fits"], found["message"]["is"]) == (False, "outside")
    small.edit(QUEUE, 6 * 20, struct.pack(">qiq", 0, 0x7FFFFFFF, 0))
    assert explain_queue_offset(small.files, "Orders", 0, 6)["is"] == "filler"
    small.edit(QUEUE, 5 * 20, struct.pack(">qiq", 0, 100, -(2**63) + 8))
    assert explain_queue_offset(small.files, "Orders", 0, 5)["extension"] == "missing"


def test_explain_distinguishes_an_unused_queue_offset_from_a_missing_queue(small: Small) -> None:
    """Behind the end, behind the files, in no queue."""
    assert explain_queue_offset(small.files, "Orders", 0, 22)["is"] == "unused"
    assert explain_queue_offset(small.files, "Orders", 0, 999)["is"] == "outside"
    for topic in ("None", "..", "a/b", ""):
        assert explain_queue_offset(small.files, topic, 0, 0)["is"] == "missing"


def test_explain_distinguishes_the_index_entries_of_two_message_keys_with_the_same_hash(small: Small) -> None:
    """Two keys of one hash share their chain: each entry tells whose it is."""
    for key, other in (COLLIDING, COLLIDING[::-1]):
        chains = [entry for file in explain_key(small.files, "Orders", key)["files"] for entry in file["chain"]]
        mine = [entry["position"] for entry in chains if entry.get("message") == "has the key"]
        theirs = [entry["position"] for entry in chains if entry.get("message") == "another key of the same hash"]
        assert mine
        assert theirs
        for position in mine:
            assert explain_position(small.files, position)["record"]["properties"]["KEYS"] == key
        for position in theirs:
            assert explain_position(small.files, position)["record"]["properties"]["KEYS"] == other


def test_the_explain_command_finds_no_matching_index_entry_for_an_unknown_key(small: Small) -> None:
    """Its slot may hold others."""
    found = explain_key(small.files, "Orders", "no such key")
    assert all(not entry["same_hash"] for file in found["files"] for entry in file["chain"])


def test_explaining_a_key_terminates_if_the_index_chain_of_its_hash_has_a_cycle(small: Small) -> None:
    """An entry that follows itself must not become a circle; a count beyond the file must not be followed."""
    entries_at = 40 + 16 * 4
    for number in range(1, 40):
        small.edit(small.index_name, entries_at + number * 20 + 16, struct.pack(">i", 60))
    small.edit(small.index_name, 36, struct.pack(">i", 2**31 - 1))
    for number in range(30):
        explain_key(small.files, "Orders", f"U{number}")


# a start


def start_of(root: Path, config: Any) -> dict[str, Any]:
    """What a real start found on a copy."""
    with contextlib.closing(recover(store_spec(root, config=config))) as store:
        found = store.recovered
        return {
            "log_ends_at": store.watermarks.wrote,
            "damage": []
            if found is None
            else [(hole.start_offset_bytes, hole.end_offset_bytes) for hole in found.holes],
            "cut": None if found is None or found.cut is None else found.cut.offset_bytes,
            "clean": store.started_clean,
        }


@pytest.mark.parametrize("clean", [True, False])
def test_the_recovery_that_doctor_predicts_for_a_damaged_store_equals_the_actual_recovery(
    small: Small, tmp_path: Path, clean: bool, effort: Callable[[int, int], int]
) -> None:
    """Bits flipped and pages lost anywhere in the log, after clean stops and after crashes; others with FLINTMQ_DAMAGE_SEED."""
    seed = int(os.environ.get("FLINTMQ_DAMAGE_SEED", "1"))
    chance = random.Random(seed)
    config = fitting(store_spec(small.root, max_hash_slot_num=16, max_index_num=64).config, small.files)
    if not clean:
        (small.root / "abort").touch()
    end = small.records[-1].end
    for turn in range(effort(6, 25)):
        root = tmp_path / f"turn{turn}"
        shutil.copytree(small.root, root)
        one = Small(root)
        for _ in range(chance.choice((0, 1, 1, 2, 4))):
            position = chance.randrange(end + 50)
            if chance.random() < 0.7:
                one.flip_log(position, chance.randrange(8))
            else:
                length = min(chance.randrange(1, 600), FILE_BYTES - position % FILE_BYTES)
                one.edit_log(position, bytes(length))
        if chance.random() < 0.3:
            one.edit_log(end, b"\x55" * 30)
        said = explain_start(StoreFiles(root))
        found = start_of(root, config)
        assert said["log_ends_at"] == found["log_ends_at"], (seed, turn)
        assert [(part["from"], part["to"]) for part in said["damage"]] == found["damage"], (seed, turn)
        assert (said["cut"] and said["cut"]["from"]) == found["cut"], (seed, turn)
        assert (said["last_stop"] == "clean") == found["clean"]
        assert said["refuses"] == []


def test_explain_start_lists_the_reasons_of_a_refused_start(small: Small) -> None:
    """Before it is tried."""
    (small.root / "commitlog" / "x").touch()
    (small.root / "index" / "y").write_bytes(b"1")
    (small.root / "checkpoint").write_bytes(b"short")
    refuses = explain_start(small.files)["refuses"]
    assert len(refuses) == 3


def test_explain_says_that_the_next_start_deletes_the_consume_queues_of_a_store_without_a_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "config").mkdir()
    assert explain_start(StoreFiles(tmp_path))["queues"] == "are deleted"
