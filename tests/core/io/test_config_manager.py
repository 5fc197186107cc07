"""Topics and groups live in tables of this kind: what was confirmed survives, and what was only noted is written later."""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import JsonTypeError, StoreError, StoreFormatError, StoreFullError
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import ConfigJournal, ConfigManager, JsonFile
from flintmq.core.testing.clock import ManualClock
from flintmq.core.testing.simulated_disk import SimulatedDisk


class Words(ConfigManager[str]):
    """A table of words that counts how often it changed."""

    def __init__(self, folder: Path | None, *, notes: bool = True) -> None:
        file = None if folder is None else JsonFile(folder / "words.json")
        super().__init__(file, {"built in": "yes"}, ConfigJournal(folder / "notes") if folder and notes else None)
        self.counter = 0

    @property
    def table(self) -> dict[str, str]:
        return self._table

    def add(self, name: str, value: str) -> None:
        self.counter += 1
        self._table[name] = value
        self.note({"words": {name: value}, "dataVersion": {"counter": self.counter}})

    def to_wire(self) -> dict[str, Any]:
        return {"words": dict(self._table), "dataVersion": {"counter": self.counter}}

    def _merge(self, value: Mapping[str, Any]) -> None:
        words = value["words"]
        if not isinstance(words, dict):
            raise JsonTypeError("words: expected an object")
        self._table.update(words)
        self.counter = value["dataVersion"]["counter"]


def loaded(folder: Path) -> Words:
    """What a start finds."""
    words = Words(folder)
    words.load()
    return words


def test_what_is_noted_survives_without_the_file(tmp_path: Path) -> None:
    """A broker that is killed behind a thousand new topics finds them again."""
    words = Words(tmp_path)
    assert not words.load()
    words.add("a", "1")
    words.add("b", "2")
    assert words.noted == 2
    assert not (tmp_path / "words.json").exists()
    again = loaded(tmp_path)
    assert again.table == {"built in": "yes", "a": "1", "b": "2"}
    assert again.noted == 2, "they are not in the file yet"
    again.persist()
    assert again.noted == 0
    assert loaded(tmp_path).table == again.table


def test_a_note_that_is_older_than_the_file_is_left_out(tmp_path: Path) -> None:
    """A crash between the file and the end of the notes must not bring back what administration changed meanwhile."""
    words = Words(tmp_path)
    words.add("a", "old")
    words.counter += 1
    words.table["a"] = "new"
    words.write()
    assert loaded(tmp_path).table["a"] == "new"


def test_notes_stay_where_others_came_meanwhile(tmp_path: Path) -> None:
    """The file is written on another thread: what is noted while it does may not be in it."""
    words = Words(tmp_path)
    words.add("a", "1")
    noted = words.noted
    words.write()
    words.add("b", "2")
    words.forget_notes(noted)
    assert words.noted == 2
    assert loaded(tmp_path).table["b"] == "2"


def test_without_notes_every_addition_is_in_the_file(tmp_path: Path) -> None:
    """A name server's key values are few, and kept as RocketMQ keeps them."""
    words = Words(tmp_path, notes=False)
    words.add("a", "1")
    assert loaded(tmp_path).table["a"] == "1"


def test_a_table_in_memory_is_never_written() -> None:
    """Embedded servers and tests have none on disk."""
    words = Words(None)
    assert not words.load()
    words.add("a", "1")
    words.persist()
    assert words.table["a"] == "1"


def test_a_replacement_that_is_wrong_changes_nothing(tmp_path: Path) -> None:
    """A slave takes over its master's tables as they come over the wire."""
    words = Words(tmp_path)
    with pytest.raises(JsonTypeError):
        words.replace({"words": 7, "dataVersion": {"counter": 1}})
    assert words.table == {"built in": "yes"}
    words.replace({"words": {"b": "2"}, "dataVersion": {"counter": 9}})
    assert words.table == {"b": "2"}


def test_a_file_of_another_type_names_itself(tmp_path: Path) -> None:
    """The operator must learn which of the files is wrong."""
    (tmp_path / "words.json").write_text('{"words": 7, "dataVersion": {"counter": 1}}')
    with pytest.raises(StoreFormatError, match=r"words\.json"):
        loaded(tmp_path)


PATH = Path("/store/flint/new-topics")
ADDITIONS = [{"table": {"a": 1}}, {"table": {"ü": "ß"}}, {"table": {}}]


