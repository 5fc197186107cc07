"""``flintmq top`` for scripts, and what it says where it cannot show a screen."""

from __future__ import annotations

import sys

import pytest

from .conftest import RunCommand


def test_the_top_command_can_print_one_snapshot_as_json(cli: RunCommand, name_server: str, topic: str) -> None:
    """A message that was sent is seen, and names are whole."""
    assert cli("send", topic, "hello", "-n", name_server).code == 0
    outcome = cli("top", "--json", "-n", name_server)
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert list(found) == ["overview", "brokers", "topics", "groups"]
    assert found["overview"]["brokers"] == 1
    row = next(one for one in found["topics"] if one["name"] == topic)
    assert (row["messages"], row["read_queues"], row["kind"]) == (1, 2, "user")
    assert found["brokers"][0]["is_flintmq"]


def test_the_top_command_can_print_its_tables_once_and_exit(cli: RunCommand, name_server: str, topic: str) -> None:
    outcome = cli("top", "--once", "-n", name_server)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("DefaultCluster  now  put ")
    assert topic[:29] in outcome.out
    assert "groups by lag" in outcome.out


def test_the_top_command_exits_with_4_if_no_server_answers(cli: RunCommand) -> None:
    """A script must not take an empty look for an idle cluster."""
    outcome = cli("top", "--json", "-n", "127.0.0.1:1")
    assert (outcome.code, outcome.out) == (4, "")
    assert "nobody answers" in outcome.err


def test_the_top_command_fails_without_a_terminal_and_suggests_its_json_option(
    cli: RunCommand, name_server: str
) -> None:
    outcome = cli("top", "-n", name_server)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--once and --json" in outcome.err


def test_the_top_command_names_the_missing_extra_if_the_package_textual_is_missing(
    cli: RunCommand, name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "flintmq.programs.top.app", raising=False)
    outcome = cli("top", "-n", name_server)
    assert outcome.code == 2
    assert "pip install '.[top]'" in outcome.err
