"""``send``, ``consume`` and ``query``: what goes in comes out, in both kinds of output."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from flintmq.remoting.client import Message, Producer
from flintmq.tests.support.damage import FALSE_ZLIB, send_flagged

from .conftest import RunCommand


def test_a_message_sent_with_every_option_is_consumed_unchanged(cli: RunCommand, name_server: str, topic: str) -> None:
    """Every option of send must arrive at a consumer."""
    sent = cli(
        *("send", topic, "grüße", "-n", name_server, "--tags", "A", "--keys", "k1 k2"),
        *("--property", "colour=red", "--queue", 1, "--json"),
    ).json
    assert sent["status"] == "SEND_OK"
    assert (sent["queue_id"], sent["queue_offset"]) == (1, 0)
    came = cli("consume", topic, "-n", name_server, "--count", 1, "--json").json
    assert came["body"] == "grüße"
    assert (came["tags"], came["keys"], came["queue_id"]) == ("A", ["k1", "k2"], 1)
    assert came["properties"]["colour"] == "red"
    assert (came["msg_id"], came["offset_msg_id"]) == (sent["msg_id"], sent["offset_msg_id"])


def test_brackets_in_a_body_are_printed_as_text(cli: RunCommand, name_server: str, topic: str) -> None:
    """Rich takes brackets for markup: a body's are nobody's markup."""
    assert "SEND_OK" in cli("send", topic, "[bold]x[/bold]", "-n", name_server).out
    assert "[bold]x[/bold]" in cli("consume", topic, "-n", name_server, "--count", 1).out


def test_a_binary_body_is_printed_as_base64(cli: RunCommand, name_server: str, topic: str, tmp_path: Path) -> None:
    """Bodies are bytes; JSON holds those that are no text as base64."""
    (tmp_path / "f").write_bytes(b"\xff\x00")
    assert cli("send", topic, "--file", tmp_path / "f", "-n", name_server).code == 0
    assert cli("consume", topic, "-n", name_server, "--count", 1, "--json").json["body_base64"] == "/wA="
    assert "base64:/wA=" in cli("consume", topic, "-n", name_server, "--count", 1).out


def test_the_send_command_can_send_each_line_of_a_file_as_one_message(
    cli: RunCommand, name_server: str, topic: str, tmp_path: Path
) -> None:
    """A file of lines is the usual way to load test data, in its order."""
    (tmp_path / "f").write_text("one\ntwo\nthree\n")
    assert cli("send", topic, "--file", tmp_path / "f", "--lines", "--queue", 0, "-n", name_server).code == 0
    came = cli("consume", topic, "-n", name_server, "--count", 3, "--json").json_lines
    assert [message["body"] for message in came] == ["one", "two", "three"]


@pytest.mark.parametrize("batch", [1, 16])
def test_send_with_the_option_count_sends_the_given_number_of_generated_messages(
    cli: RunCommand, name_server: str, topic: str, batch: int
) -> None:
    """Bulk sends say how many and how fast, and lose nothing."""
    summary = cli("send", topic, "--size", 64, "--count", 100, "--batch", batch, "-n", name_server, "--json").json
    assert summary["messages"] == 100
    assert summary["requests"] == -(-100 // batch)
    assert summary["body_bytes"] == 6400
    assert summary["messages_per_s"] > 0
    assert cli("topics", "show", topic, "-n", name_server, "--json").json["messages"] == 100


def test_consume_with_a_group_continues_at_its_offset(cli: RunCommand, name_server: str, topic: str) -> None:
    """What was printed is consumed, what was not is not: --count must be exact."""
    bodies = [str(n) for n in range(7)]
    cli("send", topic, *bodies, "--queue", 0, "-n", name_server)
    group = f"g_{topic}"
    first = cli("consume", topic, "-g", group, "--count", 3, "-n", name_server, "--json").json_lines
    rest = cli("consume", topic, "-g", group, "--count", 4, "-n", name_server, "--json").json_lines
    assert [message["body"] for message in [*first, *rest]] == bodies
    shown = cli("groups", "show", group, topic, "-n", name_server, "--json").json
    assert shown["lag"] == 0


def test_consume_without_a_group_creates_no_group(cli: RunCommand, name_server: str, topic: str) -> None:
    """Without a group somebody only looks: again and again, and no group appears."""
    cli("send", topic, "x", "-n", name_server)
    before = cli("groups", "list", "--all", "-n", name_server, "--json").json
    for _ in range(2):
        assert cli("consume", topic, "--count", 1, "-n", name_server).code == 0
    assert cli("groups", "list", "--all", "-n", name_server, "--json").json == before


def test_a_broadcasting_consumer_stores_its_offsets_in_a_local_file(
    cli: RunCommand, name_server: str, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broadcasting member keeps its offsets here, not at the broker."""
    monkeypatch.setenv("HOME", str(tmp_path))
    cli("send", topic, "x", "-n", name_server)
    outcome = cli("consume", topic, "-g", "gb", "--broadcast", "--count", 1, "-n", name_server, "--json")
    assert outcome.json["body"] == "x"
    assert list(tmp_path.rglob("offsets.json"))


