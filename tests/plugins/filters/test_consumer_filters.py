"""A group's filter outlives its members for a day; bit maps are only believed where they were made with this very filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import BitMapFilter
from flintmq.core.record.bloom import BloomFilter
from flintmq.core.testing.clock import ManualClock
from flintmq.core.testing.processor_kit import RecordingChannel
from flintmq.plugins.filters.consumer_filters import ConsumerFilterManager
from flintmq.plugins.filters.sql92 import sql92_filter

DAY_MS = 24 * 3600 * 1000
BLOOM = BloomFilter(20, 32)


def manager(clock: ManualClock, path: Path | None = None, bloom: BloomFilter = BLOOM) -> ConsumerFilterManager:
    return ConsumerFilterManager(clock, {"SQL92": sql92_filter}, bloom, JsonFile(path) if path else None)


def sql(topic: str, expression: str, version: int) -> SubscriptionData:
    return build_subscription(topic, expression, "SQL92", version)


def expressions(made: ConsumerFilterManager, topic: str = "T") -> list[str]:
    return [data.expression for data in made.of_topic(topic)]


def test_only_the_newest_subscription_counts() -> None:
    """Members of one group restart one after the other: an old one's heartbeat must not bring the old filter back."""
    clock = ManualClock()
    made = manager(clock)
    made.register("g", [sql("T", "a > 1", 5), build_subscription("Tags", "A")])
    first = made.find("T", "g")
    assert first is not None
    assert (len(made), expressions(made), made.of_topic("Tags")) == (1, ["a > 1"], ())
    clock.advance_ms(1_000)
    made.register("g", [sql("T", "a > 2", 4)])
    made.register("g", [sql("T", "a > 1", 9)])
    assert made.find("T", "g") is first
    assert first.client_version == 9
    made.register("g", [sql("T", "a > 2", 10)])
    second = made.find("T", "g")
    assert second is not None
    assert (second.expression, second.born_time_ms) == ("a > 2", first.born_time_ms + 1000)


def test_what_does_not_parse_is_not_kept() -> None:
    """The client is told; the old filter is not its subscription any more."""
    made = manager(ManualClock())
    made.register("g", [sql("T", "a >", 1)])
    assert len(made) == 0
    made.register("g", [sql("T", "a > 1", 2)])
    made.register("g", [sql("T", "a >", 3)])
    made.register("g", [SubscriptionData(topic="U", sub_string="x", expression_type="UNHEARD", sub_version=1)])
    assert len(made) == 0
    assert made.of_topic("T") == ()


def test_a_filter_dies_with_its_group_and_is_forgotten_a_day_later() -> None:
    """Bit maps go on being computed for a group that is away for a night, not for one that is gone."""
    clock = ManualClock()
    made = manager(clock)
    table = ConsumerTable(clock)
    table.registered.subscribe(made.register)
    table.unregistered.subscribe(made.unregister)
    channel = RecordingChannel()
    table.register("g", channel, "c", [sql("T", "a > 1", 1), sql("U", "a > 1", 1)])
    table.register("g", channel, "c", [sql("T", "a > 1", 1)])
    dead = {topic: data.is_dead for topic in "TU" if (data := made.find(topic, "g")) is not None}
    assert dead == {"T": False, "U": True}
    table.close_channel(channel)
    clock.advance_ms(DAY_MS - 1000)
    made.clean()
    assert expressions(made) == ["a > 1"]
    table.register("g", channel, "c", [sql("T", "a > 1", 1)])
    clock.advance_ms(1_000)
    made.clean()
    assert (expressions(made), expressions(made, "U")) == (["a > 1"], [])
    table.close_channel(channel)
    clock.advance_ms(DAY_MS)
    made.clean()
    assert len(made) == 0


def test_the_file_is_read_and_written(tmp_path: Path) -> None:
    """After a restart the same bits mean the same groups, and nobody is taken to be alive."""
    clock = ManualClock()
    path = tmp_path / "consumerFilter.json"
    made = manager(clock, path)
    assert not made.load()
    assert not made.persist()
    made.register("g", [sql("T", "a > 1 AND b = 'ü'", 7)])
    assert made.persist()
    assert not made.persist()
    clock.advance_ms(60_000)
    again = manager(clock, path)
    assert again.load()
    found, before = again.find("T", "g"), made.find("T", "g")
    assert found is not None
    assert before is not None
    assert found.to_wire() == before.to_wire() | {"dead": True, "deadTime": clock.now_ms() - 30_000}
    assert expressions(again) == ["a > 1 AND b = 'ü'"]
    assert again.persist()


def test_another_bloom_filter_forgets_the_file(tmp_path: Path) -> None:
    """Positions of another size cannot be compared with what is computed from now on."""
    path = tmp_path / "consumerFilter.json"
    made = manager(ManualClock(), path)
    made.register("g", [sql("T", "a > 1", 7)])
    made.persist()
    other = manager(ManualClock(), path, BloomFilter(10, 32))
    assert not other.load()
    assert len(other) == 0


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"filterDataByTopic": 5},
        {
            "filterDataByTopic": {
                "T": 5,
                "U": {"groupFilterData": {"g": 5, "h": {"topic": "U"}, "i": {"bornTime": "x"}}},
            }
        },
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"bloomFilterData": {"bitNum": 8, "bitPos": [9]}}}}}},
    ],
)
def test_a_file_of_other_content_is_no_filter(tmp_path: Path, value: Any) -> None:
    """The file only saves work: whatever it holds, the broker starts."""
    file = JsonFile(tmp_path / "consumerFilter.json")
    file.save(value)
    assert not manager(ManualClock(), file.path).load()


def test_a_bit_map_is_believed_only_with_the_filter_it_was_made_with() -> None:
    """A wrong no loses a message: when in doubt the message is looked at."""
    clock = ManualClock()
    made = manager(clock)
    made.register("g", [sql("T", "a > 1", 1)])
    compiled = sql92_filter("a > 1", frozenset())
    backed = made.backed("T", "g", "SQL92", compiled, "a > 1")
    assert isinstance(backed, BitMapFilter)
    assert backed.needs_properties
    assert backed.matches_tags_code(1)
    assert backed.matches_properties({"a": "2"})
    data = made.find("T", "g")
    assert data is not None
    assert data.bloom is not None
    hit, miss, born_ms = BLOOM.bit_map([data.bloom]), BLOOM.bit_map([]), data.born_time_ms
    assert [backed.matches_bit_map(bits, born_ms + 1) for bits in (hit, miss)] == [True, False]
    assert backed.matches_bit_map(miss, born_ms), "made before the filter was known"
    assert backed.matches_bit_map(miss + b"\0", born_ms + 1), "made with another bloom filter"
    assert made.backed("T", "g", "SQL92", compiled, "a > 2") is compiled, "the pull brings another expression"
    assert made.backed("T", "other", "SQL92", compiled, "a > 1") is compiled