def test_additions_come_back_in_order_also_to_another_process() -> None:
    """The folder is made with the first; nothing is there before it, and nothing after :meth:`clear`."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    assert list(journal.additions()) == []
    for addition in ADDITIONS[:2]:
        journal.append(addition)
    again = ConfigJournal(PATH, disk)
    again.append(ADDITIONS[2])
    assert list(again.additions()) == ADDITIONS
    again.clear()
    assert list(ConfigJournal(PATH, disk).additions()) == []
    again.append(ADDITIONS[0])
    assert list(again.additions()) == ADDITIONS[:1]


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_line_that_was_cut_short_is_left_out_and_ends_with_the_next_one(cut: int) -> None:
    """Whatever part of it had reached the file when the broker died."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    whole = disk.read(PATH)
    journal.append(ADDITIONS[1])
    torn = disk.read(PATH)[: len(whole) + cut]
    disk.write_file(PATH, torn)
    again = ConfigJournal(PATH, disk)
    assert list(again.additions())[:1] == ADDITIONS[:1]
    again.append(ADDITIONS[2])
    assert [one for one in again.additions() if one != ADDITIONS[1]] == [ADDITIONS[0], ADDITIONS[2]]


def test_a_disk_that_refuses_is_named_and_the_next_addition_is_whole() -> None:
    """A full disk refuses one topic; when there is room again no line may be mixed up."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.ENOSPC, operation="resize")
    with pytest.raises(StoreFullError, match="new-topics: cannot be written"):
        journal.append(ADDITIONS[1])
    journal.append(ADDITIONS[2])
    assert list(journal.additions()) == [ADDITIONS[0], ADDITIONS[2]]


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_empty_one() -> None:
    """A start that went on would write the table without what was noted."""
    disk = SimulatedDisk()
    journal = ConfigJournal(PATH, disk)
    journal.append(ADDITIONS[0])
    disk.fail(0, errno.EIO, operation="read")
    with pytest.raises(StoreError, match="Input/output error"):
        list(journal.additions())


SHARED = Path(os.environ.get("FLINTMQ_SHARED") or Path(flintmq.__file__).resolve().parent.parent / "shared")
GOLDEN = SHARED / "golden"
ARCHIVES = ("store-basic/store", "store-cqext/store", "store-delay-tran/store-before", "store-delay-tran/store-after")


def test_loads_what_was_saved_and_keeps_the_one_before(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "config" / "a.json")
    assert file.load() is None
    file.save({"n": 1})
    assert not file.backup_path.exists()
    file.save({"n": 2})
    assert file.load() == {"n": 2}
    assert fastjson.loads(file.backup_path.read_bytes()) == {"n": 1}
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("damage", [None, b"", b" \n", b'{"n":'])
def test_falls_back_to_the_backup_when_the_file_is_missing_empty_or_cut(tmp_path: Path, damage: bytes | None) -> None:
    file = JsonFile(tmp_path / "a.json")
    file.save({"n": 1})
    file.save({"n": 2})
    if damage is None:
        file.path.unlink()
    else:
        file.path.write_bytes(damage)
    assert file.load() == {"n": 1}


def test_an_empty_file_never_replaces_a_good_backup(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "a.json")
    file.save({"n": 1})
    file.save({"n": 2})
    file.path.write_bytes(b"")
    file.save({"n": 3})
    assert fastjson.loads(file.backup_path.read_bytes()) == {"n": 1}


def test_two_broken_files_are_an_error_and_not_an_empty_table(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "a.json")
    file.path.write_bytes(b"{")
    file.backup_path.write_bytes(b"\xff")
    with pytest.raises(StoreFormatError, match=r"a\.json: .*a\.json\.bak: "):
        file.load()


def test_a_disk_that_refuses_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError, match=r"cannot be written"):
        JsonFile(tmp_path / "file" / "a.json").save({})


@pytest.fixture(scope="module", params=ARCHIVES)
def golden_config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = GOLDEN / f"{request.param}.tar.gz"
    if not archive.exists():
        pytest.skip(f"the golden store {archive} is not here")
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if "config/" in member.name and member.isfile():
                tar.extract(member, folder, filter="data")
    return next(folder.rglob("config"))


def test_writes_files_of_the_real_broker_to_the_byte(golden_config: Path) -> None:
    files = sorted(golden_config.glob("*.json*"))
    assert files
    for path in files:
        text = path.read_text("utf-8")
        if text.strip():
            assert fastjson.dumps_pretty(fastjson.loads(text)) == text.rstrip("\n"), path.name


def test_managers_load_and_write_back_the_real_brokers_tables(golden_config: Path, tmp_path: Path) -> None:
    clock = ManualClock()
    topics = TopicConfigManager(JsonFile(golden_config / "topics.json"), clock, {})
    groups = SubscriptionGroupManager(JsonFile(golden_config / "subscriptionGroup.json"), clock)
    offsets = ConsumerOffsetManager(JsonFile(golden_config / "consumerOffset.json"))
    assert topics.load()
    assert groups.load()
    assert offsets.load()
    for manager, name in ((topics, "topics"), (groups, "subscriptionGroup"), (offsets, "consumerOffset")):
        original = JsonFile(golden_config / f"{name}.json").load()
        JsonFile(tmp_path / f"{name}.json").save(manager.to_wire())
        assert JsonFile(tmp_path / f"{name}.json").load() == original
    real = set(topics.to_wire()["topicConfigTable"])
    assert boot_topics(cluster="DefaultCluster", broker_name="broker-a").keys() <= real
