"""Topics and groups live in tables of this kind: what was confirmed survives, and what was only noted is written later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.errors import JsonTypeError, StoreFormatError
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import ConfigManager
from flintmq.core.io.json_file import JsonFile


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
