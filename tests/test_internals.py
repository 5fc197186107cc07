"""Docstrings point to the pages about the internals: what these say of bytes is read back from bytes, no pointer dangles."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import flintmq
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.log.store_checkpoint import StoreCheckpoint
from flintmq.core.record import layout
from flintmq.core.record import record as rec
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.queue_unit import FILLER_SIZE, UNIT, UNIT_BYTES
from flintmq.core.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintmq.dispatchers.consume_queue.consume_queue import ConsumeQueue
from flintmq.dispatchers.consume_queue.consume_queue_ext import ConsumeQueueExt
from flintmq.dispatchers.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, IndexFile
from flintmq.dispatchers.spark_feed import feed_file
from flintmq.plugins.replication.streams import FrameType, plain_pieces

ROOT: Final = Path(str(flintmq.__file__)).resolve().parent
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")])
FORMAT: Final = ROOT / "docs" / "internals" / "store-format.md"
_NUMBERS: Final = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}

Row = tuple[str, str, str, str]
"""Name, offset, size and type of a field, as the page has them."""
Value = int | bytes


# --- what the page says ---


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def layouts(text: str) -> dict[str, tuple[list[tuple[str, str]], list[Row]]]:
    """By the section's heading and the number of its layout: the diagram's (name, size) and the table's rows."""
    found: dict[str, tuple[list[tuple[str, str]], list[Row]]] = {}
    heading, drawn = "", []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("#"):
            heading, drawn = line.lstrip("# "), []
        elif line.startswith("+--") and at + 3 < len(lines) and lines[at + 3].startswith("+--"):
            drawn += zip(_cells(lines[at + 1]), _cells(lines[at + 2]), strict=True)
        elif line.startswith("| field | offset | size | type |"):
            rows: list[Row] = []
            for row in lines[at + 2 :]:
                if not row.startswith("|"):
                    break
                name, offset, size, kind, _meaning = _cells(row)
                rows.append((name, offset, size, kind))
            key, number = heading, 1
            while key in found:
                number += 1
                key = f"{heading} {number}"
            found[key] = (drawn, rows)
            drawn = []
    return found


LAYOUTS: Final = layouts(FORMAT.read_text(encoding="utf-8"))


def read_by_page(layout: str, data: bytes | memoryview, at: int = 0) -> tuple[dict[str, Value], int]:
    """The fields of a piece of data as the page describes them, and where they end."""
    begin = at
    fields: dict[str, Value] = {}
    for name, offset, size, kind in LAYOUTS[layout][1]:
        if size == "8/20":
            bit = BORN_HOST_V6 if name == "bornHost" else STORE_HOST_V6
            length = 20 if int(fields["sysFlag"]) & bit else 8
        else:
            length = int(size) if size.isdigit() else int(fields[size])
        shifted = sum(isinstance(value, bytes) and len(value) == 20 for value in fields.values()) * 12
        if offset.isdigit():
            assert at - begin == int(offset) + shifted, f"{layout}: {name} is said to be at {offset}"
        piece = bytes(data[at : at + length])
        assert len(piece) == length, f"{layout}: {name} reaches beyond the data"
        if kind == "bytes":
            fields[name] = piece
        else:
            assert struct.calcsize(_NUMBERS[kind]) == length, f"{layout}: {name} is no {kind} of {size} bytes"
            (fields[name],) = struct.unpack(">" + _NUMBERS[kind], piece)
        at += length
    return fields, at - begin


def test_the_diagram_and_the_table_of_each_layout_in_the_documentation_list_the_same_fields() -> None:
    """Each layout stands twice on the page, to be seen and to be read."""
    assert len(LAYOUTS) >= 12
    for name_of, (drawn, rows) in LAYOUTS.items():
        assert drawn == [(name, size) for name, _offset, size, _kind in rows], name_of


# --- what the code writes ---


