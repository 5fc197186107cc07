"""Programs that watch a log look for ids, not for words: every line has one."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.client_log import LINES_PER_S
from flintmq.core.log_events import EventLog, JsonFormatter, client_log, event_log
from flintmq.programs.cli.log_lines import OwnOutput

ROOT = Path(str(flintmq.__file__)).resolve().parent
VALUE = re.compile(r"%\((\w+)\)[0-9.]*([a-z])")
SHARED = {
    "client.abandoned",
    "client.not_cancelled",
    "client.not_rebalanced",
    "client.offset_illegal",
    "client.offset_not_stored",
    "client.pull_failed",
    "client.rebalance_failed",
    "client.work_failed",
    "connection.closed",
    "connection.not_accepted",
    "delivery.gone",
    "spark.data_loss",
    "store.empty_file",
    "store.ends_not_noted",
    "store.fenced",
    "store.file_changed",
    "supervisor.printed",
    "table.kv_write_failed",
    "topic.not_on_disk",
    "transaction.not_ended",
}
"""Ids of what several places of the code find out."""


LOGGERS = {
    "flintmq.acl",
    "flintmq.audit",
    "flintmq.broker",
    "flintmq.client",
    "flintmq.config",
    "flintmq.console",
    "flintmq.core.broker.consumers",
    "flintmq.core.broker.groups",
    "flintmq.core.broker.offsets",
    "flintmq.core.broker.topics",
    "flintmq.core.broker.waiting",
    "flintmq.core.route.route_manager",
    "flintmq.flush",
    "flintmq.ha",
    "flintmq.landing",
    "flintmq.log",
    "flintmq.namesrv",
    "flintmq.plugins",
    "flintmq.plugins.delay.schedule",
    "flintmq.plugins.filters.consumer_filter_file",
    "flintmq.plugins.filters.consumer_filters",
    "flintmq.plugins.timer.timer_service",
    "flintmq.plugins.transactions.check",
    "flintmq.plugins.transactions.transactional_messages",
    "flintmq.remoting",
    "flintmq.security",
    "flintmq.spark",
    "flintmq.store",
    "flintmq.supervisor",
    "flintmq.testing",
    "flintmq.tls",
}
"""The names of the loggers, which stand in each line: people filter by them. A module that is renamed keeps that of its log."""


@pytest.fixture(scope="module")
def found() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import log_events
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return log_events


@pytest.fixture(scope="module")
def lines(found: Any) -> list[Any]:
    """Every call of a log in the package."""
    return list(found.lines(ROOT))


def test_every_log_call_has_an_event_id(lines: list[Any]) -> None:
    assert len(lines) > 100
    assert not [(line.place, line.faults) for line in lines if line.faults], "see EventLog in core/log_events.py"
    fields: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for line in lines:
        fields.setdefault((line.event, line.text), set()).add(line.fields)
    assert not [key for key, several in fields.items() if len(several) > 1], "one text, several names for its values"


def test_each_log_event_id_is_used_by_a_single_log_call(lines: list[Any]) -> None:
    """Operators could not tell two calls with the same id from each other."""
    calls = Counter(line.event for line in lines if line.event)
    assert {event for event, count in calls.items() if count > 1} == SHARED


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ('log.info("topic.created", "topic %(topic)s", topic=name)', ""),
        ('log.log(level, "topic.created", "topics at 100%%: %(topic)020d", topic=1, exc_info=True)', ""),
        ('self._log.info(event, "topic %(topic)s", topic=name)', "its id is not a literal"),
        ('log.info("Topic created", "topic %(topic)s", topic=name)', "its id is not a literal"),
        ('log.info("topic.created", f"topic {name}")', "its text is not a literal"),
        ('log.info("topic.created", text, topic=name)', "its text is not a literal"),
        ('log.info("topic.created")', "its text is not a literal"),
        ('log.info("topic.created", "topic %s", name)', "values are not keywords"),
        ('log.info("topic.created", "topic %s")', "its text has places without a name"),
        ('log.info("topic.created", "topic %(topic)s", **values)', "its keywords are not the names"),
        ('log.info("topic.created", "topic %(topic)s", name=name)', "its keywords are not the names"),
        ('log.info("topic.created", "topic %(topic)s", topic=name, extra={})', "its keywords are not the names"),
        ('log.info("topic.created", "%(a)s %(b)s", b=2, a=1)', "its keywords are not the names"),
        ('log.debug("topic.created", "topic %(topic)s")', "its keywords are not the names"),
        ('logging.getLogger("flintmq.x").warning("gone")', "its id is not a literal"),
        ('told = logging.getLogger("flintmq.x"); told.warning("gone")', "its id is not a literal"),
    ],
)
def test_the_source_code_check_finds_log_calls_with_computed_texts_or_unnamed_values(
    found: Any, call: str, fault: str
) -> None:
    """The page, and what programs look for, follow from the calls."""
    (line,) = found.lines_of(ast.parse(call), "x.py")
    assert line.faults == () if not fault else line.faults[0].startswith(fault)


def test_no_module_creates_a_plain_python_logger_instead_of_a_logger_with_event_ids(found: Any) -> None:
    """A plain logger's lines are not escaped, and have no ids."""
    asked = [(maker, name) for maker, name in found.loggers(ROOT) if name.startswith("flintmq.")]
    assert {maker for maker, _name in asked} == {"event_log", "client_log"}
    assert {name for _maker, name in asked} == LOGGERS


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a program's own handler at the root of all loggers gets as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def test_a_log_record_carries_its_event_id_and_named_values_to_every_log_handler(
    written: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    event_log("flintmq.store").critical("store.fenced", "%(reason)s", reason=Path("a disk\nis gone"))
    record: Any = caplog.records[-1]
    assert (record.event, record.fields) == ("store.fenced", {"reason": Path("a disk\nis gone")})
    client_log("flintmq.broker").warning(
        "pull.offset_moved", "%(client)s asked for %(asked_offset)d", client="1.2.3.4:5\n", asked_offset=9
    )
    logging.getLogger("flintmq.store").warning("what has no id: %s", 1)
    try:
        raise ValueError("why")
    except ValueError:
        event_log("flintmq.plugins").exception("plugin.failed", "%(plugin)s raised", plugin="plugin 'a'")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["store.fenced", "pull.offset_moved", "", "plugin.failed"]
    assert lines[0]["fields"] == {"reason": "a disk\\nis gone"}
    assert lines[1]["fields"] == {"client": "1.2.3.4:5\\n", "asked_offset": 9}
    assert lines[1]["message"] == "1.2.3.4:5\\n asked for 9"
    assert (lines[2]["fields"], lines[2]["message"]) == ({}, "what has no id: 1")
    assert "ValueError: why" in lines[3]["error"]
    assert {"time", "level", "logger"} <= lines[0].keys()


