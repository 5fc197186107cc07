"""``flintmq store backup`` and ``restore`` as a shell sees them: results, exit codes, and errors that say what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintmq.programs.cli.exits import ExitCode
from flintmq.testing.store import message, opened

from .conftest import RunCommand


@pytest.fixture(name="store")
def make_store(tmp_path: Path) -> Path:
    """A stopped store of five messages."""
    with opened(tmp_path / "store") as store:
        store.put([message("T", 0, b"%d" % number, keys=f"k{number}") for number in range(5)])
        while store.dispatch():
            pass
    return tmp_path / "store"


def test_a_backup_can_be_created_and_verified_and_restored(cli: RunCommand, store: Path, tmp_path: Path) -> None:
    """Each step prints what a program needs of it."""
    backup, new = tmp_path / "backup", tmp_path / "new"
    made = cli("store", "backup", store, backup, "--limit", "1GiB", "--verify", "--json")
    assert (made.code, made.err) == (0, "")
    assert made.json["sound"] is True
    assert (made.json["number"], made.json["told_by"], made.json["new_records"]) == (1, "walk", 5)
    assert made.json["position"] == made.json["new_bytes"] > 0
    checked = cli("store", "restore", backup, "--verify", "--json")
    assert (checked.code, checked.json["sound"], checked.json["records"]) == (0, True, 5)
    restored = cli("store", "restore", backup, new, "--json")
    assert (restored.code, restored.json["log_ends_at"]) == (0, made.json["position"])
    assert cli("store", "verify", new).code == 0
    assert cli("store", "diff", store, new).code == 0
    text = cli("store", "backup", store, backup)
    assert "number: 2" in text.out
    assert "new bytes: 0" in text.out


def test_checking_a_damaged_backup_exits_with_1(cli: RunCommand, store: Path, tmp_path: Path) -> None:
    """As is a damaged store; nothing is restored of it."""
    backup = tmp_path / "backup"
    assert cli("store", "backup", store, backup).code == 0
    path = next(backup.glob("log/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    checked = cli("store", "restore", backup, "--verify", "--json")
    assert checked.code == ExitCode.FAILED
    assert "does not match its digest" in checked.json["findings"][0]
    restored = cli("store", "restore", backup, tmp_path / "new")
    assert restored.code == ExitCode.STORE
    assert "nothing was restored" in restored.err
    again = cli("store", "backup", store, backup)
    assert again.code == ExitCode.STORE
    assert "of the backup have changed since they were written" in again.err
    verified = cli("store", "backup", store, backup, "--verify", "--json")
    assert verified.code == ExitCode.FAILED
    assert verified.json["findings"] == checked.json["findings"]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("backup", "{store}", "{tmp}/b", "--limit", "fast"), ExitCode.USAGE, "--limit must be a size"),
        (("backup", "{store}", "{tmp}/b", "--limit", "0"), ExitCode.USAGE, "--limit must be more than 0"),
        (("backup", "{tmp}/none", "{tmp}/b"), ExitCode.STORE, "there is no such folder"),
        (("backup", "{store}", "{store}/b"), ExitCode.STORE, "may be neither inside"),
        (("restore", "{tmp}/none", "{tmp}/new"), ExitCode.STORE, "no backup lies there"),
        (("restore", "{tmp}/none"), ExitCode.USAGE, "give either the folder STORE"),
        (("restore", "{tmp}/none", "{tmp}/new", "--verify"), ExitCode.USAGE, "give either the folder STORE"),
    ],
)
def test_invalid_backup_and_restore_commands_explain_the_error_and_create_nothing(
    cli: RunCommand, store: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, why: str
) -> None:
    """And leave nothing behind."""
    found = cli("store", *(text.format(store=store, tmp=tmp_path) for text in arguments))
    assert found.code == code
    assert why in found.err
    assert not (tmp_path / "new").exists()


def test_a_backup_that_copies_damaged_records_reports_the_damage_on_stderr(
    cli: RunCommand, store: Path, tmp_path: Path
) -> None:
    """On stderr, beside the result."""
    path = next(store.glob("commitlog/*"))
    raw = bytearray(path.read_bytes())
    raw[104] ^= 1
    path.write_bytes(raw)
    refused = cli("store", "backup", store, tmp_path / "backup")
    assert refused.code == ExitCode.STORE
    assert "--keep-damage" in refused.err
    made = cli("store", "backup", store, tmp_path / "backup", "--keep-damage", "--json")
    assert made.code == 0
    assert "damage was copied as it is: commit log 100.." in made.err
    assert len(made.json["damage"]) == 1
