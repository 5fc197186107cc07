"""Every option that takes a time reads it in the same way: one that is misread exports, moves or shows the wrong messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, opened

from .conftest import RunCommand

STORED_MS = 1_764_068_058_000  # 2025-11-25T11:54:18+01:00


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system's clock is Berlin's."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store(tmp_path: Path, in_berlin: None) -> Path:
    """A store with one message."""
    root = tmp_path / "store"
    with opened(root, clock=ManualClock(STORED_MS)) as made:
        made.put([message("Orders", body=b"one")])
        made.dispatch()
    return root


COMMANDS = [
    ("consume", "T", "--from"),
    ("groups", "reset", "G", "T", "--to"),
    ("store", "cat", "STORE", "--from"),
    ("store", "cat", "STORE", "--until"),
    ("store", "export", "STORE", "OUT", "--from"),
    ("store", "export", "STORE", "OUT", "--until"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1764068058", "'1764068058' (read as 1970-01-21"),
        ("26120115120000", "read as 2612-01-15"),
        ("1999-12-31", "to "),
        ("20261325", "month must be in"),
        ("2026-03-29T02:30", "skip it when they are set forward"),
        ("tomorrow", "'tomorrow'"),
    ],
)
def test_an_invalid_time_is_refused(
    cli: RunCommand, store: Path, command: tuple[str, ...], text: str, why: str
) -> None:
    """It names the option, the value and what fits; nothing is read or moved."""
    words = [{"STORE": store, "OUT": store.parent / "out"}.get(word, word) for word in command]
    outcome = cli(*words, text)
    assert outcome.code == 2, outcome
    for said in (command[-1], text, why):
        assert said in outcome.err
    assert not (store.parent / "out").exists()


@pytest.mark.parametrize("text", ["20251125115418", "2025-11-25#11:54:18:000", "2025-11-25T10:54:18Z", str(STORED_MS)])
def test_a_start_time_selects_messages_stored_at_this_time_or_later(cli: RunCommand, store: Path, text: str) -> None:
    """Stored at it, and not before it."""
    assert "one" in cli("store", "cat", store, "--from", text).out
    assert cli("store", "cat", store, "--until", text).out == ""


def test_a_date_without_a_time_means_the_start_of_the_day_in_local_time(cli: RunCommand, store: Path) -> None:
    """Here, and not in Greenwich."""
    for text in ("20251125", "2025-11-25"):
        assert "one" in cli("store", "cat", store, "--from", text).out
    assert cli("store", "cat", store, "--from", "20251126").out == ""


def test_an_ambiguous_local_time_causes_a_warning(cli: RunCommand, store: Path) -> None:
    """The first one counts."""
    outcome = cli("store", "cat", store, "--from", "2025-10-26T02:30")
    assert outcome.code == 0
    assert "warning: --from '2025-10-26T02:30' occurs twice here" in outcome.err


@pytest.mark.usefixtures("in_berlin")
def test_time_options_of_the_spark_source_accept_the_time_formats_of_the_commands() -> None:
    """And so do pipelines, whose files name these options."""

    def options(**given: Any) -> ReadOptions:
        return ReadOptions.parse({"path": "/s", **given})

    for text in ("20251125115418", "2025-11-25T11:54:18", str(STORED_MS)):
        assert options(startingTimestamp=text).starting_timestamp_ms == STORED_MS
        assert options(endingTimestamp=text).ending_timestamp_ms == STORED_MS
    for text in ("1764068058", "2612-01-01", "2026-03-29T02:30", "soon", "0"):
        for name in ("startingTimestamp", "endingTimestamp"):
            with pytest.raises(OptionError, match=f"option {name} must be a time"):
                options(**{name: text})
    with pytest.warns(UserWarning, match="occurs twice here"):
        options(startingTimestamp="2025-10-26T02:30")
