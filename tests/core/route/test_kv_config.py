"""Order configurations live here: they must survive the name server."""

from __future__ import annotations

from pathlib import Path

from flintmq.core.io.config_manager import JsonFile
from flintmq.core.route.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager


def test_values_survive_a_restart(tmp_path: Path) -> None:
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