@pytest.mark.parametrize(
    ("text", "fields", "line"),
    [
        (
            "half message %(half_offset)d of %(group)s is given up",
            {"half_offset": 7, "group": "g"},
            "half message 7 of g is given up",
        ),
        ("commit log file %(file)020d goes", {"file": 1024}, "commit log file 00000000000000001024 goes"),
        (
            "%(broker)s answers again, after %(duration_s).1f s",
            {"broker": "b", "duration_s": 2.06},
            "b answers again, after 2.1 s",
        ),
        ("it waits %(limit_s)g s for %(event)r", {"limit_s": 0.5, "event": "a'b"}, 'it waits 0.5 s for "a\'b"'),
        (
            "%(text)s and %(level)s, %(msg)s",
            {"text": ("a", 1), "level": {"b": 2}, "msg": None},
            "('a', 1) and {'b': 2}, None",
        ),
        ("90 %% of %(path)s", {"path": "a"}, "90 % of a"),
        ("90 % of the disk", {}, "90 % of the disk"),
    ],
)
def test_a_log_line_with_named_values_has_the_same_text_as_the_line_of_a_plain_python_logger(
    text: str, fields: dict[str, Any], line: str
) -> None:
    """In the text log the id and the names do not show."""
    stream = io.StringIO()
    handler = OwnOutput()
    handler.name_lines("broker-a")
    handler.emit = lambda record: print(handler.format(record), file=stream)  # type: ignore[method-assign]
    plain = logging.getLogger("flintmq.test.lines")
    plain.setLevel(logging.DEBUG)
    plain.addHandler(handler)
    try:
        event_log(plain.name).warning("test.happened", text, **fields)
        plain.warning(re.sub(r"\(\w+\)", "", text), *fields.values())
    finally:
        plain.removeHandler(handler)
    first, second = stream.getvalue().splitlines()
    assert first[23:] == second[23:] == f" WARNING broker-a flintmq.test.lines: {line}"


