"""Order configurations live here: they must survive the name server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flintmq.core.errors import RefusedError, StoreError
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.route import kv_config
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager


def test_kv_values_survive_a_restart(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "namesrv" / "kvConfig.json")
    kv = KVConfigManager(file)
    assert not kv.load()
    kv.put(ORDER_TOPIC_CONFIG, "T", "a:4")
    kv.put("ns", "k", "wörld=2")
    kv.put("ns", "gone", "x")
    kv.delete("ns", "gone")
    kv.delete("ns", "gone")
    again = KVConfigManager(file)
    assert again.load()
    assert again.get("ns", "k") == "wörld=2"
    assert again.get("ns", "gone") is None
    assert again.get("none", "k") is None
    assert again.list_namespace(ORDER_TOPIC_CONFIG) == {"T": "a:4"}
    assert again.list_namespace("none") is None


def test_a_journaled_kv_change_survives_a_kill(tmp_path: Path) -> None:
    """An order configuration of a hundred thousand topics is not written for each further one; values may be any text."""
    file, notes = JsonFile(tmp_path / "kvConfig.json"), tmp_path / "kvConfig.json.notes"

    def started() -> KVConfigManager:
        kv = KVConfigManager(file, ConfigJournal(notes))
        kv.load()
        return kv

    kv = started()
    kv.put("ns", "k", "1")
    kv.put("ns", "k", 'ö"\n')
    kv.put("ns", "gone", "x")
    kv.delete("ns", "gone")
    kv.delete("ns", "never")
    asyncio.run(kv.durable())
    assert not file.path.exists()
    killed = started()
    assert killed.to_wire() == kv.to_wire()
    asyncio.run(killed.compact())
    killed.put("ns", "k", "3")
    killed.put("other", "k", "4")
    again = started()
    assert again.to_wire() == killed.to_wire() == {"configTable": {"ns": {"k": "3"}, "other": {"k": "4"}}}
    again.persist()
    assert not list(tmp_path.glob("*.notes*"))
    assert started().to_wire() == again.to_wire()


def test_a_kv_change_that_cannot_be_written_is_undone(tmp_path: Path) -> None:
    """The answer is an error, and the next question shows the old value."""
    (tmp_path / "x").write_text("")
    kv = KVConfigManager(JsonFile(tmp_path / "x" / "kvConfig.json"), ConfigJournal(tmp_path / "x" / "notes"))
    with pytest.raises(StoreError, match="notes: cannot be written"):
        kv.put("ns", "k", "1")
    assert kv.get("ns", "k") is None


def test_kv_values_are_bounded_in_number_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in size: they are in memory, and in the file that is read at a start."""
    monkeypatch.setattr(kv_config, "KV_CONFIG_ENTRIES_MAX", 3)
    monkeypatch.setattr(kv_config, "KV_CONFIG_MAX_BYTES", 30)
    file = JsonFile(tmp_path / "kvConfig.json")
    kv = KVConfigManager(file)
    for key in "abc":
        kv.put("n", key, "x")
    with pytest.raises(RefusedError, match="would store 4 values") as full:
        kv.put("n", "d", "x")
    assert full.value.reason == "kv.too_many"
    kv.put("n", "a", "y" * 20)
    with pytest.raises(RefusedError, match="3 values of 31 bytes; at most 3 values and 30 bytes"):
        kv.put("n", "b", "ü" * 2)
    again = KVConfigManager(file)
    again.load()
    with pytest.raises(RefusedError, match="of 31 bytes"):
        again.put("n", "b", "ü" * 2)
    again.delete("n", "a")
    again.put("n", "b", "ü" * 2)
