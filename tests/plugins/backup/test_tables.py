"""Tables are read as a start of the broker would read them, also while RocketMQ writes one in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.core.errors import StoreFormatError
from flintmq.plugins.backup.tables import read_names, read_positions


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_positions_come_first_and_names_last(tmp_path: Path) -> None:
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


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    """RocketMQ removes the file before it renames the new one, and writes it in pieces."""
    path = put(tmp_path, "config/consumerOffset.json.bak", "{}").with_suffix("")
    states = iter(['{"offsetTable":', "", '{"offsetTable":{}}'])
    assert read_positions(tmp_path, lambda _s: path.write_text(next(states))) == {
        "config/consumerOffset.json": b'{"offsetTable":{}}'
    }


@pytest.mark.parametrize(
    ("now", "backup", "wanted"), [("{", '{"a":1}', b'{"a":1}'), ("", '{"a":1}', b'{"a":1}'), ("", "", None)]
)
def test_the_broker_s_own_backup_stands_in(tmp_path: Path, now: str, backup: str, wanted: bytes | None) -> None:
    """As at a start."""
    put(tmp_path, "config/topics.json", now)
    put(tmp_path, "config/topics.json.bak", backup)
    assert read_names(tmp_path, lambda _s: None).get("config/topics.json") == wanted


def test_what_a_start_would_refuse_is_no_backup(tmp_path: Path) -> None:
    """It is told now, and not when it is needed."""
    put(tmp_path, "config/topics.json", "{")
    put(tmp_path, "config/topics.json.bak", "[")
    with pytest.raises(StoreFormatError, match=r"topics\.json: cannot be read: .*topics\.json\.bak"):
        read_names(tmp_path, lambda _s: None)
