"""A service that has messages which retention has deleted answers pulls below the minimum offset of a queue."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq import hookimpl
from flintmq.core.broker.api import BrokerApi, Empty, Found, HeldPull, Wanted
from flintmq.core.errors import PluginError
from flintmq.testing.processor_kit import RecordingChannel

PEER = RecordingChannel("10.0.0.1:4321")


class Copy:
    """A service with a copy of each record of a queue. Without :attr:`is_here`, a read begins a fetch."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.is_here = True
        self.asked: list[tuple[str, int, int, int]] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def read_older(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> Sequence[bytes | memoryview] | None:
        self.asked.append((topic, queue_id, queue_offset, max_count))
        if not self.records:
            return None
        return self.records[queue_offset : queue_offset + max_count] if self.is_here else ()


class Plugin:
    plugin_name = "tier"

    def __init__(self, service: Any) -> None:
        self._service = service

    @hookimpl
    def flintmq_services(self, register: Any) -> None:
        register("tier", lambda context: self._service)


def wanted(queue_offset: int, expression: str = "*", max_count: int = 32) -> Wanted:
    return Wanted("Orders", 0, queue_offset, "G", PEER, max_count, expression)


def run(root: Path, copy: Any, live: Callable[[BrokerApi], Awaitable[None]]) -> None:
    """Run a broker with six messages, of which the service has a copy and the queue has lost the first four."""
    settings = [f"store.path={root}", "listen.enable=false", "topics.default_queue_nums=1"]

    async def body() -> None:
        async with flintmq.Broker(flintmq.load_config(None, settings, {}), plugins=[Plugin(copy)]) as broker:
            await broker.put([flintmq.Message("Orders", b"%d" % at, tags="AB"[at % 2]) for at in range(6)])
            found = broker.api.outlet.read("Orders", 0, 0)
            assert isinstance(found, Found)
            positions = [one.commit_log_offset_bytes for one in found.messages()]
            whole = b"".join(found.records)
            copy.records = [
                whole[begin - positions[0] : end - positions[0]]
                for begin, end in itertools.pairwise([*positions, positions[0] + len(whole)])
            ]
            # Retention raises the minimum of a queue in this way when it has deleted a file of the log.
            broker.state.store.consume_queues.queues["Orders", 0].correct_min_offset(positions[4])  # type: ignore[attr-defined]
            await live(broker.api)

    asyncio.run(body())


def shown(pulled: Found | Empty) -> tuple[str, int, list[bytes]]:
    messages = pulled.messages() if isinstance(pulled, Found) else ()
    return pulled.status, pulled.next_queue_offset, [one.body for one in messages]


def test_a_pull_below_the_minimum_offset_gets_deleted_messages_from_the_archive_of_a_plugin(
    tmp_path: Path,
) -> None:
    """They count as delivered; the next pull continues behind them, and one at the minimum reads the log."""
    copy = Copy()

    async def live(api: BrokerApi) -> None:
        assert shown(api.outlet.pull(wanted(1, max_count=2))) == ("FOUND", 3, [b"1", b"2"])
        assert shown(api.outlet.pull(wanted(4))) == ("FOUND", 6, [b"4", b"5"])
        assert copy.asked == [("Orders", 0, 1, 2)]
        assert api.figures.counts.get_found == 2

    run(tmp_path, copy, live)


def test_the_filter_of_a_pull_applies_to_messages_from_an_archive_of_deleted_messages(tmp_path: Path) -> None:
    """The service knows no subscriptions. If no record passes, the group pulls again from behind them."""
    copy = Copy()

    async def live(api: BrokerApi) -> None:
        assert shown(api.outlet.pull(wanted(0, "B", 4))) == ("FOUND", 4, [b"1", b"3"])
        assert shown(api.outlet.pull(wanted(0, "C", 4))) == ("NO_MATCHED_MESSAGE", 4, [])

    run(tmp_path, copy, live)


def test_a_pull_is_held_while_the_broker_fetches_the_requested_messages_from_the_archive(tmp_path: Path) -> None:
    """It is held like a pull at the end of a queue, and the service wakes it."""
    copy, woken = Copy(), list[HeldPull]()

    async def live(api: BrokerApi) -> None:
        copy.is_here = False
        pulled = api.outlet.pull(wanted(1))
        assert (shown(pulled), pulled.may_wait) == (("OFFSET_FOUND_NULL", 1, []), True)
        held = api.outlet.hold(wanted(1), 20_000, woken.append)
        copy.is_here = True
        api.outlet.held.notify_arriving("Orders", 0, 2)
        assert woken == [held]
        assert shown(api.outlet.pull(wanted(1, max_count=1))) == ("FOUND", 2, [b"1"])

    run(tmp_path, copy, live)


def test_a_pull_of_deleted_messages_returns_the_minimum_offset_if_the_archive_lacks_the_messages(
    tmp_path: Path,
) -> None:
    """None means that the copy begins later: the group continues at the minimum, as without the service."""
    copy = Copy()

    async def live(api: BrokerApi) -> None:
        copy.records = []
        assert shown(api.outlet.pull(wanted(1))) == ("OFFSET_TOO_SMALL", 4, [])
        assert shown(api.outlet.pull(wanted(-1))) == ("OFFSET_TOO_SMALL", 4, [])
        assert [asked[2] for asked in copy.asked] == [1]

    run(tmp_path, copy, live)


@pytest.mark.parametrize("spoil", ["other", "damaged", "foreign"])
def test_damaged_or_unrequested_records_from_an_archive_count_as_errors_and_are_not_delivered(
    tmp_path: Path, spoil: str
) -> None:
    """Bytes that come from far away are checked: their sums, and that they are the messages that were asked for."""
    copy = Copy()

    async def live(api: BrokerApi) -> None:
        if spoil == "other":
            copy.records.reverse()
        elif spoil == "damaged":
            copy.records[1] = _damaged(copy.records[1])
        else:
            copy.records = [b"no record"] * 6
        assert shown(api.outlet.pull(wanted(1))) == ("OFFSET_TOO_SMALL", 4, [])
        assert api.figures.texts()["pluginErrors_tier"] == "1"

    run(tmp_path, copy, live)


def _damaged(record: bytes) -> bytes:
    """Return a record whose body (one byte) has another value."""
    at = record.index(b"\x00\x00\x00\x011") + 4
    return record[:at] + b"?" + record[at + 1 :]


def test_a_broker_start_fails_if_the_read_method_of_a_message_archive_is_a_coroutine(
    tmp_path: Path,
) -> None:
    """A pull cannot await it: the service returns no records at once, and wakes the pull when it has them."""

    class Late(Copy):
        async def read_older(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> None:  # type: ignore[override]
            ...

    async def live(api: BrokerApi) -> None: ...

    with pytest.raises(PluginError, match="read_older"):
        run(tmp_path, Late(), live)
