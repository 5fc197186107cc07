"""Tables are read as a start of the broker would read them, also while RocketMQ writes one in place."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq
from flintmq.core.errors import StoreFormatError
from flintmq.programs.backup.tables import read_names, read_positions


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_backup_reads_files_of_consumer_and_delay_offsets_before_files_of_topics_and_groups(tmp_path: Path) -> None:
    """Notes before the table that they go into; nothing that is no table."""
    for name in ("topics.json", "topics.json.bak", "consumerOffset.json", "delayOffset.json", "other.json", "x.tmp"):
        put(tmp_path, f"config/{name}", "{}")
    for name in (
        "new-topics",
        "epochs",
        "boot",
        "feed",
        "timer/position.json",
        "acl/plain_acl.yml",
        "quarantine/1.cut",
    ):
        put(tmp_path, f"flint/{name}", "x")
    assert list(read_positions(tmp_path)) == [
        "config/consumerOffset.json",
        "config/delayOffset.json",
        "flint/timer/position.json",
    ]
    assert list(read_names(tmp_path)) == [
        "flint/new-topics",
        "config/other.json",
        "config/topics.json",
        "flint/epochs",
        "flint/acl/plain_acl.yml",
    ]


def test_the_key_value_configuration_of_an_embedded_name_server_is_backed_up(tmp_path: Path) -> None:
    """They say where ordered topics are sent to; a file that cannot be read is not kept as if it could."""
    path = put(tmp_path, "flint/kvConfig.json", '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4"}}}')
    assert read_names(tmp_path) == {"flint/kvConfig.json": path.read_bytes()}
    path.write_text("{")
    with pytest.raises(StoreFormatError, match="kvConfig"):
        read_names(tmp_path, lambda _s: None)


def test_each_file_of_a_broker_is_backed_up_or_documented_as_excluded(tmp_path: Path) -> None:
    """A table that comes later is noticed here: by somebody who decides where it belongs."""
    root = tmp_path / "store"
    settings = [
        f"store.path={root}", "store.commit_log_file_bytes=1MiB", "listen.port=0", "listen.vip=false", "nameserver.port=0",
        f"nameserver.kv_path={root / 'flint' / 'kvConfig.json'}", "dispatchers=consume_queue,index,spark_feed",
        "pull.property_filter=true", "index.max_hash_slot_num=1000", "index.max_index_num=4000",
    ]  # fmt: skip
    loaded = flintmq.load_config(None, settings, {})
    with flintmq.NameServer(loaded) as names, flintmq.Broker(loaded) as broker:

        async def put_key_value() -> None:
            names.kv.put("ORDER_TOPIC_CONFIG", "T", "a:4")

        names.call(put_key_value)
        broker.put([flintmq.Message("T", b"x", properties={"DELAY": "1"}), flintmq.Message("T", b"y")])
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    kept = read_positions(root).keys() | read_names(root).keys()
    made_again = ("commitlog/", "consumequeue/", "index/")
    page = (Path(flintmq.__file__).parent / "docs" / "backup.md").read_text()
    not_in_it = page.partition("`flintmq store backup` does not copy these files of a store:")[2].partition("\n## ")[0]
    assert {"flint/kvConfig.json", "config/topics.json", "flint/epochs"} <= kept
    left = {name for name in there - kept if not name.startswith(made_again) and not name.endswith(".bak")}
    assert [name for name in sorted(left) if f"`{name}`" not in not_in_it] == []


def test_a_backup_waits_until_the_broker_has_completely_written_the_consumer_offset_file(tmp_path: Path) -> None:
    """RocketMQ removes the file before it renames the new one, and writes it in pieces."""
    path = put(tmp_path, "config/consumerOffset.json.bak", "{}").with_suffix("")
    states = iter(['{"offsetTable":', "", '{"offsetTable":{}}'])
    assert read_positions(tmp_path, lambda _s: path.write_text(next(states))) == {
        "config/consumerOffset.json": b'{"offsetTable":{}}'
    }


@pytest.mark.parametrize(
    ("now", "backup", "wanted"), [("{", '{"a":1}', b'{"a":1}'), ("", '{"a":1}', b'{"a":1}'), ("", "", None)]
)
def test_a_backup_reads_topics_json_bak_if_topics_json_is_damaged_or_empty(
    tmp_path: Path, now: str, backup: str, wanted: bytes | None
) -> None:
    """As at a start."""
    put(tmp_path, "config/topics.json", now)
    put(tmp_path, "config/topics.json.bak", backup)
    assert read_names(tmp_path, lambda _s: None).get("config/topics.json") == wanted


def test_a_backup_fails_if_topics_json_and_topics_json_bak_are_both_unreadable(tmp_path: Path) -> None:
    """It is told now, and not when it is needed."""
    put(tmp_path, "config/topics.json", "{")
    put(tmp_path, "config/topics.json.bak", "[")
    with pytest.raises(StoreFormatError, match=r"topics\.json: cannot be read: .*topics\.json\.bak"):
        read_names(tmp_path, lambda _s: None)
