"""What docs/internals/store-format.md says in words of the files of a store, tried on the files of a broker."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, Final

import pytest

import flintmq
from flintmq.config.loading.schema import KEYS
from flintmq.config.rocketmq import system_topics
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.log.store_checkpoint import CHECKPOINT_BYTES, StoreCheckpoint
from flintmq.core.record.bloom import BloomFilter
from flintmq.core.record.host import offset_message_id, pack_host
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import RECORD_MIN_BYTES
from flintmq.core.record.topic_lives import DELETIONS
from flintmq.core.recovery.repair import LOST_TOPIC
from flintmq.testing.store import message, opened

ROOT: Final = Path(str(flintmq.__file__)).resolve().parent
PAGE: Final = (ROOT / "docs" / "internals" / "store-format.md").read_text("utf-8")
TREE: Final = (ROOT / "docs" / "store.md").read_text("utf-8").partition("flint/  ")[2].partition("```")[0]
SMALL: Final = (
    "listen.port=0",
    "nameserver.port=0",
    "store.commit_log_file_bytes=64KiB",
    "store.consume_queue_file_bytes=2000",
    "index.max_hash_slot_num=100",
    "index.max_index_num=400",
    "dispatchers=[consume_queue, index, spark_feed]",
)


def named_in_flint() -> set[str]:
    """Return the names in the first column of the page's table of ``flint/``."""
    table = PAGE.partition("\n## Extras in flint/\n")[2].partition("\nThe feed (")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.partition("/")[0] for cell in cells for name in re.findall(r"`([\w.-]+/?[\w.]*)`", cell)}


def test_two_documentation_pages_list_every_store_file_that_only_flintmq_writes() -> None:
    """Who copies or mends a store by hand looks up what a file is, and what is lost with it."""
    source = "\n".join(path.read_text() for folder in ("core", "plugins") for path in (ROOT / folder).rglob("*.py"))
    in_code = set(re.findall(r'"flint" / "([\w.-]+)"', source)) | {"kvConfig.json", "acl", "rebuild"}
    assert in_code >= {"epochs", "ends", "boot", "feed", "timer", "console", "quarantine"}
    assert in_code - named_in_flint() == set()
    assert {name for name in in_code if name not in TREE} == set()


def test_folders_and_files_in_the_store_of_a_broker_have_the_documented_names_and_sizes(tmp_path: Path) -> None:
    """While it runs, and after a stop in order; each file has the size and the kind of name that stand there."""
    store = tmp_path / "store"
    config = flintmq.load_config(None, [*SMALL, f"store.path={store}"], {})
    with (
        flintmq.NameServer(config) as names,
        flintmq.Broker(config.with_overrides([f"namesrv.addresses={names.address}"])) as broker,
    ):
        for number in range(200):
            broker.put([flintmq.Message("Orders", bytes(1_000), tags="t", keys=f"k{number}")])
        broker.put([flintmq.Message("Later", b"x", delay_level=3)])
        assert (store / "lock").read_bytes() == b"lock"
        assert (store / "abort").read_bytes() == b""
        in_flint = {path.name for path in (store / "flint").iterdir()}
    assert not (store / "abort").exists()
    in_flint |= {path.name for path in (store / "flint").iterdir()}
    assert in_flint - named_in_flint() == set()
    assert {"boot", "ends", "epochs", "feed", "delay_levels.json"} <= in_flint
    assert {path.name for path in store.iterdir()} <= set(re.findall(r"^  (\w+)", PAGE, re.M))
    assert (store / "checkpoint").stat().st_size == CHECKPOINT_BYTES == 4_096
    logs = sorted((store / "commitlog").iterdir())
    assert [path.name for path in logs[:2]] == [f"{0:020d}", f"{65_536:020d}"]
    assert {path.stat().st_size for path in logs} == {65_536}
    for path in (store / "consumequeue").rglob("*"):
        if path.is_file():
            assert (len(path.name), path.stat().st_size) == (20, 2_000)
    for path in (store / "index").iterdir():
        made = time.strptime(path.name[:14], "%Y%m%d%H%M%S")
        assert len(path.name) == 17
        assert abs(time.mktime(made) - path.stat().st_mtime) < 3_600, "named by the local time"


