"""A broker that starts on a full disk must refuse writes from its first request on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq import Broker, Message
from flintmq.config import ConfigError, load_config
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.log_files import LogFiles
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.store.message_store import MessageStore
from flintmq.plugins.retention import plugin
from flintmq.plugins.retention.plugin import RESIDENT_CHECK_S, ResidentPages, RetentionProcessor, RetentionService
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import VirtualClock
from flintmq.testing.embedded import EmbeddedBroker
from flintmq.testing.store import BY_HAND, message, opened, snapshot
from flintmq.tests.support.faulty_disk import FaultyDisk, FaultyRegion
from flintmq.tests.support.log_parts import view_of
from flintmq.tests.support.roles import become_master, become_slave, is_timed, on_loop

FILE_BYTES = 16 * 1024
COUNT = 200
NEWEST_BYTES = 20 * 1024


class Cleaner:
    """Notes what it is asked for."""

    def __init__(self, *_arguments: object) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


def test_disk_space_is_checked_when_the_retention_service_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round comes ten seconds later, and queues of topics with a retention of their own begin where it says."""
    monkeypatch.setattr("flintmq.plugins.retention.plugin.CleanCommitLogService", Cleaner)
    timers: list[str] = []
    store = SimpleNamespace(clean_resource_interval_ms=10_000, keep_for_groups=())
    api: Any = SimpleNamespace(
        part=lambda _kind: None,
        offsets=SimpleNamespace(readers=None),
        topics=SimpleNamespace(keeping_topics=frozenset()),
        settings=SimpleNamespace(current=SimpleNamespace(store=store)),
        work=SimpleNamespace(pace=lambda _first_s, _work, name, _rest_s=None: timers.append(name)),
    )
    checked: BrokerApi = api
    service: Any = RetentionService(checked)
    service.start()
    assert service.cleaner.asked == ["check_space", "expire_topics"]
    assert timers == ["retention", "resident pages"]


def test_the_retention_of_unread_messages_must_not_be_shorter_than_the_normal_retention(tmp_path: Path) -> None:
    """It would never hold anything back, and the owner of the groups would not know."""
    settings = [f"store.path={tmp_path}", "listen.port=0", "store.keep_at_most_hours=71"]
    with Broker(load_config(None, settings, {})):  # nothing is kept for groups
        pass
    settings.append("store.keep_for_groups=billing")
    with pytest.raises(
        ConfigError, match=r"keep_at_most_hours is 71.*72 hours \(store\.file_reserved_hours\)"
    ) as refused:
        asyncio.run(Broker(load_config(None, settings, {})).start())
    assert refused.value.key == "store.keep_at_most_hours"


def test_admin_requests_remove_expired_queues_and_start_the_deletion_of_expired_log_files() -> None:
    """306 removes queues at once, 329 begins rounds that delete at any hour."""
    cleaner: Any = Cleaner()
    found = [SimpleNamespace(cleaner=cleaner)]
    api: Any = SimpleNamespace(parts=lambda _kind: iter(found))
    checked: BrokerApi = api
    handlers = RetentionProcessor(checked).handlers()
    codes = (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG)
    for code in codes:
        request: Any = SimpleNamespace(code=code)
        asked: Request = request
        answer: Any = handlers[code](asked)
        assert answer.code == 0
    assert cleaner.asked == ["clean_expired_queues", "delete_manually"]
    found.clear()  # a plugin's retention is in its place
    for code in codes:
        with pytest.raises(RefusedError, match=f"request type {code} not supported"):
            handlers[code](SimpleNamespace(code=code))


class Watched(FaultyDisk):
    """Has as much in memory as a test says."""

    resident = 2

    def resident_bytes(self) -> int:
        return self.resident


@pytest.fixture
def evicted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int, int]]:
    """Which parts of which files were given back; they really are."""
    found: list[tuple[Path, int, int]] = []
    evict = FaultyRegion.evict

    def noted(self: FaultyRegion, start: int, end: int) -> None:
        found.append((self._path, start, end))
        evict(self, start, end)

    monkeypatch.setattr(FaultyRegion, "evict", noted)
    return found


def fill(store: MessageStore, *, flushed: bool = True) -> None:
    for number in range(COUNT):
        store.put([message("T", 0, b"%08d" % number * 32, keys=f"k{number}", uniq_key=f"U{number}")])
    while store.dispatch():
        pass
    store.index.flush()
    if flushed:
        while store.watermarks.flushed < store.watermarks.wrote:
            store.commit_log.flush(0)
        store.consume_queues.flush(0)