def _record(*, v6: bool) -> tuple[bytes, dict[str, Value]]:
    born = bytes(range(16)) + b"\0\0\x0a\x0b" if v6 else b"\x0a\0\0\x07\0\0\x0a\x0b"
    store = b"\x0a\0\0\x08\0\0\x2a\x9f"
    message = rec.MessageExtBrokerInner(
        topic="Orders",
        queue_id=3,
        body=b"a body",
        properties={"TAGS": "A"},
        properties_bytes=b"TAGS\x01A",
        born_timestamp_ms=1_700_000_000_001,
        born_host=born,
        store_host=store,
        flag=7,
        sys_flag=8,
        reconsume_times=2,
        prepared_transaction_offset_bytes=4_096,
    )
    size = rec.record_size(message)
    data = b"".join(rec.encode_record(message, size, 41, 8_192, 1_700_000_000_002))
    return data, {
        "size": len(data),
        "magic": rec.MAGIC_V1,
        "bodyCrc": zlib.crc32(b"a body") & 0x7FFFFFFF,
        "queueId": 3,
        "flag": 7,
        "queueOffset": 41,
        "physicalOffset": 8_192,
        "sysFlag": 8 | (BORN_HOST_V6 if v6 else 0),
        "bornTimestamp": 1_700_000_000_001,
        "bornHost": born,
        "storeTimestamp": 1_700_000_000_002,
        "storeHost": store,
        "reconsumeTimes": 2,
        "preparedOffset": 4_096,
        "bodyLength": 6,
        "body": b"a body",
        "topicLength": 6,
        "topic": b"Orders",
        "propertiesLength": 6,
        "properties": b"TAGS\x01A",
    }


@pytest.mark.parametrize("v6", [False, True])
def test_the_layout_of_a_record_equals_the_documentation(v6: bool) -> None:
    """All other files of a store are made from records."""
    data, expected = _record(v6=v6)
    assert read_by_page("Commit log record", data) == (expected, len(data))


def test_the_field_table_of_a_record_in_the_documentation_equals_the_fields_in_the_code() -> None:
    """There is one table in the code; the page says the same fields, places and sizes."""
    rows = []
    for field in layout.FIELDS:
        first, *rest = field.name.split("_")
        name = first + "".join(word.capitalize() for word in rest)
        at = layout.HEAD_AT.get(field.name)
        if field.kind == "bytes":
            length, *more = field.length.split("_")
            rows.append((name, "88" if name == "body" else "…", length + "".join(map(str.capitalize, more)), "bytes"))
        elif field.kind == "host":
            rows.append((name, str(at), "8/20", "bytes"))
        else:
            rows.append((name, "…" if at is None else str(at), str(field.size_bytes), field.kind))
    assert LAYOUTS["Commit log record"][1] == rows


def test_the_documentation_gives_the_magic_numbers_and_the_minimum_record_size_used_by_the_code() -> None:
    """Magics and the smallest record are quoted in the text."""
    text = FORMAT.read_text(encoding="utf-8")
    for magic in (rec.MAGIC_V1, rec.MAGIC_V2, rec.MAGIC_BLANK):
        assert f"0x{magic:08X}" in text
    assert f"has {rec.RECORD_MIN_BYTES} bytes" in text
    assert f"`(0, {FILLER_SIZE}, 0)`" in text


def test_blank_records_and_batched_messages_have_the_documented_layouts() -> None:
    """A blank ends each log file, and batch sends consist of such items."""
    assert read_by_page("Blank", rec.encode_blank(100)) == ({"remaining": 100, "magic": rec.MAGIC_BLANK}, 8)
    body = encode_batch([BatchItem(9, b"one", b"K\x01V"), BatchItem(0, b"", b"")])
    fields, size = read_by_page("Batch item", body)
    assert fields == {
        "size": size,
        "magic": 0,
        "bodyCrc": fields["bodyCrc"],
        "flag": 9,
        "bodyLength": 3,
        "body": b"one",
        "propertiesLength": 3,
        "properties": b"K\x01V",
    }
    assert size + read_by_page("Batch item", body, size)[1] == len(body)


def test_the_layout_of_a_queue_unit_equals_the_documentation(tmp_path: Path) -> None:
    """A unit must have exactly twenty bytes for each message."""
    queue = ConsumeQueue(OS_DISK, tmp_path, "Orders", 3, 6_000)
    queue.put([UNIT.pack(8_192, 120, -65)], 0, 8_312)
    data = next((tmp_path / "Orders" / "3").iterdir()).read_bytes()
    expected = {"physicalOffset": 8_192, "size": 120, "tagsCode": -65}
    assert read_by_page("Consume queue", data) == (expected, UNIT_BYTES)


def test_the_layout_of_an_extension_unit_equals_the_documentation(tmp_path: Path) -> None:
    """The page describes the bytes to which an address in a queue points."""
    ext = ConsumeQueueExt(OS_DISK, tmp_path, "Orders", 3, 4_096)
    ext.put([_request(bit_map=b"\x05\x06")])
    data = next((tmp_path / "Orders" / "3").iterdir()).read_bytes()
    ext.close()
    expected = {"size": 22, "tagsCode": 65, "msgStoreTime": 1_000, "bitMapSize": 2, "bitMap": b"\x05\x06"}
    assert read_by_page("Consume queue extension", data) == (expected, 22)


