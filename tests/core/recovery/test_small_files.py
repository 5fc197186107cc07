"""A table that holds nothing is no empty table: its backup is taken, topics are made again, or the start is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import flintmq
from flintmq import Message
from flintmq.config import load_config
from flintmq.core.errors import StoreFormatError
from flintmq.core.io.paths import ends_path
from flintmq.core.recovery.small_files import table_fault
from flintmq.testing.embedded import SETTINGS

NOTHING = [b"", b"null", b"\0\0\0\0", b"[]", b'{"offsetTable":{']


def broker_of(root: Path) -> flintmq.Broker:
    return flintmq.Broker(load_config(None, [*SETTINGS, f"store.path={root}"], {}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with messages, a group and its offset, that was stopped."""
    with broker_of(tmp_path) as broker:
        broker.put([Message("Orders", b"1") for _ in range(8)])

        async def consume() -> None:
            broker.state.groups.find("CG")
            broker.state.offsets.commit("Orders", "CG", 0, 2)
            broker.state.offsets.persist()
            broker.state.offsets.commit("Orders", "CG", 1, 2)

        broker.call(consume)
    return tmp_path


@pytest.mark.parametrize("raw", NOTHING)
@pytest.mark.parametrize("name", ["consumerOffset.json", "subscriptionGroup.json"])
def test_a_broker_does_not_start_if_its_offset_table_or_group_table_is_damaged_and_has_no_backup(
    root: Path, name: str, raw: bytes
) -> None:
    path = root / "config" / name
    path.write_bytes(raw)
    path.with_name(name + ".bak").unlink(missing_ok=True)
    with pytest.raises(StoreFormatError, match=rf"{name}.*good copy.*write {{}}"), broker_of(root):
        pass
    path.write_text("{}")
    with broker_of(root) as broker:
        assert broker.state.offsets.query("Orders", "CG", 0) == (-1 if name.startswith("consumer") else 2)


@pytest.mark.parametrize("raw", NOTHING)
def test_a_damaged_table_is_replaced_by_its_backup_and_reported(
    root: Path, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    (root / "config" / "consumerOffset.json").write_bytes(raw)
    with caplog.at_level(logging.WARNING), broker_of(root) as broker:
        assert broker.state.offsets.query("Orders", "CG", 0) == 2
        assert [alarm.id for alarm in broker.api.alarms.current()].count("store.mended") == 1
    assert "its backup replaces it" in caplog.text
    assert raw in [path.read_bytes() for path in (root / "flint" / "quarantine").iterdir()]


@pytest.mark.parametrize("with_notes", [True, False])
@pytest.mark.parametrize("raw", NOTHING)
def test_a_damaged_topic_table_is_rebuilt_from_the_queues(
    root: Path, caplog: pytest.LogCaptureFixture, raw: bytes, with_notes: bool
) -> None:
    """In a store that RocketMQ has left so, too."""
    (root / "config" / "topics.json").write_bytes(raw)
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    if not with_notes:
        ends_path(root).unlink()
    with caplog.at_level(logging.WARNING), broker_of(root) as broker:
        made = broker.state.topics.select("Orders")
        assert made is not None
        assert made.read_queue_nums == max(key[1] for key in broker.state.store.consume_queues.queues) + 1
    assert "topics are rebuilt" in caplog.text


def test_an_undamaged_store_starts_without_warnings(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flintmq.store"), broker_of(root) as broker:
        assert broker.state.store.mended == []
    assert not [record for record in caplog.records if record.name == "flintmq.store"]


def test_a_json_table_with_braces_inside_a_string_is_not_reported_as_damaged() -> None:
    assert table_fault(b'{"a":"}"}') == ""
    assert table_fault(b'{"a":{}') != ""
