"""Masters and slaves without sockets: two stores, two ends, and bytes carried from one to the other by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flintmq.core.broker.log_copy import LogCopy
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.replication.link_settings import LinkSettings
from flintmq.plugins.replication.master_link import MasterLink
from flintmq.plugins.replication.slave_link import SlaveLink
from flintmq.plugins.replication.store_log import SlaveStoreLog, StoreLog
from flintmq.testing.store import message, opened
from flintmq.tests.support.log_parts import view_of

SECRET = b"known to both ends of it"


def fill(store: MessageStore, count: int = 10, name: str = "m", size: int = 300) -> None:
    """Messages of several queues."""
    for number in range(count):
        store.put([message("T", number % 3, b"%s%d" % (name.encode(), number) + b"." * size, keys=f"k{number}")])
    while store.dispatch():
        pass


class Pair:
    """A master's store and a slave's, with a connection between them that the test carries bytes over."""

    def __init__(self, master: MessageStore, slave: MessageStore, settings: LinkSettings) -> None:
        self.master, self.slave = master, slave
        self.settings = settings
        self.now_s = 100.0
        self.master_log = StoreLog(LogCopy(master), view_of(master), "broker-a", "127.0.0.1:10911")
        self.slave_log = SlaveStoreLog(LogCopy(slave), view_of(slave), "broker-a", "127.0.0.1:20911")
        self.connect()

    def connect(self) -> None:
        """A new connection."""
        self.master_end = MasterLink(self.master_log, self.settings, self.now_s)
        self.slave_end = SlaveLink(self.slave_log, self.settings, self.now_s)

    def to_master(self) -> bytes:
        return b"".join(self.slave_end.output(self.now_s))

    def to_slave(self, budget_bytes: int = 1 << 20) -> bytes:
        return b"".join(self.master_end.output(budget_bytes, self.now_s))

    def deliver(self, data: bytes) -> None:
        """Gives the slave bytes; what passes is appended, dispatched and reported."""
        chunks = self.slave_end.receive(data, self.now_s)
        if chunks:
            self.slave.writer.append_raw(chunks)
            self.slave_end.report(self.slave.watermarks.wrote)
            while self.slave.dispatch():
                pass

    def turn(self, piece_bytes: int = 0) -> bool:
        """Carries what waits on both sides, in pieces of so many bytes (0: whole); returns whether there was anything."""
        up = self.to_master()
        for piece in pieces(up, piece_bytes):
            self.master_end.receive(piece, self.now_s)
        down = self.to_slave()
        for piece in pieces(down, piece_bytes):
            self.deliver(piece)
        return bool(up or down)

    def settle(self, piece_bytes: int = 0) -> None:
        """Carries until nothing is left to say."""
        while self.turn(piece_bytes):
            pass


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    step = size or max(1, len(data))
    for at in range(0, len(data), step):
        yield data[at : at + step]


def log_of(store: MessageStore) -> bytes:
    """The log's bytes, from its oldest position to its end."""
    raw = b"".join(bytes(file.view) for file in store.commit_log.queue.files)
    return raw[: store.watermarks.wrote - store.commit_log.min_offset_bytes]


@pytest.fixture(params=["flintmq", "rocketmq"])
def settings(request: pytest.FixtureRequest) -> LinkSettings:
    """Both streams."""
    secret = SECRET if request.param == "flintmq" else None
    return LinkSettings(heartbeat_s=5.0, housekeeping_s=20.0, batch_bytes=1000, secret=secret)


@pytest.fixture
def sealed() -> LinkSettings:
    """FlintMQ's stream."""
    return LinkSettings(heartbeat_s=5.0, housekeeping_s=20.0, batch_bytes=1000, secret=SECRET)


@pytest.fixture
def stores() -> Iterator[Callable[[Path], MessageStore]]:
    """``stores(path)`` is an open store with small files, closed with the test."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(opened(path))