def test_no_log_pages_are_evicted_from_memory_while_mapped_files_occupy_little_memory(
    tmp_path: Path, evicted: list[tuple[Path, int, int]]
) -> None:
    """A quiet broker must not pay for faults."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        assert ResidentPages(LogFiles(store, view_of(store)), 2, NEWEST_BYTES).tick() == RESIDENT_CHECK_S
    assert evicted == []


def test_all_but_the_newest_log_pages_are_evicted_from_memory_and_stay_readable(
    tmp_path: Path, evicted: list[tuple[Path, int, int]]
) -> None:
    """Every byte of the log before its newest part, of queues what is synced, of the index the entries; none is changed."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        pages = ResidentPages(LogFiles(store, view_of(store)), 1, NEWEST_BYTES)
        before = snapshot(tmp_path, "commitlog", "consumequeue", "index")
        while pages.tick() == 0.0:
            pass
        behind = store.watermarks.flushed - NEWEST_BYTES
        files = [(int(path.name), *part) for path, *part in evicted if path.parent.name == "commitlog"]
        log = sorted((at + start, at + end) for at, start, end in files)
        assert log[0][0] == 0
        assert log[-1][1] == behind
        assert [end for _, end in log[:-1]] == [start for start, _ in log[1:]], "without a hole"
        queue = store.consume_queues.queues["T", 0]
        assert {(file.path, 0, file.flushed) for file in queue.files.files} <= set(evicted)
        assert any(path.parent.name == "index" and start > 0 for path, start, _ in evicted)
        assert snapshot(tmp_path, "commitlog", "consumequeue", "index") == before
        units = [queue.unit(number) for number in range(COUNT)]
        records = [store.reader.message_at(unit[0]) for unit in units if unit is not None]
        bodies = [record.body for record in records if record is not None]
        assert bodies == [b"%08d" % number * 32 for number in range(COUNT)]


def test_unsynced_log_pages_are_not_evicted_from_memory(tmp_path: Path, evicted: list[tuple[Path, int, int]]) -> None:
    """Its pages would be made dirty, cleaned and mapped again for nothing."""
    with opened(tmp_path, strategy=BY_HAND, disk=Watched(), commit_log_file_bytes=FILE_BYTES) as store:
        fill(store, flushed=False)
        pages = ResidentPages(LogFiles(store, view_of(store)), 1, NEWEST_BYTES)
        while pages.tick() == 0.0:
            pass
        assert not [path for path, _, _ in evicted if path.parent.name != "index"]


def test_the_eviction_of_log_pages_from_memory_is_split_into_several_event_loop_iterations(
    tmp_path: Path, evicted: list[tuple[Path, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte takes a while, during which messages come, and files go."""
    monkeypatch.setattr(plugin, "_SLICE_S", 0.0)
    disk = Watched()
    with opened(tmp_path, strategy=BY_HAND, disk=disk, commit_log_file_bytes=FILE_BYTES) as store:
        fill(store)
        pages = ResidentPages(LogFiles(store, view_of(store)), 1, 0)
        assert pages.tick() == 0.0
        assert len(evicted) == 1
        assert store.commit_log.queue.delete_before(4 * FILE_BYTES) == 4
        ticks = 1
        while pages.tick() == 0.0:
            ticks += 1
        assert ticks == len(evicted) > 4
        disk.resident = 1
        assert pages.tick() == RESIDENT_CHECK_S, "and the next round begins only when it must"
        assert len(evicted) == ticks


def test_log_files_expire_on_masters_and_on_slaves(tmp_path: Path) -> None:
    """A slave deletes as its master does, and a former slave goes on with that; nobody deletes twice as fast."""
    clock = VirtualClock()
    settings = (
        "store.commit_log_file_bytes=64KiB",
        "store.file_reserved_hours=1",
        "store.delete_when=00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
    )
    with EmbeddedBroker(tmp_path, clock=clock, settings=settings) as broker:

        def deleted_bytes(*, is_slave: bool) -> int:
            broker.put([Message("T", bytes(10_000)) for _ in range(40)])
            before = on_loop(broker, lambda state: state.store.commit_log.min_offset_bytes)
            if is_slave:
                become_slave(broker)
            clock.advance("2h")
            become_master(broker)
            return on_loop(broker, lambda state: state.store.commit_log.min_offset_bytes) - before

        for is_slave in (False, True, False):
            assert deleted_bytes(is_slave=is_slave) >= 5 * 65_536
        assert is_timed(broker, "retention")