def test_each_log_line_has_the_text_in_the_documentation(lines: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """People have the page, and scripts that look for its texts."""
    page = (ROOT / "docs" / "log-events.md").read_text()
    caplog.set_level(logging.INFO, "flintmq.test")
    log = event_log("flintmq.test.page")
    for line in lines:
        if line.level != "DEBUG":
            values = {name: f"<{name}>" if kind in "sr" else 7 for name, kind in VALUE.findall(line.text)}
            log.warning(line.event, line.text, **values)
            assert caplog.messages[-1] == (line.unnamed % tuple(values.values()) if values else line.text)
            assert re.search(rf"^\| `{line.event}` \| [A-Z, ]+ \| {re.escape(line.unnamed)} \| ", page, re.MULTILINE), (
                line.place
            )


def test_a_python_log_record_has_the_file_name_and_the_function_name_of_its_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Formats of embedding programs name the file, the line and the function."""
    log = event_log("flintmq.test.place")
    caplog.set_level(logging.DEBUG, "flintmq.test.place")
    for write in (log.debug, log.info, log.warning, log.error, log.critical):
        write("test.happened", "%(what)s has happened", what="it")
    log.log(logging.WARNING, "test.happened", "%(what)s has happened", what="it")
    try:
        raise ValueError("why")
    except ValueError as failure:
        log.exception("test.failed", "%(what)s failed", what="it")
        log.warning("test.failed", "%(what)s failed", what="it", exc_info=failure)
        log.error("test.failed", "it failed", exc_info=False)
    records: list[Any] = caplog.records
    assert {(one.funcName, one.filename) for one in records} == {
        ("test_a_python_log_record_has_the_file_name_and_the_function_name_of_its_caller", "test_log_events.py")
    }
    assert [one.levelname for one in records] == [
        "DEBUG",
        "INFO",
        "WARNING",
        "ERROR",
        "CRITICAL",
        "WARNING",
        "ERROR",
        "WARNING",
        "ERROR",
    ]
    assert [(one.event, one.fields) for one in records[-3:]] == [("test.failed", {"what": "it"})] * 2 + [
        ("test.failed", {})
    ]
    assert ["ValueError: why" in (one.exc_text or "") for one in records[-3:]] == [True, True, False]


def test_a_disabled_log_level_creates_no_log_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "flintmq.test.off")
    log = event_log("flintmq.test.off")

    class Unreadable:
        def __str__(self) -> str:
            raise AssertionError("a value was written")

    for write in (log.debug, log.info, log.warning):
        write("test.happened", "%(what)s has happened", what=Unreadable())
    log.log(logging.WARNING, "test.happened", "%(what)s has happened", what=Unreadable())
    assert not caplog.records


def test_the_line_rate_of_a_shared_logger_is_limited_if_any_module_requests_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Modules share loggers; which of them is imported first must not matter."""
    event_log("flintmq.test.shared")
    log = client_log("flintmq.test.shared")
    assert len(logging.getLogger("flintmq.test.shared").filters) == 2
    client_log("flintmq.test.shared")
    assert len(logging.getLogger("flintmq.test.shared").filters) == 2
    for number in range(3 * LINES_PER_S):
        log.warning("test.happened", "request %(number)d\n", number=number)
    assert 0 < len(caplog.records) <= 2 * LINES_PER_S  # they may fall into two seconds
    assert caplog.messages[1] == "request 1\\n"


def test_log_records_of_an_embedded_broker_have_event_ids(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.parametrize("make", [event_log, client_log])
def test_no_value_can_forge_a_log_line(
    make: Callable[[str], EventLog], lines: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In no line at all: which values come from peers changes with every feature."""
    log = make(f"flintmq.test.{make.__name__}")
    caplog.set_level(logging.DEBUG, "flintmq.test")
    for line in lines:
        values = {name: HOSTILE if kind in "sr" else 7 for name, kind in VALUE.findall(line.text)}
        assert tuple(values) == line.fields
        log.error(line.event, line.text, **values)
        assert not STEERS.search(caplog.messages[-1]), line.text
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("test.failed", "failed")
    told = logging.Formatter("%(levelname)s %(message)s").format(caplog.records[-1])
    assert [line for line in told.split("\n") if not line.startswith("  ")] == ["ERROR failed"]
    assert not STEERS.search(told.replace("\n", ""))


def test_text_that_a_library_logs_cannot_forge_a_log_line() -> None:
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