def _request(bit_map: bytes) -> DispatchRequest:
    return DispatchRequest(
        topic="Orders",
        queue_id=3,
        queue_offset=0,
        commit_log_offset_bytes=0,
        message_size_bytes=100,
        tags_code=65,
        store_timestamp_ms=1_000,
        keys="",
        uniq_key="",
        sys_flag=0,
        prepared_transaction_offset_bytes=0,
        properties={},
        bit_map=bit_map,
    )


def test_the_layout_of_an_index_file_equals_the_documentation(tmp_path: Path) -> None:
    """The file consists of a header, slots and entries, in this order."""
    file = IndexFile(OS_DISK, tmp_path / "index", 10, 20, create=True)
    file.put([(23, 8_192, 5_000), (33, 8_300, 9_000)])
    file.sync()
    data = (tmp_path / "index").read_bytes()
    file.close()
    header = {
        "beginTimestamp": 5_000,
        "endTimestamp": 9_000,
        "beginPhyOffset": 8_192,
        "endPhyOffset": 8_300,
        "hashSlotCount": 1,
        "indexCount": 3,
    }
    assert read_by_page("Index header", data) == (header, HEADER_BYTES)
    slot = HEADER_BYTES + 3 * SLOT_BYTES
    assert read_by_page("Index slot", data, slot) == ({"newestEntry": 2}, SLOT_BYTES)
    entry = HEADER_BYTES + 10 * SLOT_BYTES + 2 * ENTRY_BYTES
    expected = {"keyHash": 33, "physicalOffset": 8_300, "seconds": 4, "previousEntry": 1}
    assert read_by_page("Index entry", data, entry) == (expected, ENTRY_BYTES)


def test_the_layout_of_the_checkpoint_equals_the_documentation(tmp_path: Path) -> None:
    """A wrong order of its times would make a recovery begin too late."""
    checkpoint = StoreCheckpoint(OS_DISK, tmp_path / "checkpoint")
    checkpoint.physic_msg_timestamp_ms = 1
    checkpoint.logics_msg_timestamp_ms = 2
    checkpoint.index_msg_timestamp_ms = 3
    checkpoint.flush()
    data = (tmp_path / "checkpoint").read_bytes()
    checkpoint.close()
    expected = {"physicMsgTimestamp": 1, "logicsMsgTimestamp": 2, "indexMsgTimestamp": 3}
    assert read_by_page("Checkpoint", data) == (expected, 24)
    assert data[24:] == bytes(4_096 - 24)


def test_the_layout_of_the_replication_stream_equals_the_documentation() -> None:
    """RocketMQ's brokers read these bytes."""
    (report,) = plain_pieces(FrameType.HELD, 77)
    assert read_by_page("Replication stream", report) == ({"maxPhysicalOffset": 77}, 8)
    header, _ = plain_pieces(FrameType.DATA, 77, 0, b"12345")
    assert read_by_page("Replication stream 2", header) == ({"physicalOffset": 77, "size": 5}, 12)


def test_the_layout_of_the_spark_feed_file_equals_the_documentation() -> None:
    """Authors of other programs read this file with the help of the page."""
    marks = feed_file.FeedMarks(
        state=feed_file.FeedState.RUNNING,
        epoch=4,
        min_offset_bytes=10,
        dispatched_offset_bytes=20,
        flushed_offset_bytes=30,
        confirmed_offset_bytes=40,
        written_at_ms=50,
    )
    data = feed_file.encode_feed(marks, 9)
    expected = {
        "magic": feed_file.FEED_MAGIC,
        "version": feed_file.FEED_VERSION,
        "state": 1,
        "sequence": 9,
        "epoch": 4,
        "minOffset": 10,
        "dispatched": 20,
        "flushed": 30,
        "confirmed": 40,
        "writtenAt": 50,
        "crc": zlib.crc32(data[:56]),
        "sequenceAgain": 9,
    }
    assert read_by_page("Extras in flint/", data) == (expected, feed_file.FEED_BYTES)


# --- requests ---


