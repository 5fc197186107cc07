"""Lines that strangers provoke: they end where we end them, and there are as many as we say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from flintmq.core import client_log as module
from flintmq.core.client_log import LINE_MAX_CHARS, LINES_PER_S, printable
from flintmq.core.log_events import client_log


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: a list whose item is the time."""
    now = [1_000.5]
    monkeypatch.setattr(module, "SYSTEM_CLOCK", SimpleNamespace(monotonic_s=lambda: now[0]))
    return now


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("as it is, é too", "as it is, é too"),
        ("a\nwho='admin' b\r\tc", "a\\nwho='admin' b\\r\\tc"),
        ("\x1b[31mred\x00\x7f\x85", "\\x1b[31mred\\x00\\x7f\\x85"),
        ("\u2028line\ud800", "\\u2028line\\ud800"),
        ("x" * 9, "xxxxx..."),
    ],
)
def test_control_characters_in_client_text_are_escaped_and_long_client_text_is_shortened(text: str, shown: str) -> None:
    """Line ends, colours and what is no character at all are shown as escapes; length is bounded."""
    assert printable(text, max_chars=5 if text.startswith("xx") else 100) == shown


def test_log_lines_with_client_text_are_escaped(caplog: pytest.LogCaptureFixture, seconds: list[float]) -> None:
    """The whole line is, whichever argument brought it; exceptions keep their trace."""
    log = client_log("flintmq.test.escaped")
    log.warning("test.found", "group %(group)s is %(number)d", group="a\nERROR root: all is lost", number=3)
    log.warning("test.found", "%(group)s", group="y" * 10_000)
    assert caplog.messages[0] == "group a\\nERROR root: all is lost is 3"
    assert len(caplog.messages[1]) == LINE_MAX_CHARS + 3
    try:
        raise ValueError("x")
    except ValueError as error:
        log.error("test.failed", "failed", exc_info=error)
    assert caplog.records[-1].exc_info


def test_log_lines_of_the_same_kind_are_limited_per_second_and_the_suppressed_lines_are_counted(
    caplog: pytest.LogCaptureFixture, seconds: list[float]
) -> None:
    """The others are counted; another kind, an error and the next second are not kept back."""
    log = client_log("flintmq.test.flood")
    for number in range(100):
        log.warning("test.asked", "request %(number)d", number=number)
    log.warning("test.asked", "something else")
    for _ in range(100):
        log.error("test.failed", "serious")
    assert len([line for line in caplog.messages if line.startswith("request")]) == LINES_PER_S
    assert caplog.messages.count("something else") == 1
    assert caplog.messages.count("serious") == 100
    seconds[0] += 1
    log.warning("test.asked", "request %(number)d", number=100)
    log.warning("test.asked", "request %(number)d", number=101)
    assert caplog.messages[-2:] == [f"request 100 ({100 - LINES_PER_S} more like it were left out)", "request 101"]
