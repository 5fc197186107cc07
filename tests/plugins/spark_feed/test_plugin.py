"""A broker with the dispatcher ``spark_feed``: what other processes may read, and what lands, is true at any time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.config import load_config
from flintmq.config.errors import ConfigError
from flintmq.core.io.os_disk import OS_DISK
from flintmq.core.store.message_store import MessageStore
from flintmq.dispatchers.spark_feed.feed_file import FeedMarks, FeedState, feed_path, read_feed
from flintmq.dispatchers.spark_feed.spark_feed import FeedPublisher
from flintmq.plugins.spark_feed.plugin import find_feed
from flintmq.programs.broker.broker import Broker
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import BY_HAND, message, open_store

NEEDS_ARROW = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("numpy", "pyarrow")), reason="needs numpy and pyarrow"
)


def config_of(path: Path, *settings: str) -> Any:
    return load_config(
        None,
        [
            f"store.path={path}",
            "store.commit_log_file_bytes=1MiB",
            "index.max_hash_slot_num=100",
            "index.max_index_num=400",
            "listen.port=0",
            "listen.vip=false",
            "dispatchers=consume_queue,index,spark_feed",
            *settings,
        ],
        {},
    )


def marks_of(path: Path) -> FeedMarks:
    found = read_feed(feed_path(path))
    assert found is not None
    return found


@pytest.fixture
def pending() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def fed(tmp_path: Path, pending: list[Callable[[], None]]) -> Iterator[tuple[MessageStore, FeedPublisher]]:
    """A store that is flushed by hand, its publisher, and the calls it wants later."""
    store = open_store(tmp_path, strategy=BY_HAND, clock=ManualClock())
    publisher = FeedPublisher(store, store.clock, lambda: 7)
    publisher.open(lambda _delay_s, call: pending.append(call))
    try:
        yield store, publisher
    finally:
        publisher.close()
        store.close()


def test_fifty_appends_in_quick_succession_cause_one_write_of_the_feed_file(
    fed: tuple[MessageStore, FeedPublisher], pending: list[Callable[[], None]], tmp_path: Path
) -> None:
    """A thousand batches within a millisecond must not cost a thousand writes; none is forgotten."""
    store, publisher = fed
    assert marks_of(tmp_path).dispatched_offset_bytes == 0
    for _ in range(50):
        store.put([message()])
        store.dispatch()
        publisher.touch()
    assert publisher.writes == 1
    assert len(pending) == 1
    pending.pop()()
    found = marks_of(tmp_path)
    assert publisher.writes == 2
    assert found.dispatched_offset_bytes == store.watermarks.wrote > 0
    assert (found.flushed_offset_bytes, found.epoch, found.state) == (0, 7, FeedState.RUNNING)
    assert found.written_at_ms == store.clock.now_ms()
    publisher.touch()
    assert len(pending) == 1


def test_the_spark_feed_requests_a_flush_if_a_message_stays_unflushed_for_200_ms(tmp_path: Path) -> None:
    """A message alone would be seen by files up to ten seconds later under the default strategy; at most five flushes a second
    are asked for, and none where the strategy was faster."""
    later: list[tuple[float, Callable[[], None]]] = []
    asked: list[None] = []
    store = open_store(tmp_path, strategy=BY_HAND, clock=ManualClock())
    publisher = FeedPublisher(store, store.clock, lambda: 7)
    publisher.open(lambda delay_s, call: later.append((delay_s, call)), lambda: asked.append(None))

    def put_one() -> None:
        store.put([message()])
        store.dispatch()
        publisher.touch()

    def run_later() -> list[float]:
        due = sorted(later, key=lambda one: one[0])
        later.clear()
        for _delay_s, call in due:
            call()
        return [delay_s for delay_s, _call in due]

    put_one()
    put_one()
    assert run_later() == [0.001, 0.2]
    assert len(asked) == 1
    store.commit_log.flush(0)
    put_one()
    store.commit_log.flush(0)
    put_one()  # flushed is what was waited for; this one has its own time
    assert run_later() == [0.001, 0.2]
    assert len(asked) == 1
    assert run_later() == [0.2]
    assert len(asked) == 2
    put_one()
    publisher.close()
    run_later()
    assert len(asked) == 2
    store.close()


@pytest.mark.parametrize("strategy", ["flush_real_time", "commit_real_time"])
def test_the_spark_feed_flushes_a_single_message_before_the_flush_interval_of_one_hour_ends(
    tmp_path: Path, strategy: str
) -> None:
    """Not after the thorough interval, which is an hour here: what the feed says moves within moments."""
    store = tmp_path / "store"
    prefix = "flush_" if strategy == "commit_real_time" else ""
    seldom = f"flush.{strategy}.{prefix}thorough_interval_ms=1h"
    config = config_of(store, f"flush.strategy={strategy}", "flush.commit_real_time.pool_size=2", seldom)
    with Broker(config) as broker:
        for _ in range(3):  # the first round of a thread is a thorough one
            broker.put([flintmq.Message("T", b"x")])
            broker.call(lambda: _until(broker, lambda: marks_of(store).flushed_offset_bytes == _wrote(broker)))


def _wrote(broker: Broker) -> int:
    return broker.state.store.watermarks.wrote


def test_the_feed_file_reports_how_far_the_log_is_dispatched_and_flushed_and_confirmed(
    fed: tuple[MessageStore, FeedPublisher], tmp_path: Path
) -> None:
    """Each position is the store's own at the moment of writing; with a slave to wait for, confirmed is the slave's."""
    store, publisher = fed
    store.put([message()])
    publisher.publish()
    assert marks_of(tmp_path).dispatched_offset_bytes == 0
    store.dispatch()
    store.commit_log.flush(0)
    store.watermarks.replicated = 3
    publisher.publish()
    found = marks_of(tmp_path)
    end = store.watermarks.wrote
    assert (found.dispatched_offset_bytes, found.flushed_offset_bytes, found.confirmed_offset_bytes) == (0, end, 3) or (
        found.dispatched_offset_bytes,
        found.flushed_offset_bytes,
        found.confirmed_offset_bytes,
    ) == (end, end, 3)
    publisher.close()
    assert marks_of(tmp_path).state is FeedState.CLOSED


@pytest.mark.parametrize("strategy", ["group_commit", "flush_real_time", "commit_real_time"])
def test_a_stopped_broker_leaves_its_final_log_positions_in_the_feed_file(tmp_path: Path, strategy: str) -> None:
    """For each flush strategy: what was acknowledged is in the feed when the broker has stopped, and while it runs soon."""
    store = tmp_path / "store"
    config = config_of(store, f"flush.strategy={strategy}", "flush.commit_real_time.pool_size=2")
    with Broker(config) as broker:
        assert marks_of(store).state is FeedState.RUNNING
        broker.put([flintmq.Message("T", b"x") for _ in range(100)])
        broker.call(lambda: _until(broker, lambda: marks_of(store).end_offset_bytes("flushed") > 100 * 91))
        running = marks_of(store)
        assert running.epoch == broker.state.store.epochs.epochs.current.number
        assert running.flushed_offset_bytes <= broker.state.store.watermarks.wrote
        info = broker.api.figures.texts()
        assert int(info["sparkFeedMessages"]) == 100
        assert int(info["sparkFeedEndOffset"]) == running.end_offset_bytes()
    closed = marks_of(store)
    assert closed.state is FeedState.CLOSED
    assert closed.dispatched_offset_bytes == closed.flushed_offset_bytes == closed.confirmed_offset_bytes
    with Broker(config_of(store, f"flush.strategy={strategy}")) as broker:
        assert marks_of(store).end_offset_bytes() == closed.end_offset_bytes()


def test_a_broker_without_the_spark_feed_removes_an_old_feed_file(tmp_path: Path) -> None:
    """A feed that nobody keeps true would have readers stop where they were for ever."""
    store = tmp_path / "store"
    with Broker(config_of(store)):
        pass
    assert feed_path(store).exists()
    with Broker(config_of(store, "dispatchers=consume_queue,index")) as broker:
        assert not feed_path(store).exists()
        assert find_feed(broker.api) is None
    assert read_feed(feed_path(store)) is None


async def _until(broker: Broker, condition: Callable[[], bool]) -> None:
    """Lets the broker's loop go on until something has become true (a minute at most)."""
    import asyncio

    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.005)


