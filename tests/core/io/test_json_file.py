"""Configuration must survive a crash at any moment, and a Java broker must read ours as we read its."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

import flintmq
from flintmq.core.broker.groups import SubscriptionGroupManager
from flintmq.core.broker.offsets import ConsumerOffsetManager
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import StoreError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.json_file import JsonFile
from flintmq.core.testing.clock import ManualClock

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
