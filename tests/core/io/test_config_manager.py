"""Topics and groups live in tables of this kind: what was confirmed survives, and what was only noted is written later."""

from __future__ import annotations

import asyncio
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
from flintmq.core.errors import JsonTypeError, StoreError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import ConfigManager, JsonFile
from flintmq.testing.clock import ManualClock


class Words(ConfigManager[str]):
    """A table of words that counts how often it changed."""

    def __init__(self, folder: Path | None, *, notes: bool = True) -> None:
        file = None if folder is None else JsonFile(folder / "words.json")
        super().__init__(file, {"built in": "yes"}, ConfigJournal(folder / "notes") if folder and notes else None)
        self.counter = 0
        self.folder = folder

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


def test_table_entries_survive_a_restart_if_only_the_journal_file_contains_them(tmp_path: Path) -> None:
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


def test_a_journal_entry_older_than_the_table_file_is_ignored(tmp_path: Path) -> None:
    """A crash between the file and the end of the notes must not bring back what administration changed meanwhile."""
    words = Words(tmp_path)
    words.add("a", "old")
    words.counter += 1
    words.table["a"] = "new"
    words.write()
    assert loaded(tmp_path).table["a"] == "new"


def test_additions_made_during_a_write_of_the_table_file_stay_in_the_journal(tmp_path: Path) -> None:
    """The file is written on another thread: what is noted while it does may not be in it."""
    words = Words(tmp_path)
    words.add("a", "1")

    async def write_while_another_comes() -> None:
        writing = asyncio.get_running_loop().create_task(words.compact())
        await asyncio.sleep(0)
        words.add("b", "2")
        await writing

    asyncio.run(write_while_another_comes())
    assert words.noted == 1
    assert not (tmp_path / "notes").exists(), "its notes are in the file"
    assert loaded(tmp_path).table == words.table
    asyncio.run(words.compact())
    assert words.noted == 0
    assert loaded(tmp_path).table == words.table


def test_a_start_replays_both_journal_files_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    """A broker that is killed while it writes the table leaves both; which of them is the older one only the notes say."""
    words = Words(tmp_path)
    words.add("a", "1")
    for value in ("2", "3"):
        with pytest.raises(StoreError):
            asyncio.run(_refused(words))
        words.add("a", value)
    assert (tmp_path / "notes").exists()
    assert (tmp_path / "notes.2").exists()
    again = loaded(tmp_path)
    assert again.table["a"] == "3"
    again.add("a", "4")
    for _ in range(2):
        asyncio.run(again.compact())
        assert loaded(tmp_path).table["a"] == "4"
    assert again.noted == 0


async def _refused(words: Words) -> None:
    """Write the table to a disk that refuses it."""
    words._file = JsonFile(Path("/dev/null/words.json"))
    try:
        await words.compact()
    finally:
        words._file = JsonFile(Path(words.folder) / "words.json")


def test_every_addition_is_written_to_the_table_file_if_the_table_has_no_journal(tmp_path: Path) -> None:
    """A table of a plugin, or of a test, needs no second file."""
    words = Words(tmp_path, notes=False)
    words.add("a", "1")
    assert loaded(tmp_path).table["a"] == "1"


def test_persisting_a_table_that_has_no_file_path_does_nothing() -> None:
    """Embedded servers and tests have none on disk."""
    words = Words(None)
    assert not words.load()
    words.add("a", "1")
    words.persist()
    assert words.table["a"] == "1"


def test_replacing_a_table_with_invalid_content_leaves_the_table_unchanged(tmp_path: Path) -> None:
    """A slave takes over its master's tables as they come over the wire."""
    words = Words(tmp_path)
    with pytest.raises(JsonTypeError):
        words.replace({"words": 7, "dataVersion": {"counter": 1}})
    assert words.table == {"built in": "yes"}
    words.replace({"words": {"b": "2"}, "dataVersion": {"counter": 9}})
    assert words.table == {"b": "2"}


def test_the_error_about_a_file_whose_table_is_not_a_json_object_names_the_file(tmp_path: Path) -> None:
    """The operator must learn which of the files is wrong."""
    (tmp_path / "words.json").write_text('{"words": 7, "dataVersion": {"counter": 1}}')
    with pytest.raises(StoreFormatError, match=r"words\.json"):
        loaded(tmp_path)


SHARED = Path(os.environ.get("FLINTMQ_SHARED") or Path(flintmq.__file__).resolve().parent.parent / "shared")
GOLDEN = SHARED / "golden"
ARCHIVES = ("store-basic/store", "store-cqext/store", "store-delay-tran/store-before", "store-delay-tran/store-after")


def test_a_save_keeps_the_previous_file_as_backup(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "config" / "a.json")
    assert file.load() is None
    file.save({"n": 1})
    assert not file.backup_path.exists()
    file.save({"n": 2})
    assert file.load() == {"n": 2}
    assert fastjson.loads(file.backup_path.read_bytes()) == {"n": 1}
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("damage", [None, b"", b" \n", b'{"n":'])
def test_the_backup_is_loaded_if_a_json_file_is_missing_or_empty_or_truncated(
    tmp_path: Path, damage: bytes | None
) -> None:
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


def test_a_broken_file_with_a_broken_backup_is_an_error(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "a.json")
    file.path.write_bytes(b"{")
    file.backup_path.write_bytes(b"\xff")
    with pytest.raises(StoreFormatError, match=r"a\.json: .*a\.json\.bak: "):
        file.load()


def test_a_failed_save_raises_a_store_error(tmp_path: Path) -> None:
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


def test_config_files_of_a_java_broker_are_written_back_byte_for_byte(golden_config: Path) -> None:
    files = sorted(golden_config.glob("*.json*"))
    assert files
    for path in files:
        text = path.read_text("utf-8")
        if text.strip():
            assert fastjson.dumps_pretty(fastjson.loads(text)) == text.rstrip("\n"), path.name


def test_tables_of_a_java_broker_are_unchanged_after_they_are_loaded_and_written_back(
    golden_config: Path, tmp_path: Path
) -> None:
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