def offsets(zone: Path) -> list[int]:
    import pyarrow.parquet as pq

    parts = zone.glob("topic=*/date=*/part-*.parquet")
    return sorted(offset for part in parts for offset in pq.read_table(part)["physicalOffset"].to_pylist())


@NEEDS_ARROW
@pytest.mark.parametrize("engine", ["thread", "process"])
def test_each_acknowledged_message_is_written_once_to_the_files_of_the_landing_zone(
    tmp_path: Path, engine: str
) -> None:
    """Through a stop, a time without landing, and a start that catches up: each message once, nothing of the broker's own."""
    store, zone = tmp_path / "store", tmp_path / "zone"
    landing = [
        f"spark_feed.landing.path={zone}",
        f"spark_feed.landing.engine={engine}",
        "spark_feed.landing.roll_interval_ms=20",
        "spark_feed.landing.stop_timeout_ms=60s",
    ]
    stored = []
    with Broker(config_of(store, *landing)) as broker:
        put = broker.put([flintmq.Message("Orders", b"x" * 100) for _ in range(500)])
        stored += [record.commit_log_offset_bytes for record in put]
        broker.call(lambda: _until(broker, lambda: len(offsets(zone)) == 500))
        info = broker.api.figures.texts()
        assert info["sparkFeedLandingState"] == "following"
        assert int(info["sparkFeedLandingRows"]) == 500
        put = broker.put([flintmq.Message("Payments", b"y") for _ in range(50)])
        stored += [record.commit_log_offset_bytes for record in put]
    assert offsets(zone) == stored, "a stop lands the rest"
    with Broker(config_of(store)) as broker:
        put = broker.put([flintmq.Message("Orders", b"z") for _ in range(50)])
        stored += [record.commit_log_offset_bytes for record in put]
    with Broker(config_of(store, *landing)) as broker:
        feed = find_feed(broker.api)
        assert feed is not None
        assert feed.committed() is not None
        broker.call(lambda: _until(broker, lambda: len(offsets(zone)) == len(stored)))
    assert offsets(zone) == stored
    assert OS_DISK.list_files(zone / "_flintmq")


