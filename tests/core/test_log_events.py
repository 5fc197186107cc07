"""Programs that watch a log look for ids, not for words: every line at INFO and above has one."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.client_log import client_log
from flintmq.core.log_events import EVENTS, EVENTS_OF, LOGGERS, JsonFormatter, name_events
from flintmq.programs.cli.log_lines import OwnOutput

ROOT = Path(str(flintmq.__file__)).resolve().parent
EVENT = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")
VALUE = re.compile(r"%[0-9.+]*[sdgrf]")
AMBIGUOUS = {text for _logger, text in EVENTS_OF}


@pytest.fixture(scope="module")
def found() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import log_events
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return log_events


def test_every_line_has_an_id(found: Any) -> None:
    lines = found.lines(ROOT)
    assert len(lines) > 100
    without = [line for line in lines if line.text not in EVENTS and line.text not in AMBIGUOUS]
    assert not without, "give it a line in core/log_events.py"
    written = {line.text for line in lines}
    assert not [text for text in (*EVENTS, *AMBIGUOUS) if text not in written], "nobody logs it any more"


def test_every_value_has_a_name(found: Any) -> None:
    for text, told in (*EVENTS.items(), *((text, told) for (_logger, text), told in EVENTS_OF.items())):
        event, *names = told.split()
        assert EVENT.fullmatch(event), text
        assert len(names) == len(set(names)) == len(VALUE.findall(text)), text


def test_every_logger_is_known(found: Any) -> None:
    of_lines = {name for name in found.loggers(ROOT) if name.startswith("flintmq.")}
    assert of_lines <= {*LOGGERS, "flintmq.cli"} | {
        name for name in of_lines if name.startswith("flintmq.programs.cli")
    }
    assert {logger for logger, _text in EVENTS_OF} <= set(LOGGERS)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a program's own handler at the root of all loggers gets as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def test_a_record_carries_its_event_whoever_handles_it(written: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    name_events()
    name_events()
    logging.getLogger("flintmq.store").critical("%s", Path("a disk\nis gone"))
    record: Any = caplog.records[-1]
    assert (record.event, record.fields) == ("store.fenced", {"reason": Path("a disk\nis gone")})
    client_log("flintmq.broker").warning(
        "%s (%s) asked for queue offset %d of %s queue %d and is sent to %d", "g", "1.2.3.4:5\n", 9, "T", 0, 3
    )
    logging.getLogger("flintmq.store").warning("what no table knows: %s", 1)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("flintmq.plugins").exception("%s raised in %s", "plugin 'a'", "b")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["store.fenced", "pull.offset_moved", "", "plugin.failed"]
    assert lines[0]["fields"] == {"reason": "a disk\\nis gone"}
    assert lines[1]["fields"]["asked_offset"] == 9
    assert lines[1]["message"].startswith("g (1.2.3.4:5\\n) asked for")
    assert lines[2]["fields"] == {}
    assert "ValueError: why" in lines[3]["error"]
    assert {"time", "level", "logger"} <= lines[0].keys()
    assert all(
        logging.getLogger(name).filters.count(one) == 1 for name in LOGGERS for one in logging.getLogger(name).filters
    )


def test_a_broker_names_its_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A program that embeds it does nothing for that."""
    caplog.set_level(logging.INFO, "flintmq")
    config = flintmq.load_config(None, [f"store.path={tmp_path}", "listen.port=0", "listen.vip=false"], {})
    with flintmq.Broker(config) as broker:
        broker.put([flintmq.Message("T", b"x")])
    records: list[Any] = [record for record in caplog.records if record.name.startswith("flintmq.")]
    events = {record.event: record.fields for record in records}
    assert events["broker.listens"]["address"] == broker.address
    assert events["topic.created"]["topic"] == "T"
    assert "broker.stopped" in events
    assert "" not in events


HOSTILE = "a\n2026-01-01 00:00:00,000 INFO flintmq.broker: all is well\r\x1b[2J\x9b31m\u202e\u2028"
STEERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


@pytest.mark.parametrize("logger", LOGGERS)
def test_no_value_forges_a_line(logger: str, caplog: pytest.LogCaptureFixture) -> None:
    """In no line of any logger: which values come from peers changes with every feature."""
    name_events()
    caplog.set_level(logging.DEBUG, logger)
    for text in (*EVENTS, *AMBIGUOUS, "what no table knows: %s"):
        values = [HOSTILE if one.endswith(("s", "r")) else 7 for one in VALUE.findall(text)]
        logging.getLogger(logger).error(text, *values)
        assert not STEERS.search(caplog.messages[-1]), text
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger(logger).exception("failed")
    told = logging.Formatter("%(levelname)s %(message)s").format(caplog.records[-1])
    assert [line for line in told.split("\n") if not line.startswith("  ")] == ["ERROR failed"]
    assert not STEERS.search(told.replace("\n", ""))


def test_a_library_forges_no_line_in_our_output() -> None:
    """asyncio's lines are of several lines, and tell of errors in whose text a peer may have a part."""
    output = OwnOutput()
    output.name_lines("")
    for name in ("asyncio", "flintmq.test.without_a_filter"):
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            record = logging.LogRecord(name, logging.ERROR, "f", 1, "task failed\n%s", (HOSTILE,), sys.exc_info())
        told = output.format(record).split("\n")
        assert all(line.startswith("  ") for line in told[1:])
        assert not [line for line in told if STEERS.search(line)]
