"""Text of others reaches a terminal as text; what was typed, and what stdout can write, depends on no locale."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys

import pytest

from flintmq.remoting.client import Message, Producer

from .conftest import RunCommand

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\u2028c\r\nd"
STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def command(*arguments: object, **environment: str) -> tuple[int, bytes, bytes]:
    """Run a command as a process of its own, as a shell does."""
    cleared = {name: text for name, text in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    words = [one if isinstance(one, bytes) else str(one) for one in (sys.executable, "-m", "flintmq", *arguments)]
    done = subprocess.run(words, env=cleared | environment, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def sent(name_server: str, topic: str, body: bytes) -> None:
    async def send() -> None:
        async with Producer("p", name_server) as producer:
            message = Message(topic, body, tags="t\x1b[1m", keys="k\x9b\u202e", properties={"p\x1b": HOSTILE})
            await producer.send(message)

    asyncio.run(send())


def test_control_characters_in_messages_are_escaped_in_output(cli: RunCommand, name_server: str, topic: str) -> None:
    sent(name_server, topic, HOSTILE.encode())
    for arguments in (
        ("consume", topic, "--count", 1),
        ("consume", topic, "--count", 1, "--json"),
        ("consume", topic, "--count", 1, "--group", "reads-hostile"),
        ("query", topic, "--key", "k\x9b\u202e"),
        ("query", topic, "--key", "k\x9b\u202e", "--json"),
        ("query", topic, "--key", "nobody\x1b[2J\x9b"),
        ("topics", "show", "no\x1b[2J\x9b\u202e"),
        ("groups", "show", "no\x1b[2J\x9b\u202e"),
        ("groups", "list"),
        ("status", "--topic", topic),
        ("top", "--once"),
        ("top", "--json"),
        ("no\x1b[2J",),
    ):
        outcome = cli(*arguments, "-n", name_server)
        assert not STEERS.search(outcome.out), arguments
        assert not STEERS.search(outcome.err), arguments
        if "--json" in arguments and arguments[0] in ("consume", "query"):
            assert outcome.json["body"] == HOSTILE
            assert outcome.json["properties"]["p\x1b"] == HOSTILE


def test_a_message_is_printed_as_one_line(cli: RunCommand, name_server: str, topic: str) -> None:
    """Else a body could pass for a message of its own."""
    sent(name_server, topic, b"first\nbroker-a:0:7 ID forged")
    assert len(cli("consume", topic, "-n", name_server, "--count", 1).out.splitlines()) == 1


def test_the_option_raw_prints_exactly_the_sent_bytes(name_server: str, topic: str) -> None:
    body = bytes(range(256)) + HOSTILE.encode()
    sent(name_server, topic, body)
    for arguments in (("consume", topic, "--count", 1), ("query", topic, "--key", "k\x9b\u202e")):
        assert command(*arguments, "--raw", "-n", name_server)[:2] == (0, body + b"\n")
    code, _, error = command("consume", topic, "--raw", "--json", "-n", name_server)
    assert (code, b"one of: --json, --raw" in error) == (2, True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_messages_with_non_ascii_text_can_be_printed_to_a_stdout_of_any_encoding(
    encoding: str, name_server: str, topic: str
) -> None:
    """A member whose output failed counted the message as failed."""
    sent(name_server, topic, "grüße \u4e2d\U0001f600".encode())
    for more in ((), ("--json",), ("--group", f"reads-{encoding}")):
        code, out, error = command(
            *("consume", topic, "--count", 1, "-n", name_server, *more), PYTHONIOENCODING=encoding
        )
        assert (code, error) == (0, b""), more
        assert b"gr" in out
        out.decode(encoding)


@pytest.mark.parametrize(
    "environment", [C_LOCALE, {"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}], ids=["C", "C coerced", "UTF-8"]
)
def test_arguments_are_sent_unchanged_in_every_locale(
    environment: dict[str, str], name_server: str, topic: str
) -> None:
    """Byte by byte in a body; as UTF-8 where the protocol has text."""
    text = "grüße"
    code, _, error = command(
        *("send", topic, text.encode(), b"\xff\xfe", "-n", name_server, "--queue", 0),
        *("--tags", text.encode(), "--keys", text.encode(), "--property", f"{text}={text}".encode()),
        **environment,
    )
    assert (code, error) == (0, b"")
    code, out, _ = command(
        *("consume", topic, "--count", 2, "-n", name_server, "--tags", text.encode(), "--raw"), **environment
    )
    assert (code, out) == (0, text.encode() + b"\n\xff\xfe\n")
    code, out, _ = command("query", topic, "--key", text.encode(), "--json", "-n", name_server, **environment)
    found = json.loads(out.splitlines()[0])
    assert (found["tags"], found["keys"], found["properties"][text]) == (text, [text], text)


def test_a_property_that_is_not_utf_8_is_refused(name_server: str, topic: str) -> None:
    code, _, error = command("send", topic, "x", "--keys", b"a\xff", "-n", name_server, **C_LOCALE)
    assert code == 2
    assert b"--keys" in error
    assert b"UTF-8" in error