def test_the_consume_command_prints_only_messages_with_the_given_tag(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """Choosing by tag and by place is what a look at production needs."""
    first = cli("send", topic, "a", "--tags", "A", "-n", name_server, "--json").json
    cli("send", topic, "b", "--tags", "B", "-n", name_server)
    assert first["status"] == "SEND_OK"
    only = cli("consume", topic, "--tags", "B", "--timeout", "200ms", "-n", name_server, "--json").json_lines
    assert [message["body"] for message in only] == ["b"]
    assert cli("consume", topic, "--from", "last", "--timeout", "100ms", "-n", name_server).out == ""
    everything = cli("consume", topic, "--from", "2001-01-01", "--count", 2, "-n", name_server)
    assert everything.code == 0


def test_consume_exits_with_1_if_fewer_messages_than_requested_arrive_in_time(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """A script that waits for a message learns that it did not come."""
    outcome = cli("consume", topic, "--count", 1, "--timeout", "100ms", "-n", name_server)
    assert outcome.code == 1
    assert outcome.err == "flintmq: error: 0 of 1 messages came within 100ms\n"
    assert cli("consume", topic, "--timeout", "100ms", "-n", name_server).code == 0


def test_query_finds_messages_by_key_and_id(cli: RunCommand, name_server: str, topic: str) -> None:
    """A message is found by key, by the sender's id and by the broker's."""
    sent = cli("send", topic, "x", "--keys", "k9", "-n", name_server, "--json").json
    assert cli("consume", topic, "--count", 1, "-n", name_server).code == 0
    for how in (
        (topic, "--key", "k9"),
        (topic, "--id", sent["msg_id"]),
        (topic, "--id", sent["offset_msg_id"]),
        ("--id", sent["offset_msg_id"]),
    ):
        found = cli("query", *how, "-n", name_server, "--json").json
        assert found["msg_id"] == sent["msg_id"], how
    assert "k9" in cli("query", topic, "--key", "k9", "-n", name_server).out
    missing = cli("query", topic, "--key", "nope", "-n", name_server)
    assert missing.code == 1
    assert "nope" in missing.err


def test_a_query_by_a_client_generated_message_id_requires_the_topic(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """It has as many digits as a broker's id, and an impossible port where that has one; no socket may be asked for it."""
    sender_id = "AC1100010A7C18B4AAC20B4B2AD50000"
    wrong = cli("query", "--id", sender_id, "-n", name_server)
    assert wrong.code == 2
    assert "To query by an id that a producer made, give the topic: flintmq query TOPIC --id ID" in wrong.err
    cli("send", topic, "x", "-n", name_server)
    missing = cli("query", topic, "--id", sender_id, "-n", name_server)
    assert missing.code == 1
    assert missing.err == f"flintmq: error: no message of topic {topic} has the id '{sender_id}'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "T"),
        ("send", "T", "x", "--size", "3"),
        ("send", "T", "x", "--property", "nonsense"),
        ("consume", "T", "--timeout", "soon"),
        ("consume", "T", "--from", "yesterday"),
        ("query", "--key", "k"),
        ("query", "T"),
        ("query", "--id", "xyz"),
        ("topics", "-n", "nonsense"),
    ],
)
def test_wrong_usage_of_message_commands_is_refused(
    cli: RunCommand, name_server: str, arguments: tuple[str, ...]
) -> None:
    """What is wrong is said before, or instead of, asking a broker."""
    where = () if "-n" in arguments else ("-n", name_server)
    outcome = cli(*arguments, *where)
    assert outcome.code == 2, outcome.err
    assert outcome.err.count("\n") == 1


def test_commands_fail_for_an_unknown_queue_or_topic(cli: RunCommand, name_server: str, topic: str) -> None:
    """A place that is not there is named, with those that are."""
    outcome = cli("send", topic, "x", "--queue", 7, "-n", name_server)
    assert outcome.code == 2
    assert "broker-a:0, broker-a:1" in outcome.err
    assert cli("consume", "no_such_topic", "-n", name_server).code == 1
    assert cli("consume", "no_such_topic", "-g", "g", "-n", name_server).code == 1


def test_the_environment_variable_namesrv_addr_sets_the_name_server_address(
    cli: RunCommand, name_server: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's tools take NAMESRV_ADDR: so do these."""
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    assert cli("send", topic, "x").code == 0


def test_the_name_server_option_overrides_the_environment_variable(
    cli: RunCommand, name_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever -n stands: before a command of a group, or behind it."""
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert cli("topics", "list", "-n", name_server).code == 0
    assert cli("topics", "-n", name_server, "list").code == 0
    assert cli("topics", "-n", name_server).code == 0
    assert cli("topics", "list").code == 4


@pytest.mark.parametrize("level", ["0", "19", "-1", "x"])
def test_an_invalid_delay_level_is_refused(cli: RunCommand, name_server: str, topic: str, level: str) -> None:
    """The broker would deliver it at once, or after the longest delay."""
    outcome = cli("send", topic, "x", "--delay-level", level, "-n", name_server)
    assert (outcome.code, "--delay-level" in outcome.err) == (2, True)


def test_consume_prints_the_reason_and_the_stored_bytes_if_a_body_cannot_be_decompressed(
    cli: RunCommand, name_server: str, topic: str
) -> None:
    """With the message's fields and the reason, and with all the others: reading on must not depend on one producer."""

    async def send() -> str:
        async with Producer("p", name_server) as producer:
            queue = (await producer.queues(topic))[0]
            await producer.send(Message(topic, b"first"), queue)
            sent = await send_flagged(producer, Message(topic, b"stored", keys="odd", tags="A"), FALSE_ZLIB)
            await producer.send(Message(topic, b"last"), queue)
            return sent.offset_msg_id

    msg_id = asyncio.run(send())
    reason = "the body is not a zlib stream"
    for more in ((), ("-g", f"g_{topic}")):
        outcome = cli("consume", topic, *more, "-n", name_server, "--count", 3, "--json")
        came = {message.get("body", ""): message for message in outcome.json_lines}
        assert sorted(came) == ["", "first", "last"]
        odd = came[""]
        assert (odd["keys"], odd["tags"], odd["offset_msg_id"]) == (["odd"], "A", msg_id)
        assert base64.b64decode(odd["body_base64"]) == b"stored"
        assert odd["body_error"].startswith(reason)
        assert "body_error" not in came["first"]
    assert cli("groups", "show", f"g_{topic}", topic, "-n", name_server, "--json").json["lag"] == 0
    line = next(
        line for line in cli("consume", topic, "-n", name_server, "--count", 3).out.splitlines() if "odd" in line
    )
    assert f"(cannot be read: {reason}" in line
    assert line.endswith("base64:c3RvcmVk")
    for how in ((topic, "--key", "odd"), ("--id", msg_id)):
        assert cli("query", *how, "-n", name_server, "--json").json["body_error"].startswith(reason)
        shown = cli("query", *how, "-n", name_server).out
        assert reason in shown
        assert "c3RvcmVk" in shown
        assert "odd" in shown