def test_file_sizes_on_the_store_format_page_are_the_defaults() -> None:
    """The block of folders says what a broker makes that nobody has configured."""
    plain = BrokerConfig()
    told = {
        "store.commit_log_file_bytes": ("(1 GiB)", 2**30),
        "store.consume_queue_file_bytes": ("(300,000 units)", 300_000 * 20),
        "store.consume_queue_ext_file_bytes": ("(48 MiB)", 48 * 2**20),
        "index.max_index_num": ("20,000,000 entries", 20_000_000),
        "index.max_hash_slot_num": ("5,000,000 × 4", 5_000_000),
        "pull.max_error_rate": ("(20 %)", 20),
        "pull.expect_consumer_num": ("(32)", 32),
    }
    for key, (text, value) in told.items():
        assert text in PAGE
        assert KEYS[key].value_of(plain) == value, key
    assert KEYS["store.consume_queue_ext_enable"].value_of(plain) is False


def test_bloom_filter_numbers_in_the_documentation_equal_the_code() -> None:
    assert "= 3 positions a group" in PAGE
    assert "= 108 bits,\nrounded up to 112" in PAGE
    made = BloomFilter(20, 32)
    assert (made.hash_functions, made.bit_num, made.bit_map_bytes) == (3, 112, 14)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\x011\x02b\x012", {"a": "1", "b": "2"}),
        ("a\x011\x02b\x012\x02", {"a": "1", "b": "2"}),
        ("\x01x\x02b\x01\x02c\x02a\x011", {"a": "1"}),
        ("a\x011\x02a\x012", {"a": "2"}),
    ],
)
def test_message_properties_are_parsed_as_documented(text: str, found: dict[str, str]) -> None:
    """The last 0x02 is optional, incomplete entries are skipped, and the last of equal names counts."""
    assert string_to_properties(text) == found


def test_a_record_is_written_to_the_next_log_file_if_it_would_leave_fewer_than_8_bytes_free(tmp_path: Path) -> None:
    """A record that leaves 8 bytes stays in its file; one byte more goes to the next, behind a blank."""
    for left in (8, 7):
        with opened(tmp_path / str(left), commit_log_file_bytes=4_096) as store:
            (first,) = store.put([message("T", 0, b"")]).records
            body = bytes(4_096 - left - 2 * first.message_size_bytes)
            (second,) = store.put([message("T", 0, body)]).records
            assert second.commit_log_offset_bytes == (first.message_size_bytes if left == 8 else 4_096)


def test_a_checkpoint_subtracts_three_seconds_from_the_older_of_the_log_and_queue_timestamps(
    tmp_path: Path,
) -> None:
    checkpoint = StoreCheckpoint(OS_DISK, tmp_path / "checkpoint")
    checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms = 50_000, 40_000
    assert checkpoint.min_timestamp_ms == 37_000
    checkpoint.close()
    assert "min(`physicMsgTimestamp`, `logicsMsgTimestamp`) − 3 s" in PAGE


def test_message_ids_have_the_lengths_in_the_documentation() -> None:
    for address, length in (("127.0.0.1", 32), ("::1", 56)):
        text = offset_message_id(pack_host(address, 10_911).hex().upper(), 5)
        assert (len(text), text) == (length, text.upper())


def test_json_files_of_the_store_have_the_documented_format(
    tmp_path: Path,
) -> None:
    """Tabs, numeric keys without quotes on one line; quoted keys are read as well; the backup serves a file that is broken."""
    example = re.search(r"```\n(\{\n\t\"offsetTable\".*?)\n```", PAGE, re.S)
    assert example is not None
    value: dict[str, Any] = {"offsetTable": {"TopicTest@CG": {0: 1, 1: 1, 2: 3, 3: 1}}}
    assert fastjson.dumps_pretty(value) == example[1]
    file = JsonFile(tmp_path / "consumerOffset.json")
    file.save(value)
    file.save({"offsetTable": {}})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["consumerOffset.json", "consumerOffset.json.bak"]
    (tmp_path / "consumerOffset.json").write_text("{")
    assert JsonFile(tmp_path / "consumerOffset.json").load() == value
    assert fastjson.loads('{"offsetTable":{"TopicTest@CG":{"0":1}}}') == {"offsetTable": {"TopicTest@CG": {"0": 1}}}


def test_each_special_topic_in_the_documentation_has_the_name_that_the_code_uses() -> None:
    names = {value for name, value in vars(system_topics).items() if name.isupper() and isinstance(value, str)}
    table = PAGE.partition("\n## Special topics\n")[2].partition("\n## ")[0]
    told = {name for name in re.findall(r"^\| `([\w%<>]+)`", table, re.M) if "<" not in name}
    assert told - names - {LOST_TOPIC} == set()
    assert DELETIONS == ("rmq_sys_deleted_topic", 0)
    assert RECORD_MIN_BYTES == 91
