"""Whoever puts a message learns the same of it, by the same way in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from flintmq.core.broker.followers import Followers
from flintmq.core.broker.sink import MessageSink, acknowledge, not_durable, not_stored, until_flushed
from flintmq.core.broker.stats import BrokerStats
from flintmq.core.errors import RefusedError, StoreError, StoreExhaustedError, StoreFullError
from flintmq.core.kernel.ports import AppendedBatch, FlushStatus, StoredMessages
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_store import MessageStore
from flintmq.core.waiters import CompletedWaiter
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import batch, message, opened

TOO_LARGE = b"x" * 70_000


def sink_of(store: MessageStore) -> tuple[MessageSink, BrokerStats]:
    """A sink into a store, and what counts its messages."""
    stats = BrokerStats(ManualClock())
    return MessageSink(store, stats, store.dispatch), stats


def test_messages_put_into_the_store_are_counted_and_visible_to_consumers(tmp_path: Path) -> None:
    """A caller that forgot one of these would lose a message to consumers, or to the figures."""
    with opened(tmp_path) as store:
        sink, stats = sink_of(store)
        stored = sink.put([message("T", body=b"1"), message("T", body=b"2")])
        assert [(record.topic, record.queue_offset) for record in stored.requests()] == [("T", 0), ("T", 1)]
        assert store.reader.max_queue_offset("T", 0) == 2
        assert (stats.put_messages, stored.messages) == (2, 2)
        assert stored.waiter.status is FlushStatus.FLUSHED
        asyncio.run(stored.acknowledge())


def test_an_appended_message_is_visible_to_consumers_only_after_dispatch(tmp_path: Path) -> None:
    """Sends are answered before consumers are woken."""
    with opened(tmp_path) as store:
        sink, stats = sink_of(store)
        sink.append([message("T")])
        assert stats.put_messages == 1
        assert store.reader.max_queue_offset("T", 0) == 0
        store.dispatch()
        assert store.reader.max_queue_offset("T", 0) == 1


def test_each_message_of_a_put_is_stored_or_refused_separately(tmp_path: Path) -> None:
    """One that is refused costs the others of its append nothing, and a batch is one unit with several messages."""
    with opened(tmp_path, commit_log_file_bytes=65_536) as store:
        sink, stats = sink_of(store)
        stored = sink.put([message("T"), message("T", body=TOO_LARGE), batch([message("T"), message("T")])])
        first, refused, members = stored.results
        assert not isinstance(first, RefusedError)
        assert isinstance(refused, RefusedError)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert isinstance(members, AppendedBatch)
        assert (len(stored.units), stored.messages, stats.put_messages) == (2, 3, 3)
        with pytest.raises(RefusedError):
            stored.requests()


def test_messages_appended_together_are_all_stored_or_all_refused(tmp_path: Path) -> None:
    """A half message that is committed without its mark would be committed twice."""
    with opened(tmp_path, commit_log_file_bytes=65_536) as store:
        sink, stats = sink_of(store)
        assert [record.queue_offset for record in sink.append_together([message("T"), message("T")]).requests()] == [
            0,
            1,
        ]
        refused = sink.append_together([message("T"), message("T", body=TOO_LARGE)])
        assert [type(result) for result in refused.results] == [RefusedError]
        assert stats.put_messages == 2


def test_plugins_are_notified_of_each_stored_message_and_each_refused_message(tmp_path: Path) -> None:
    """Messages that were refused together must each be reported, too."""
    told: list[StoredMessages] = []
    followers = Followers()
    followers.add(SimpleNamespace(on_stored=told.append, on_answered=None, on_handed_out=None))  # type: ignore[arg-type]
    with opened(tmp_path, commit_log_file_bytes=65_536) as store:
        sink = MessageSink(store, BrokerStats(ManualClock()), store.dispatch, followers)
        sink.put([message("T"), message("T", body=TOO_LARGE)])
        sink.append_together([message("T"), message("T")])
        sink.append_together([message("T"), message("T", body=TOO_LARGE)])
    refused = [[isinstance(result, RefusedError) for result in one.results] for one in told]
    assert refused == [[False, True], [False, False], [True, True]]
    assert [len(one.messages) for one in told] == [2, 2, 2]


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (StoreFullError("full"), ResponseCode.SERVICE_NOT_AVAILABLE, "store.disk_full"),
        (StoreExhaustedError("none left"), ResponseCode.SERVICE_NOT_AVAILABLE, "store.exhausted"),
        (StoreError("no file"), ResponseCode.SYSTEM_ERROR, "store.file"),
        (RefusedError(ResponseCode.MESSAGE_ILLEGAL, "no", reason="message.illegal"), 13, "message.illegal"),
    ],
)
def test_each_store_error_has_a_defined_response_code(error: StoreError | RefusedError, code: int, reason: str) -> None:
    """Clients retry elsewhere or give up by the code."""
    refusal = not_stored(error)
    assert (refusal.code, refusal.reason) == (code, reason)


CODES = {
    FlushStatus.FLUSHED: None,
    FlushStatus.TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    FlushStatus.SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    FlushStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    FlushStatus.FENCED: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class LateWaiter:
    """A waiter that is done when a test says so."""

    status: FlushStatus | None = None

    def __init__(self) -> None:
        self.callbacks: list[Callable[[FlushStatus], None]] = []

    def add_done_callback(self, callback: Callable[[FlushStatus], None]) -> None:
        self.callbacks.append(callback)


@pytest.mark.parametrize("status", list(FlushStatus))
def test_every_flush_status_maps_to_a_response_code(status: FlushStatus) -> None:
    """A new status without a row would be acknowledged as if nothing had happened."""
    refusal = not_durable(status)
    assert (None if refusal is None else refusal.code) == CODES[status]
    assert refusal is None or (refusal.reason and refusal.key)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("status", list(FlushStatus))
def test_a_late_flush_is_an_error_unless_strict_compatibility_with_rocketmq_is_configured(
    status: FlushStatus, strict: bool
) -> None:
    """Answers to 36 and 37 tell in RocketMQ of nothing but a store that takes no more."""
    refused = status is not FlushStatus.FLUSHED and (not strict or status is FlushStatus.FENCED)
    if refused:
        with pytest.raises(RefusedError):
            asyncio.run(acknowledge(CompletedWaiter(status), strict=strict))
    else:
        asyncio.run(acknowledge(CompletedWaiter(status), strict=strict))


def test_a_wait_for_a_flush_returns_the_first_status_if_two_statuses_are_reported() -> None:
    """Its callback comes on the flush service's thread, and may come once more than anybody asked."""

    async def wait() -> FlushStatus:
        waiter = LateWaiter()
        waiting = asyncio.ensure_future(until_flushed(waiter))
        await asyncio.sleep(0)
        await asyncio.to_thread(waiter.callbacks[0], FlushStatus.TIMEOUT)
        await asyncio.to_thread(waiter.callbacks[0], FlushStatus.FLUSHED)
        return await waiting

    assert asyncio.run(wait()) is FlushStatus.TIMEOUT
