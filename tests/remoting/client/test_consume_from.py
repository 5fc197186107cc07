"""Where consuming begins is written in one way, and in RocketMQ's; everything else is refused with what fits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import InvalidArgumentError
from flintmq.programs.cli.exits import CommandError
from flintmq.programs.cli.options import where
from flintmq.remoting.client.consume_from import FROM_FIRST, FROM_LAST, FROM_TIMESTAMP, begin_of
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import ConsumerSettings
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = 1_769_860_800_000
LOCAL_MS = int(datetime(2026, 1, 31, 12).timestamp() * 1000)
SPELLINGS: list[tuple[Any, tuple[str, int]]] = [
    ("first", (FROM_FIRST, 0)),
    ("last", (FROM_LAST, 0)),
    (FROM_FIRST, (FROM_FIRST, 0)),
    (FROM_LAST, (FROM_LAST, 0)),
    (NOON, (FROM_TIMESTAMP, NOON_MS)),
    (NOON.astimezone(timezone(timedelta(hours=8))), (FROM_TIMESTAMP, NOON_MS)),
    (NOON_MS, (FROM_TIMESTAMP, NOON_MS)),
    (str(NOON_MS), (FROM_TIMESTAMP, NOON_MS)),
    ("2026-01-31T12:00:00+00:00", (FROM_TIMESTAMP, NOON_MS)),
    ("2026-01-31T12:00", (FROM_TIMESTAMP, LOCAL_MS)),
    ("2026-01-31 12:00", (FROM_TIMESTAMP, LOCAL_MS)),
    (0, (FROM_TIMESTAMP, 0)),
]
WRONG: list[Any] = ["", "First", "earliest", "2026-13-01", "-1", -1, None, True, 1.5, 1_769_860_800, b"first", "9" * 40]


@pytest.mark.parametrize(("value", "begin"), SPELLINGS, ids=[str(value) for value, _ in SPELLINGS])
def test_every_spelling_of_consume_from_is_accepted(value: Any, begin: tuple[str, int]) -> None:
    assert begin_of(value) == begin
    settings = ConsumerSettings(consume_from=value)
    assert (settings.consume_from, settings.consume_from_timestamp_ms) == begin
    assert attrs.evolve(settings, concurrency=3).consume_from_timestamp_ms == begin[1]


@pytest.mark.parametrize("value", WRONG, ids=[repr(value)[:20] for value in WRONG])
def test_an_invalid_start_position_for_a_consumer_raises_invalid_argument_error(value: Any) -> None:
    for make in (begin_of, lambda value: ConsumerSettings(consume_from=value)):
        with pytest.raises(InvalidArgumentError, match="must be first, last, a time such as 2026-01-31T12:00"):
            make(value)


def test_consumer_settings_can_define_a_timestamp_from_which_consumption_starts() -> None:
    settings = ConsumerSettings(consume_from=FROM_TIMESTAMP, consume_from_timestamp_ms=NOON_MS)
    assert (settings.consume_from, settings.consume_from_timestamp_ms) == (FROM_TIMESTAMP, NOON_MS)


@pytest.mark.parametrize(("value", "begin"), [(value, begin) for value, begin in SPELLINGS if isinstance(value, str)])
def test_every_spelling_of_a_start_position_is_accepted_on_the_command_line(value: str, begin: tuple[str, int]) -> None:
    assert where(value, "--from") == begin


@pytest.mark.parametrize("value", [value for value in WRONG if isinstance(value, str)] + [FROM_TIMESTAMP])
def test_an_invalid_start_position_on_the_command_line_is_refused(value: str) -> None:
    with (
        CliRunner().isolation(),
        pytest.raises(CommandError, match=r"--from must be a time .*; first and last are accepted"),
    ):
        where(value, "--from")


@pytest.mark.parametrize(("place", "count"), [("first", 3), ("last", 0), (1_700_000_000_001, 2)])
def test_consumers_begin_at_the_position_configured_by_consume_from(place: Any, count: int) -> None:
    """Both kinds; the fake broker finds the second message at every time."""
    cluster = FakeCluster(Choices(3), brokers=1, queue_nums=1)
    queue = MessageQueue("broker-0", 0, "T")

    async def main() -> None:
        await cluster.start()
        for number in range(3):
            cluster.put(queue, b"%d" % number)
        async with PullConsumer("pull", cluster.address, clock=cluster.clock) as puller:
            await puller.assign("T", consume_from=place)
            assert puller.positions == {queue: 3 - count}
            with pytest.raises(InvalidArgumentError, match="give the time as consume_from"):
                await puller.assign("T", consume_from=FROM_TIMESTAMP)
        settings = ConsumerSettings(consume_from=place, commit_interval_s=1_000)
        async with Consumer(
            "push", cluster.address, lambda _message: None, settings=settings, clock=cluster.clock
        ) as it:
            await it.subscribe("T")
            while queue not in it.process_queues:  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.1)
            assert it.process_queues[queue].saved_offset == 3 - count

    cluster.loop.run(main())
