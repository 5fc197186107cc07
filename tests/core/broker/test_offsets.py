"""Consumer offsets decide what a group sees after a restart: they must be kept exactly, and written only when they changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.errors import RefusedError, StoreError, StoreFullError
from flintmq.core.io import fastjson
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile


def test_committing_an_offset_below_the_stored_offset_replaces_the_stored_offset() -> None:
    offsets = ConsumerOffsetManager()
    assert offsets.query("T", "g", 0) == -1
    offsets.commit("T", "g", 0, 5)
    offsets.commit("T", "g", 0, 3, "someone")
    assert offsets.query("T", "g", 0) == 3
    assert offsets.query_all("T", "g") == {0: 3}
    assert offsets.query_all("T", "h") == {}


def test_topics_of_a_group_and_groups_of_a_topic_are_derived_from_committed_offsets() -> None:
    offsets = ConsumerOffsetManager()
    offsets.commit("T", "g", 0, 5)
    offsets.commit("T", "h", 0, 4)
    offsets.commit("U", "g", 0, 1)
    assert offsets.which_topic_by_consumer("g") == {"T", "U"}
    assert offsets.which_group_by_topic("T") == {"g", "h"}
    assert len(offsets) == 3
    assert offsets.min_offset_in_all_groups("T") == {0: 4}
    assert offsets.min_offset_in_all_groups("T", frozenset({"h"})) == {0: 5}
    assert offsets.query("T", "h", 0) == 4, "asking must not change anything"


def test_consumer_offsets_can_be_cloned_to_another_group_and_can_be_removed() -> None:
    offsets = ConsumerOffsetManager()
    offsets.commit("T", "g", 0, 5)
    offsets.clone("g", "copy", "T")
    offsets.clone("g", "copy", "missing")
    offsets.commit("T", "g", 0, 6)
    assert offsets.query("T", "copy", 0) == 5
    offsets.remove_group("g")
    assert offsets.which_group_by_topic("T") == {"copy"}
    offsets.remove("T", "copy")
    assert len(offsets) == 0
    offsets.commit("U", "g", 0, 5)
    offsets.remove_topic("U")
    offsets.remove_topic("U")
    assert offsets.which_topic_by_consumer("g") == set()


def test_the_offset_file_is_written_only_after_a_change(tmp_path: Path) -> None:
    offsets = ConsumerOffsetManager(JsonFile(tmp_path / "consumerOffset.json"))
    assert not offsets.persist()
    offsets.commit("T", "g", 0, 5)
    assert offsets.persist()
    offsets.commit("T", "g", 0, 5)
    assert not offsets.persist()
    assert (tmp_path / "consumerOffset.json").read_text() == '{\n\t"offsetTable":{\n\t\t"T@g":{0:5\n\t\t}\n\t}\n}'
    again = ConsumerOffsetManager(JsonFile(tmp_path / "consumerOffset.json"))
    assert again.load()
    assert not again.persist()
    assert again.query("T", "g", 0) == 5


def test_group_names_in_a_loaded_offset_table_may_contain_at_signs() -> None:
    offsets = ConsumerOffsetManager()
    offsets.replace({"offsetTable": {"T@g@h": {"0": 7}, "noat": {0: 1}, "@g": {0: 1}}, "dataVersion": {}})
    assert offsets.to_wire() == {"offsetTable": {"T@g@h": {0: 7}}}


def test_consumer_offsets_are_written_again_after_a_failed_write(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    offsets = ConsumerOffsetManager(JsonFile(tmp_path / "x" / "consumerOffset.json"))
    offsets.commit("T", "g", 0, 5)
    with pytest.raises(StoreError):
        offsets.persist()
    (tmp_path / "x").unlink()
    assert offsets.persist()


def test_a_full_offset_table_refuses_new_entries_and_the_error_names_the_limiting_setting() -> None:
    """Names come from clients: without a limit each new one is memory and a longer file for ever."""
    offsets = ConsumerOffsetManager(entries_max=2)
    offsets.commit("T", "g", 0, 5)
    offsets.commit("T", "g", 1, 5)
    for group, queue_id in (("g", 2), ("h", 0)):
        with pytest.raises(RefusedError) as refused:
            offsets.commit("T", group, queue_id, 1)
        assert (refused.value.reason, refused.value.key) == ("offsets.full", "offsets.entries_max")
    with pytest.raises(RefusedError):
        offsets.clone("g", "copy", "T")
    assert offsets.which_group_by_topic("T") == {"g"}
    offsets.commit("T", "g", 0, 9)
    offsets.put("TRANS", "own", 0, 1)
    assert offsets.entries == 3
    offsets.remove("T", "g")
    offsets.commit("T", "h", 0, 1)
    assert offsets.entries == 2


def test_the_number_of_consumer_offsets_is_correct_after_every_kind_of_change() -> None:
    offsets = ConsumerOffsetManager()
    offsets.replace({"offsetTable": {"T@g": {"0": 1, "1": 2}, "U@g": {"0": 3}}})
    assert offsets.entries == 3
    offsets.replace({"offsetTable": {"T@g": {"0": 7, "1": 2}, "V@g": {"0": 3}}})
    assert (offsets.entries, offsets.topics()) == (3, ["T", "V"]), "what the other table does not have is gone"
    offsets.clone("g", "h", "T")
    offsets.clone("g", "h", "T")
    assert offsets.entries == 5
    offsets.remove_queue("T", 1)
    assert (offsets.entries, offsets.query_all("T", "g")) == (3, {0: 7})
    offsets.remove_queue("V", 0)
    offsets.remove_queue("W", 0)
    assert (offsets.entries, offsets.topics()) == (2, ["T"]), "a topic goes with its last offset"
    offsets.put("V", "g", 0, 1)
    offsets.remove_topic("T")
    assert offsets.entries == 1
    offsets.remove_group("g")
    assert offsets.entries == 0


def test_offsets_beyond_the_end_of_a_queue_are_moved_back_after_a_crash(tmp_path: Path) -> None:
    """The messages that come now have those queue offsets again: a group that kept its own would pass them over."""
    manager = ConsumerOffsetManager(JsonFile(tmp_path / "consumerOffset.json"))
    ends = {("T", 0): 10, ("T", 1): 4}
    for queue_id, consumer_offset in ((0, 10), (1, 9), (2, 3)):
        manager.commit("T", "G", queue_id, consumer_offset)
    manager.persist()
    assert manager.cut(lambda topic, queue_id: ends.get((topic, queue_id), 0)) == 2
    assert manager.query_all("T", "G") == {0: 10, 1: 4, 2: 0}
    assert manager.persist(), "it is written"
    assert manager.cut(lambda _topic, _queue_id: 10) == 0
    assert not manager.persist()


@pytest.mark.parametrize("standard", [False, True])
def test_the_concatenated_pieces_of_the_encoded_offset_table_are_a_valid_json_body(standard: bool) -> None:
    """A slave asks for it again and again, and there may be a million offsets."""
    offsets = ConsumerOffsetManager()
    assert json.loads(b"".join(offsets.encoded(standard=True))) == {"offsetTable": {}}
    for number in range(450):
        for queue_id in range(3):
            offsets.put(f"T{number % 401}", f"größe\\{number}", queue_id, number * queue_id)
    pieces = list(offsets.encoded(standard=standard))
    assert len(pieces) == 5
    whole = b"".join(pieces)
    assert whole.decode() == fastjson.dumps(offsets.to_wire(), unquoted_int_keys=not standard, ascii_only=standard)
    again = ConsumerOffsetManager()
    again.replace(fastjson.loads(whole))
    assert again.to_wire() == offsets.to_wire()


def test_the_topics_of_a_group_are_those_in_which_the_group_has_a_consumer_offset() -> None:
    """A group that is deleted is not looked for in a hundred thousand topics."""
    offsets = ConsumerOffsetManager()
    offsets.commit("T", "g", 0, 1)
    offsets.put("U", "g", 1, 1)
    offsets.clone("g", "h", "U")
    assert offsets.which_topic_by_consumer("g") == {"T", "U"}
    assert offsets.which_topic_by_consumer("h") == {"U"}
    offsets.replace({"offsetTable": {"T@g": {"0": 1}, "V@i": {"0": 1}, "U@h": {"1": 1}, "U@g": {"1": 1}}})
    assert offsets.which_topic_by_consumer("i") == {"V"}
    offsets.remove("T", "g")
    offsets.remove_topic("V")
    offsets.remove_group("h")
    assert [offsets.which_topic_by_consumer(group) for group in "ghi"] == [{"U"}, set(), set()]
    offsets.remove_group("g")
    assert (offsets.entries, offsets.topics()) == (0, [])
    assert not offsets._topics


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 450])
def test_writing_the_offset_file_in_pieces_gives_the_same_text_as_writing_it_at_once(count: int) -> None:
    """RocketMQ reads it after a stop."""
    offsets = ConsumerOffsetManager()
    for number in range(count):
        for queue_id in range(number % 3):
            offsets.put(f"T{number}", "g", queue_id, number)
    whole = fastjson.dumps_pretty(offsets.to_wire())
    assert b"".join(offsets._pieces()).decode() == whole


def test_a_removal_of_consumer_offsets_survives_a_kill_before_the_next_write_of_the_offset_file(tmp_path: Path) -> None:
    """A process that is killed gives no offsets of a deleted topic, group or queue to a new one of that name."""
    offsets = kept(tmp_path)
    for topic, group, queue_id in (("T", "g", 0), ("T", "h", 0), ("U", "g", 0), ("U", "g", 1), ("V", "h", 0)):
        offsets.commit(topic, group, queue_id, 5)
    offsets.persist()
    offsets.remove_topic("T")
    offsets.remove_group("h")
    offsets.remove_queue("U", 1)
    again = kept(tmp_path)
    again.load()
    assert again.to_wire() == offsets.to_wire() == {"offsetTable": {"U@g": {0: 5}}}
    assert again.is_dirty is False or again.persist()


def test_a_restart_does_not_restore_offsets_of_a_topic_deleted_while_the_offset_file_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is being written may have the offsets still."""
    offsets = kept(tmp_path)
    offsets.commit("T", "g", 0, 5)
    offsets.commit("U", "g", 0, 5)
    write = offsets.write

    def write_before_the_removal() -> None:
        write()
        offsets.remove_topic("T")

    monkeypatch.setattr(offsets, "write", write_before_the_removal)
    asyncio.run(offsets.compact())
    again = kept(tmp_path)
    again.load()
    assert again.query("T", "g", 0) == -1
    assert again.query("U", "g", 0) == 5
    assert offsets.is_dirty


def test_removals_of_offsets_survive_a_failed_write_of_the_offset_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removals noted before the failure must still be written by the next attempt."""
    offsets = kept(tmp_path)
    offsets.commit("T", "g", 0, 5)
    offsets.persist()
    offsets.remove_topic("T")

    def refuse() -> None:
        raise StoreFullError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr(offsets, "write", refuse)
        with pytest.raises(StoreFullError):
            asyncio.run(offsets.compact())
    assert offsets.is_dirty
    again = kept(tmp_path)
    again.load()
    assert again.query("T", "g", 0) == -1
    asyncio.run(offsets.compact())
    assert not list((tmp_path / "flint").glob("gone-offsets*"))


def kept(folder: Path) -> ConsumerOffsetManager:
    """Return a table that is kept in a folder as a broker keeps it."""
    file = JsonFile(folder / "consumerOffset.json")
    return ConsumerOffsetManager(file, journal=ConfigJournal(folder / "flint" / "gone-offsets"))
