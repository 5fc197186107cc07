"""Commands on a terminal of 80 columns and 24 lines, and in a pipe: what they exist to tell is whole in both."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flintmq.plugins.spark.pipeline.running import PipelineResult, SinkResult
from flintmq.programs.cli import output, pipeline
from flintmq.programs.cli.output import print_found, print_table, span_text
from flintmq.testing.store import message, opened

from .conftest import RunCommand

COLUMNS = 80
TEXT = "a queue that stands still although messages wait, which an operator has to look at before the disk is full"
ID = "7F00000100002A9F00000000000AB3C15E0D91B0A7C3"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Sets how many columns the terminal has; None is a pipe."""

    def set_width(columns: int | None) -> None:
        monkeypatch.setattr(output, "terminal_width", lambda *, stderr=False: columns)

    return set_width


@pytest.mark.parametrize("columns", [40, COLUMNS, 200, None])
@pytest.mark.parametrize("count", [2, 5, 12])
def test_tables_and_cards_for_narrow_terminals_break_lines_only_between_words(
    terminal: Callable[[int | None], None], capsys: pytest.CaptureFixture[str], columns: int | None, count: int
) -> None:
    """A table where it fits, else cards; ids stay in one piece, and text is broken between words."""
    terminal(columns)
    values = [f"broker-{'x' * number}" for number in range(count - 2)] + [ID, TEXT]
    print_table([f"h{number}" for number in range(count)], [values, values], title=f"{TEXT}: all")
    out = capsys.readouterr().out
    lines = out.splitlines()
    head = " ".join(lines[:4])
    assert f"{TEXT}: all" in head
    assert out.count(ID) == 2
    words = out.replace("\n", " ").split()
    assert all(words.count(word) >= 2 for value in values for word in value.split())
    if columns is not None and columns >= COLUMNS:
        assert max(map(len, lines)) <= columns
    if columns is None:
        assert any(TEXT in line for line in lines[1:]), "a pipe takes a row as one line"


