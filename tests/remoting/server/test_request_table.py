"""A code is answered by who registered it last, where it may be answered, with the audit that its declaration asks for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flintmq.core.errors import PluginError
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.remoting.server.pool import Pool
from flintmq.remoting.server.request_table import RequestTable
from flintmq.testing.processor_kit import RecordingChannel


class Painter(DeclaredProcessor):
    """One audited code, one that is not."""

    @handles(20_001, pool="mine", audited=True)
    def paint(self, request: Request) -> Response:
        return Response(remark="painted")

    @handles(20_002)
    def look(self, request: Request) -> Response:
        return Response(remark="seen")


class Batches:
    """Takes all requests of a read."""

    may_wait = True

    def process(self, batch: list[Request]) -> None:
        """Answers nothing."""


def pools() -> Any:
    """The pool of each name, made once."""
    made: dict[str, Pool] = {}
    return lambda name: made.setdefault(name, Pool(name, 10))


def asked(code: int) -> Request:
    """A request."""
    channel: Any = RecordingChannel()
    return Request(channel, code, 1, 0, 0, "JAVA", 0, {}, b"")


def test_a_processor_handles_exactly_the_request_codes_that_its_class_declares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the pool of each declaration; audited codes leave a line."""
    table = RequestTable()
    table.add_processor(Painter(), declared_by(Painter), pools(), "a test")
    assert table.codes == {20_001, 20_002} == set(table.declared)
    assert [table.handlers[code][1].name for code in (20_001, 20_002)] == ["mine", "admin"]
    with caplog.at_level(logging.INFO):
        answers = [table.handlers[code][0](asked(code)) for code in (20_001, 20_002)]
    assert [answer.remark for answer in answers if isinstance(answer, Response)] == ["painted", "seen"]
    assert [record.getMessage().count("CODE_20001") for record in caplog.records] == [1]


def test_the_last_registered_processor_of_a_request_code_is_used() -> None:
    """Whichever kind of handler it had before."""
    table, pool = RequestTable(), pools()
    table.register(7, print, pool("a"))
    table.register_batch(7, print, pool("b"), may_wait=True)
    assert (7 in table.handlers, table.batch_handlers[7][1].name, table.may_wait) == (False, "b", {7})
    table.register(7, print, pool("c"))
    assert (7 in table.batch_handlers, table.handlers[7][1].name) == (False, "c")


def test_a_batch_processor_handles_batches_of_every_request_code_declared_for_that_processor() -> None:
    """The processor itself declares whether its batches may wait."""
    table = RequestTable()
    table.add_processor(Batches(), declared_by(Painter), pools(), "a test")
    assert set(table.batch_handlers) == {20_001, 20_002} == table.may_wait


def test_registering_an_object_that_is_not_a_processor_raises_plugin_error() -> None:
    """At the start, with who registered it."""
    wrong: Any = object()
    with pytest.raises(PluginError, match="a test cannot be used"):
        RequestTable().add_processor(wrong, declared_by(Painter), pools(), "a test")


def test_request_codes_excluded_on_a_port_are_recorded_in_the_request_table() -> None:
    """The VIP port serves no pulls."""
    table = RequestTable()
    assert not table.excluded
    table.exclude(10_909, frozenset({11}))
    assert table.excluded == {10_909: frozenset({11})}
