"""A message is printed within bounds of memory and time, whatever is in it, and all of it where that is asked for."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.core.record.record import Record, decode_record
from flintmq.programs.cli import store
from flintmq.programs.cli.main import run_command_line
from flintmq.programs.cli.message_output import message_text, print_message
from flintmq.programs.doctor import export
from flintmq.remoting.client.message import MessageExt, keep_packed
from flintmq.tests.support.costs import memory
from flintmq.tests.support.effort import first
from flintmq.tests.support.hostile_bodies import MIB, hostile_body, hostile_names, hostile_properties, zlib_bomb
from flintmq.tests.support.records import RecordFields, encode_all


def message_with(body: bytes, sys_flag: int = 0, properties: dict[str, str] | None = None) -> MessageExt:
    text = "".join(f"{name}\x01{value}\x02" for name, value in (properties or {}).items())
    found = MessageExt("T", body, text.encode(), 0, 0, "b", 0, len(body), 0, sys_flag, 0, b"", 0, b"", 0, 0)
    return keep_packed(found)


class Counted(io.RawIOBase):
    """A stdout that nobody keeps."""

    size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size_bytes += len(data)
        return len(data)


@contextlib.contextmanager
def counting() -> Iterator[Counted]:
    """Have stdout kept by nobody."""
    raw = Counted()
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")):
        yield raw


@pytest.mark.parametrize("name", first(["nested lists", "16 MiB of zeros"], hostile_names()))
@pytest.mark.parametrize("form", ["text", "json", "raw"])
def test_printing_a_malicious_message_body_takes_bounded_memory(name: str, form: str) -> None:
    """A compressed one may get 64 MiB long, and none of it is in memory at once."""
    message = message_with(*hostile_body(name))
    with counting() as out, memory() as cost:
        print_message(message, form)
    assert cost.peak_bytes < 16 * MIB
    assert 0 < out.size_bytes < (MIB if form == "text" else 512 * MIB)


@pytest.mark.slow
def test_formatting_a_malicious_message_as_a_text_line_takes_at_most_50_ms() -> None:
    """It is made in the loop of a consumer."""
    for name in hostile_names():
        message = message_with(*hostile_body(name), hostile_properties())
        tries_s = []
        for _ in range(3):
            begin_s = time.thread_time()
            message_text(message)
            tries_s.append(time.thread_time() - begin_s)
        assert min(tries_s) < 0.05, name


def test_json_output_and_raw_output_contain_the_whole_message_body(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Part by part: a character or a group of base64 may lie on a border of two."""
    text = "x" + "ü" * 300_000
    print_message(message_with(text.encode()), "json")
    assert json.loads(capsysbinary.readouterr().out)["body"] == text
    print_message(message_with(zlib_bomb(MIB), 0x301), "json")
    assert json.loads(capsysbinary.readouterr().out)["body"] == "\0" * MIB
    body = b"\xff" * 200_001
    print_message(message_with(body), "json")
    assert base64.b64decode(json.loads(capsysbinary.readouterr().out)["body_base64"]) == body
    print_message(message_with(zlib_bomb(MIB), 0x301), "raw")
    assert capsysbinary.readouterr().out == bytes(MIB) + b"\n"


def test_a_shortened_message_line_says_that_it_was_shortened() -> None:
    assert message_text(message_with(b"x" * 70_000)).endswith("x… (cut: --json and --raw print all of it)")
    assert message_text(message_with("ü".encode() * 50_000 + b"x")).count("ü") == 32 * 1024
    assert message_text(message_with(b"x")).endswith(" x")


def test_a_body_that_cannot_be_decompressed_is_printed_as_stored(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """With the reason, in every form but the raw one, which has only bytes."""
    message = message_with(b"junk", 0x301)
    assert "(cannot be read: the body is not a zlib stream" in message_text(message)
    print_message(message, "json")
    found = json.loads(capsysbinary.readouterr().out)
    assert found["body_base64"] == "anVuaw=="
    assert found["body_error"].startswith("the body is not a zlib stream")
    print_message(message, "raw")
    assert capsysbinary.readouterr().out == b"junk\n"


def records_of(bodies: list[str]) -> Iterator[Record]:
    for at, name in enumerate(bodies):
        body, sys_flag = hostile_body(name)
        log, _ = encode_all([RecordFields(body=body, sys_flag=sys_flag, queue_offset=at)])
        yield decode_record(memoryview(log), 0)


def test_store_cat_exports_large_messages_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As lines of JSON, and as Parquet, of which thousands of rows are written at a time."""
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    names = ["the longest list", "zeros", "controls", "64 MiB of zeros"] * 4

    def messages(*_: object, **__: object) -> Iterator[Record]:
        return records_of(names)

    monkeypatch.setattr(store, "messages", messages)
    monkeypatch.setattr(export, "messages", messages)
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    for arguments in ((), ("--parquet", tmp_path / "out.parquet")):
        with counting() as out, memory() as cost:
            assert run_command_line(["store", "cat", str(tmp_path / "store"), *map(str, arguments)]) == 0
        assert cost.peak_bytes < 64 * MIB, arguments
        assert (out.size_bytes > 64 * MIB) is (not arguments)
