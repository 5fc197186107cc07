"""What was changed is remembered over restarts, in a file that does not grow for good."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flintmq.programs.console import audit
from flintmq.programs.console.audit import AuditLog
from flintmq.testing.clock import ManualClock


def test_audit_entries_are_listed_newest_first_and_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "made" / "audit.jsonl"
    before = AuditLog(ManualClock(), file)
    for number in range(3):
        before.note("admin", "127.0.0.1", "reset", f"G{number}", "done")
    with file.open("ab") as torn:
        torn.write(b'{"at_ms": 1, "who')
    after = AuditLog(ManualClock(), file)
    assert [one.subject for one in after.entries()] == ["G2", "G1", "G0"]
    assert after.entries() == before.entries()


def test_the_audit_log_has_a_bounded_size_on_disk_and_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "FILE_MAX_BYTES", 2_000)
    file = tmp_path / "audit.jsonl"
    log = AuditLog(ManualClock(), file)
    for number in range(audit.KEPT_MAX + 10):
        log.note("admin", "::1", "reset", f"{number}", "x" * 10_000)
    assert len(log.entries()) == audit.KEPT_MAX
    assert max(len(one.result) for one in log.entries()) == 1_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    assert all(path.stat().st_size < 2_000 + 1_500 for path in tmp_path.iterdir())


def test_an_audit_entry_stays_in_memory_if_the_audit_file_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The change was made: what is not known any more must not be that."""
    log = AuditLog(ManualClock(), tmp_path / "gone" / "audit.jsonl")
    (tmp_path / "gone").rmdir()
    log.note("admin", "::1", "reset", "G", "done")
    assert [one.subject for one in log.entries()] == ["G"]
    assert "audit.jsonl is not written" in caplog.text


def test_line_breaks_and_unprintable_characters_in_audit_fields_are_escaped_in_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Names come from messages and forms: an access key, the REAL_TOPIC of a message, the answer of a client."""
    caplog.set_level(logging.INFO, "flintmq.console")
    forged = "x\n2026-01-01 INFO flintmq.console: admin at 127.0.0.1: all is well\x1b[2J\u202e"
    audit = AuditLog(ManualClock())
    for at in range(5):
        fields = ["-"] * 5
        fields[at] = forged
        audit.note(*fields)
        assert caplog.messages[-1].isprintable()
        assert "\\n2026" in caplog.messages[-1]
    (entry, *_) = audit.entries()
    assert entry.result == forged  # the page escapes by itself
