"""A topic loses queues without losing messages: in two steps, and not while messages wait there."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest

from .conftest import RunCommand


def numbers(cli: RunCommand, topic: str, name_server: str) -> tuple[int, int]:
    """The read and write queues that the brokers have."""
    rows = cli("topics", "--all", "-n", name_server, "--json").json
    row: dict[str, Any] = next(row for row in rows if row["topic"] == topic)
    return row["read_queues"], row["write_queues"]


@pytest.fixture
def wide(cli: RunCommand, topic: str, name_server: str) -> str:
    """A topic of eight queues, with a message in each of the last two."""
    assert cli("topics", "create", topic, "--queues", 8, "-n", name_server).code == 0
    for queue_id in (6, 7):
        assert cli("send", topic, "x", "--queue", queue_id, "-n", name_server).code == 0
    return topic


def test_queues_with_unread_messages_become_read_only_and_can_be_removed_after_consumption(
    cli: RunCommand, wide: str, name_server: str
) -> None:
    """The first run ends the writing and says what waits; the second, after the group has consumed it, the reading."""
    where = ("-n", name_server)
    assert cli("consume", wide, "-g", "Early", "--count", 1, "--from", "first", *where).code == 0
    refused = cli("topics", "create", wide, "--queues", 4, "--yes", *where)
    assert refused.code == 1
    assert "1 message in queues broker-a:" in refused.err
    assert "not consumed by Early" in refused.err
    assert "are now read-only" in refused.err
    assert numbers(cli, wide, name_server) == (8, 4)
    shown = cli("topics", "show", wide, *where, "--json")
    assert (shown.json["waiting_unread"], shown.err) == (0, ""), "they are still read"
    assert [queue["queue_id"] for queue in shown.json["queues"]] == [0, 1, 2, 3, 6, 7]
    assert cli("consume", wide, "-g", "Early", "--count", 1, "--from", "first", *where).code == 0
    done = cli("topics", "create", wide, "--queues", 4, "--yes", *where)
    assert (done.code, done.err) == (0, "")
    assert numbers(cli, wide, name_server) == (4, 4)
    assert cli("topics", "show", wide, *where).err == "", "nothing waits there"


def test_queues_with_unread_messages_are_removed_only_with_the_option_force(
    cli: RunCommand, wide: str, name_server: str
) -> None:
    """Consumers may come later; --force leaves it to nobody, and then it is shown."""
    where = ("-n", name_server)
    refused = cli("topics", "create", wide, "--queues", 4, "--yes", *where)
    assert refused.code == 1
    assert "2 messages in queues broker-a:6 to 7, which no group has ever read" in refused.err
    assert numbers(cli, wide, name_server) == (8, 4)
    assert cli("topics", "create", wide, "--queues", 4, "--force", *where).code == 0
    assert numbers(cli, wide, name_server) == (4, 4)
    until_s = time.monotonic() + 10
    shown = cli("topics", "show", wide, *where, "--json")
    while not shown.json["waiting_unread"]:  # the broker registers what it has beside its answer
        assert time.monotonic() < until_s
        shown = cli("topics", "show", wide, *where, "--json")
    assert shown.json["waiting_unread"] == 2
    assert [queue["waiting_unread"] for queue in shown.json["queues"]] == [0, 0, 0, 0, 1, 1]
    assert "2 messages in queues broker-a:6 to 7, which no group has ever read: nobody reads these queues" in shown.err
    assert "waits where nobody reads" in cli("topics", "show", wide, *where).out
    alarms = [one for one in cli("status", *where, "--json").json["alarms"] if one["subject"] == wide]
    assert [(one["id"], one["value"]) for one in alarms] == [("topic.unread_queues", 2)]
    assert "topic.unread_queues" in cli("status", *where).out
    assert cli("topics", "create", wide, "--queues", 8, *where).code == 0
    assert all(one["subject"] != wide for one in cli("status", *where, "--json").json["alarms"])


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 1, (8, 4)), ("n\n", 1, (8, 8)), ("", 1, (8, 8)), (None, 2, (8, 8))]
)
def test_removing_queues_asks_for_confirmation(
    cli: RunCommand,
    wide: str,
    name_server: str,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    code: int,
    left: tuple[int, int],
) -> None:
    """Where nobody can answer it names the option that says so."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer) if answer is not None else io.StringIO())
    outcome = cli("topics", "create", wide, "--queues", 4, "-n", name_server)
    assert outcome.code == code, outcome.err
    assert numbers(cli, wide, name_server) == left
    if answer is None:
        assert "loses queues broker-a:4 to 7" in outcome.err
        assert "--yes" in outcome.err


def test_adding_queues_asks_for_no_confirmation(cli: RunCommand, wide: str, name_server: str) -> None:
    """Nothing is hidden by them; and a topic that is empty beyond its new number shrinks in one step."""
    assert cli("topics", "create", wide, "--queues", 12, "-n", name_server).code == 0
    assert numbers(cli, wide, name_server) == (12, 12)
    assert cli("topics", "create", wide, "--queues", 8, "--yes", "-n", name_server).code == 0
    assert numbers(cli, wide, name_server) == (8, 8)