@NEEDS_ARROW
def test_a_new_landing_zone_can_begin_with_the_next_stored_message(tmp_path: Path) -> None:
    """Who only wants what comes need not copy what is there."""
    store, zone = tmp_path / "store", tmp_path / "zone"
    with Broker(config_of(store)) as broker:
        broker.put([flintmq.Message("Orders", b"old")])
    settings = [
        f"spark_feed.landing.path={zone}",
        "spark_feed.landing.start=latest",
        "spark_feed.landing.engine=thread",
    ]
    with Broker(config_of(store, *settings, "spark_feed.landing.stop_timeout_ms=60s")) as broker:
        put = broker.put([flintmq.Message("Orders", b"new")])
    assert offsets(zone) == [put[0].commit_log_offset_bytes]


def test_the_error_about_missing_pyarrow_contains_the_pip_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker runs without pyarrow; one that is to land with it says what to install, before anything listens."""
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "pyarrow" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with Broker(config_of(tmp_path / "store")):
        pass
    config = config_of(tmp_path / "store", f"spark_feed.landing.path={tmp_path / 'zone'}")
    with pytest.raises(ConfigError, match=r"pip install '\.\[spark\]'") as caught, Broker(config):
        pass
    assert caught.value.key == "spark_feed.landing.path"
