"""Running brokers and a client of bare frames, for the tests of the whole."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bare_wire import Wire, settings
from broker_process import end_what_is_left


class Unexpected(logging.Handler):
    """Keeps every record that tells of an exception nobody foresaw: in a request, a timer, a callback of the loop."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if (record.exc_info and record.exc_info[0] is not None) or record.name == "asyncio":
            formatter = logging.Formatter("%(name)s %(message)s")
            self.found.append(formatter.format(record)[-1500:])


@pytest.fixture(autouse=True)
def no_process_stays() -> Iterator[None]:
    """What a failed test left running ends with it."""
    yield
    end_what_is_left()


@pytest.fixture
def unexpected() -> Iterator[list[str]]:
    """The list of what went wrong unforeseen; a test that ends with something in it fails."""
    handler = Unexpected()
    loggers = [logging.getLogger(name) for name in ("flintmq", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.found
    for logger in loggers:
        logger.removeHandler(handler)
    assert not handler.found, "\n\n".join(handler.found[:5])


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Any]:
    """``configure("a=b", …, store="name")`` is a small broker's configuration with a store of its own."""

    def make(*overrides: str, store: str = "store") -> Any:
        return settings(tmp_path / store, *overrides)

    return make


@pytest.fixture
def connect() -> Iterator[Callable[[Any], Wire]]:
    """``connect(server)`` is a connection, closed with the test."""
    made: list[Wire] = []

    def open_one(server: Any) -> Wire:
        wire = Wire(server.address if hasattr(server, "address") else server)
        made.append(wire)
        return wire

    yield open_one
    for wire in made:
        wire.close()