def test_the_protocol_page_lists_every_answered_request_code_exactly_once() -> None:
    """The page sorts the codes; the table of all of them is made from the code."""
    page = (ROOT / "docs" / "internals" / "protocol.md").read_text(encoding="utf-8")
    section = page.split("\n## Request codes\n")[1].split("\n## ")[0]
    themed: list[int] = []
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| theme"):
            for first, last in re.findall(r"(\d+)(?: to (\d+))?", _cells(line)[1]):
                themed += range(int(first), int(last or first) + 1)
    table = (ROOT / "docs" / "request-codes.md").read_text(encoding="utf-8")
    rows = [_cells(line) for line in table.splitlines() if re.match(r"\| \d+ \|", line)]
    answered = [int(row[0]) for row in rows if row[2].strip("`") not in ("", "not supported") or row[3] == "yes"]
    assert sorted(themed) == sorted(set(themed))
    assert sorted(themed) == sorted(answered)


# --- links between pages ---

_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def headings_of(page: Path) -> list[str]:
    """The headings of a page, as written."""
    return _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def _broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _hash, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            yield f"{page.relative_to(ROOT)}: {link} is not there"
        elif anchor and anchor not in map(anchor_of, headings_of(target)):
            yield f"{page.relative_to(ROOT)}: {link} names no heading"


def test_every_link_between_documentation_pages_has_an_existing_target() -> None:
    """A page that was renamed, or a heading, leaves its readers behind."""
    assert len(PAGES) > 20
    assert [broken for page in PAGES for broken in _broken_links(page)] == []


# --- pointers from the code ---

_OUTSIDE: Final = re.compile(
    r"\b(?:algorithms|store-format|protocol|reliability|spark|hotpath|packaging) \d+(?:\.\d+)?\b"
    r"|\b[Rr]eference: (?:algorithms|store-format|protocol|reliability|spark|hotpath|packaging)\b"
    r"|\.\./shared/reference\b"
)
_PAGE: Final = re.compile(
    r"\b((?:docs/(?:internals/)?[a-z-]+|SECURITY|ARCHITECTURE|CONTRIBUTING)\.md)(?:, ([A-Z].{0,60}))?"
)


_JOINT: Final = re.compile(r"[ \t]*\n[ \t]*(?:#:?[ \t]*)?")


def on_one_line(source: str) -> str:
    """A source with its line ends, indents and comment marks as single blanks: a pointer may stand on two lines."""
    return _JOINT.sub(" ", source)


def dangling(text: str, headings: Callable[[str], list[str] | None]) -> Iterator[str]:
    """What a text points to that is not there; ``headings`` gives those of a page, None where there is no such page."""
    yield from _OUTSIDE.findall(text)
    for page, rest in _PAGE.findall(text):
        known = headings(page)
        if known is None:
            yield page
        elif rest and page.startswith("docs/internals/") and not any(rest.startswith(one) for one in known):
            yield f"{page}, {rest[:40]}"


def _headings(page: str) -> list[str] | None:
    return headings_of(ROOT / page) if (ROOT / page).exists() else None


_SOURCES: Final = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if not {".venv", "build", "dist"} & set(path.relative_to(ROOT).parts) and path != Path(__file__).resolve()
]


def test_every_documentation_page_and_section_cited_in_the_source_code_exists() -> None:
    """A docstring that cites a page outside the repository, or a section that was renamed, explains nothing."""
    assert len(_SOURCES) > 300
    seen = {page: headings_of(ROOT / page) for page in map(str, (path.relative_to(ROOT) for path in PAGES))}
    broken = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in _SOURCES
        for what in dangling(on_one_line(path.read_text(encoding="utf-8")), seen.get)
    ]
    assert broken == []


@pytest.mark.parametrize(
    "text",
    [
        "How it waits (reference: algorithms 7).",
        "As stored (store-format 2.1).",
        "Found in ../shared/reference/spark.md.",
        "See docs/internals/store-format.md, Consume cue.",
        "See docs/no-such-page.md.",
    ],
)
def test_the_check_of_references_finds_a_reference_to_a_missing_page(text: str) -> None:
    """The check of all references would pass if its search found none."""
    assert list(dangling(text, _headings))


def test_the_check_of_references_accepts_a_reference_to_an_existing_section() -> None:
    """It may stand in the middle of a sentence or continue on the next line."""
    for source in (
        "(docs/internals/store-format.md, Consume\n    queue), of",
        "# see docs/internals/protocol.md, JSON\n# dialect",
    ):
        assert list(dangling(on_one_line(source), _headings)) == []