def test_tables_shown_as_cards_in_a_narrow_terminal_omit_empty_fields(
    terminal: Callable[[int | None], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(COLUMNS)
    headings = ("broker", *(f"heading{number}" for number in range(9)))
    print_table(headings, [("broker-a:0", "DefaultCluster", "", *(["127.0.0.1:10911"] * 7))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["", "broker-a:0", "  heading0  DefaultCluster"]
    assert not any("heading1" in line for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (423, "7m"), (3_600, "1h 0m"), (11_100, "3h 5m"), (187_200, "2d 4h")],
)
def test_durations_are_printed_in_a_short_form(seconds: int, text: str) -> None:
    assert span_text(seconds) == text


def test_command_results_are_printed_with_english_words_instead_of_field_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """People read yes and no, and words; names that somebody gave stay as they are, and programs have JSON."""
    found = {
        "told_by": "queues",
        "is_sound": True,
        "made_at_ms": 0,
        "first_difference": None,
        "record": {"queue_id": 3, "properties": {"my_key": "True", "UNIQ_KEY": "x"}},
        "topics": {"my_topic": {"more_records": 5}},
        "tables": ["config/topics.json"],
    }
    print_found(found, False)
    assert capsys.readouterr().out.splitlines() == [
        "where it ends was told by: the queues",
        "is sound: yes",
        "made at: -",
        "first difference: none",
        "record:",
        "  queue id: 3",
        "  properties:",
        "    my_key: True",
        "    UNIQ_KEY: x",
        "topics:",
        "  my_topic:",
        "    more records: 5",
        "tables:",
        "  - config/topics.json",
    ]


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--topic", "{topic}"),
    ("topics",),
    ("topics", "--all"),
    ("topics", "show", "{topic}"),
    ("groups",),
    ("groups", "show", "narrow-readers"),
    ("groups", "reset", "narrow-readers", "{topic}", "--to", "first", "--dry-run"),
    ("send", "{topic}", "another"),
    ("query", "{topic}", "--key", "narrow-key"),
    ("top", "--once"),
)


@pytest.mark.parametrize("columns", [COLUMNS, None])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_cluster_tables_fit_the_terminal(
    cli: RunCommand,
    name_server: str,
    topic: str,
    terminal: Callable[[int | None], None],
    words: tuple[str, ...],
    columns: int | None,
) -> None:
    """No line is longer than the terminal, and ids, addresses and names are in one piece."""
    where = ("-n", name_server)
    sent = cli("send", topic, "body", "--keys", "narrow-key", *where, "--json").json
    assert cli("consume", topic, "-g", "narrow-readers", "--count", 1, "--from", "first", *where).code == 0
    until_s = time.monotonic() + 60
    while "version" not in (broker := cli("status", *where, "--json").json["brokers"][0]):
        assert time.monotonic() < until_s, (
            "the broker imports what answers the first status, on a busy machine for long"
        )
    terminal(columns)
    outcome = cli(*(word.format(topic=topic) for word in words), *where)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    if columns is not None:
        assert [line for line in lines if len(line) > columns and " " in line.strip()] == []
    whole: dict[str, list[Any]] = {
        "status": [broker["address"], broker["version"], "DefaultCluster", "broker-a:0"],
        "query": [sent["msg_id"], sent["offset_msg_id"], topic],
        "groups": ["narrow-readers"],
        "topics": [topic] if words[:2] != ("topics", "--all") else [topic, "SCHEDULE_TOPIC_XXXX"],
    }
    for text in whole.get(words[0], []):
        assert any(str(text) in line for line in lines), text
    if words[0] == "send":
        assert sum(len(word) == 32 for line in lines for word in line.split()) == 2, "both ids are whole"


@pytest.mark.parametrize("columns", [COLUMNS, None])
@pytest.mark.parametrize("words", [("plugins",), ("config", "show"), ("config", "show", "--changed")], ids=" ".join)
def test_the_output_of_local_commands_fits_the_width_of_the_terminal(
    cli: RunCommand, terminal: Callable[[int | None], None], words: tuple[str, ...], columns: int | None
) -> None:
    """Long values, and lists of what plugins register, are broken between their words; nothing is shown as an escape."""
    terminal(columns)
    outcome = cli(*words)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert "\\n" not in outcome.out
    assert all(line == line.rstrip() for line in lines) or columns is not None
    if columns is not None:
        assert [line for line in lines if len(line) > columns and " " in line.strip()] == []
    if words == ("plugins",):
        assert "TRANS_CHECK_MAX_TIME_TOPIC" in outcome.out


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A store whose messages have long names, in a folder whose name is longer than a line."""
    root = tmp_path / ("a-folder-with-a-long-name-" * 3) / "store"
    with opened(root) as store:
        for number in range(3):
            store.put([message("a-topic-with-a-long-name" * 3, 0, TEXT.encode(), keys=f"{ID}{number}", tags="a-tag")])
        store.dispatch()
    return root


def check_lines(out: str, columns: int | None) -> None:
    """No line is longer than a terminal of this width, but for one word that is."""
    if columns is not None:
        assert [line for line in out.splitlines() if len(line) > columns and " " in line.strip()] == []


STORE_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("verify", "{store}"),
    ("explain", "{store}"),
    ("explain", "{store}", "--position", "0"),
    ("explain", "{store}", "--queue", f"{'a-topic-with-a-long-name' * 3}/0/1"),
    ("explain", "{store}", "--key", "a-topic-with-a-long-name" * 3, f"{ID}1"),
    ("diff", "{store}", "{store}"),
    ("cat", "{store}", "--parquet", "{store}.parquet"),
    ("salvage", "{store}", "{store}-saved"),
    ("backup", "{store}", "{store}-backup", "--verify"),
    ("repair", "{store}"),
    ("rebuild", "{store}", "--engine", "inline", "--out", "{store}-new"),
    ("export", "{store}", "{store}-lake", "--engine", "inline"),
    ("compact", "{store}", "{store}-newest", "--engine", "inline"),
    ("audit", "{store}", "--engine", "inline"),
)


@pytest.mark.parametrize("columns", [COLUMNS, None])
@pytest.mark.parametrize("words", STORE_COMMANDS, ids=" ".join)
def test_the_output_of_store_commands_fits_the_width_of_the_terminal(
    cli: RunCommand,
    small_store: Path,
    terminal: Callable[[int | None], None],
    words: tuple[str, ...],
    columns: int | None,
) -> None:
    """Findings, places and paths are read in a terminal, too; in a pipe a result is one line for each member."""
    if words[0] in ("rebuild", "export", "compact", "audit") or "--parquet" in words:
        pytest.importorskip("pyarrow")
    terminal(columns)
    outcome = cli("store", *(word.format(store=small_store) for word in words))
    assert outcome.code == 0, outcome.err
    assert outcome.out
    check_lines(outcome.out, columns)
    if words[0] == "explain" and len(words) > 2:
        assert any(ID in line for line in outcome.out.splitlines()), "a key is in one piece"


@pytest.mark.parametrize("columns", [COLUMNS, None])
def test_a_message_is_one_line_in_a_narrow_terminal(
    cli: RunCommand, name_server: str, topic: str, terminal: Callable[[int | None], None], columns: int | None
) -> None:
    """Else a body could pass for a message of its own; the terminal breaks the line where it has to."""
    where = ("-n", name_server)
    sent = cli("send", topic, f"{TEXT} {TEXT}", *where, "--json").json
    terminal(columns)
    (line,) = cli("consume", topic, "--count", 1, "--from", "first", *where).out.splitlines()
    assert sent["msg_id"] in line
    assert line.endswith(f"{TEXT} {TEXT}")
    outcome = cli("ping", "127.0.0.1:1", "--timeout", "1s")
    assert outcome.code == 4
    check_lines(outcome.out, columns)


@pytest.mark.parametrize("columns", [COLUMNS, None])
@pytest.mark.parametrize("as_json", [True, False])
def test_the_output_of_the_demo_fits_the_width_of_the_terminal(
    cli: RunCommand, terminal: Callable[[int | None], None], columns: int | None, as_json: bool
) -> None:
    """It is the first that a new user sees."""
    terminal(columns)
    outcome = cli("demo", "--messages", 20, *(["--json"] if as_json else []))
    assert outcome.code == 0, outcome.err
    if as_json:
        assert outcome.json["ok"]
        return
    check_lines(outcome.out, columns)
    lines = outcome.out.splitlines()
    for strategy in ("group_commit", "flush_real_time", "commit_real_time"):
        assert any(line.split()[:1] == [strategy] for line in lines)
    assert outcome.out.count("every message") == 3


@pytest.mark.parametrize("columns", [COLUMNS, None])
def test_the_output_of_benchmarks_fits_the_width_of_the_terminal(
    cli: RunCommand, tmp_path: Path, terminal: Callable[[int | None], None], columns: int | None
) -> None:
    """Tables for people; what scripts read is a line of JSON for each run in any terminal."""
    terminal(columns)
    quick = ("--rounds", 1, "--seconds", 0.05, "--warmup", 0, "--threads", 2, "--power-cut", 0.05)
    outcome = cli("bench", "flush", *quick, "--dir", tmp_path, "--report", tmp_path / "a.json")
    assert outcome.code == 0, outcome.err
    check_lines(outcome.out, columns)
    assert outcome.out.count("commit_real_time") >= 3
    outcome = cli("bench", "report", tmp_path / "a.json", tmp_path / "a.json")
    assert outcome.code == 0, outcome.err
    check_lines(outcome.out, columns)
    small = ("--set", "store.commit_log_file_bytes=4MiB", "--seconds", 0.05, "--warmup", 0)
    assert len(cli("bench", "latency", *small).json_lines) == 1


@pytest.mark.parametrize("columns", [COLUMNS, None])
def test_the_output_of_a_pipeline_fits_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int | None], None], columns: int | None
) -> None:
    terminal(columns)
    sinks = [
        SinkResult(name=f"sink-{'x' * 60}{number}", format="parquet", rows=3, batches=1, seconds=1.0)
        for number in range(2)
    ]
    pipeline._report(PipelineResult("orders", streaming=False, sinks=tuple(sinks)), as_json=False)
    out = capsys.readouterr().out
    check_lines(out, columns)
    assert all(sink.name in out for sink in sinks)


@pytest.mark.slow
def test_the_width_of_a_real_terminal_is_used(cli: RunCommand, name_server: str, tmp_path: Path) -> None:
    """What the width is comes from the terminal itself."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.Popen(
        [sys.executable, "-m", "flintmq", "status", "-n", name_server],
        stdout=theirs,
        env=environment | {"TERM": "xterm"},
    )
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 65_536):
            told += part
    except OSError:
        pass  # the other end is closed: the command has ended
    assert done.wait() == 0
    os.close(ours)
    lines = told.decode().replace("\r", "").splitlines()
    assert "broker-a:0" in lines
    assert max(map(len, lines)) <= COLUMNS
