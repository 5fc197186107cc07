"""A group's filter outlives its members for a day; bit maps are only believed where they were made with this very filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flintmq.core import limits
from flintmq.core.broker.consumers import ConsumerTable
from flintmq.core.broker.subscription import SubscriptionData, build_subscription
from flintmq.core.errors import StoreError
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import BitMapFilter
from flintmq.core.record.bloom import BloomFilter
from flintmq.plugins.filters.consumer_filter_data import ConsumerFilterData, DeadFilters
from flintmq.plugins.filters.consumer_filters import PER_EXPECTED, ConsumerFilterManager
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel

DAY_MS = 24 * 3600 * 1000
BLOOM = BloomFilter(20, 32)


def manager(clock: ManualClock, path: Path | None = None, bloom: BloomFilter = BLOOM) -> ConsumerFilterManager:
    return ConsumerFilterManager(clock, {"SQL92": sql92_filter}, bloom, JsonFile(path) if path else None)


def sql(topic: str, expression: str, version: int) -> SubscriptionData:
    return build_subscription(topic, expression, "SQL92", version)


def expressions(made: ConsumerFilterManager, topic: str = "T") -> list[str]:
    """Return the expressions that are evaluated for bit maps."""
    return [data.expression for data in made.of_topic(topic) if isinstance(data, ConsumerFilterData)]


def dead_positions(made: ConsumerFilterManager, topic: str = "T") -> list[int]:
    """Return the positions that are set without a look at the message."""
    dead = [data for data in made.of_topic(topic) if isinstance(data, DeadFilters)]
    assert len(dead) < 2
    return [at for data in dead if data.bloom is not None for at in data.bloom.bit_pos]


def test_a_subscription_with_an_older_version_does_not_replace_the_filter_of_its_group() -> None:
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


def test_registering_an_expression_that_cannot_be_parsed_removes_the_previous_filter_of_the_group() -> None:
    """The client is told; the old filter is not its subscription any more."""
    made = manager(ManualClock())
    made.register("g", [sql("T", "a >", 1)])
    assert len(made) == 0
    made.register("g", [sql("T", "a > 1", 2)])
    made.register("g", [sql("T", "a >", 3)])
    made.register("g", [SubscriptionData(topic="U", sub_string="x", expression_type="UNHEARD", sub_version=1)])
    assert len(made) == 0
    assert made.of_topic("T") == ()


def test_a_filter_is_removed_a_day_after_the_last_consumer_of_its_group_disconnected() -> None:
    """Bit maps of before are believed when a group that was away for a night is back; meanwhile its filter costs nothing."""
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
    assert expressions(made) == []
    assert dead_positions(made) == sorted(BLOOM.positions("g#T").bit_pos)
    table.register("g", channel, "c", [sql("T", "a > 1", 1)])
    assert dead_positions(made) == []
    clock.advance_ms(1_000)
    made.clean()
    assert (expressions(made), expressions(made, "U")) == (["a > 1"], [])
    table.close_channel(channel)
    clock.advance_ms(DAY_MS)
    made.clean()
    assert len(made) == 0


def test_filters_survive_a_restart_and_are_inactive_until_a_heartbeat(tmp_path: Path) -> None:
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
    assert expressions(again) == []
    assert again.persist()
    again.register("g", [sql("T", "a > 1 AND b = 'ü'", 7)])
    assert expressions(again) == ["a > 1 AND b = 'ü'"]


def test_a_filter_file_made_for_a_bloom_filter_of_another_size_is_ignored(tmp_path: Path) -> None:
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
def test_a_malformed_filter_file_is_ignored(tmp_path: Path, value: Any) -> None:
    """The file only saves work: whatever it holds, the broker starts."""
    file = JsonFile(tmp_path / "consumerFilter.json")
    file.save(value)
    assert not manager(ManualClock(), file.path).load()


def test_a_bit_map_that_is_older_than_the_consumer_filter_rejects_no_message() -> None:
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


# bounds: heartbeats need no rights


def test_the_number_of_filters_per_topic_is_bounded() -> None:
    """With more groups than twice those that a bit map is made for, it tells nothing, and each costs every message."""
    made = manager(ManualClock())
    for number in range(PER_EXPECTED * 32 + 5):
        made.register(f"g{number}", [sql("T", "a > 1", 1)])
    assert (len(made), made.left_out) == (PER_EXPECTED * 32, 5)
    assert made.find("T", "g0") is not None
    made.unregister("g7")
    made.register("late", [sql("T", "a > 1", 1)])
    assert made.find("T", "late") is not None, "it has the place of one whose group has left"
    assert made.find("T", "g7") is None


def test_the_number_of_filters_is_bounded_per_group_and_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 filters made a write of more than a second, every ten seconds."""
    clock = ManualClock()
    made = ConsumerFilterManager(clock, {"SQL92": sql92_filter}, BLOOM, count_max=400)
    made.register("greedy", [sql(f"T{number}", "a > 1", 1) for number in range(300)])
    assert len(made) == limits.CONSUMER_FILTERS_PER_GROUP_MAX
    made.register("other", [sql(f"T{number}", "a > 1", 1) for number in range(200)])
    assert len(made) == 400
    made.unregister("greedy")
    made.register("third", [sql(f"T{number}", "a > 1", 1) for number in range(100)])
    assert (len(made), len(expressions(made, "T99"))) == (400, 2)
    monkeypatch.setattr(limits, "CONSUMER_FILTERS_MAX_BYTES", 1000)
    wide = manager(clock)
    for number in range(10):
        wide.register(f"g{number}", [sql("T", f"a = '{'x' * 200}'", 1)])
    assert len(wide) == 4


def test_the_total_length_of_the_filter_expressions_compiled_in_one_second_is_limited() -> None:
    """A heartbeat of 1 MB of expressions would keep the loop for more than half a second."""
    clock = ManualClock()
    made = manager(clock)
    long = [sql(f"T{number}", f"a = '{'x' * 16_000}'", 1) for number in range(40)]
    made.register("g", long)
    kept = len(made)
    assert kept == -(-limits.CONSUMER_FILTERS_COMPILED_BYTES_PER_S // 16_006)
    made.register("g", long)
    assert len(made) == kept
    clock.advance_ms(1_000)
    made.register("g", long)
    assert len(made) == 2 * kept, "the next heartbeat brings the others"


def test_a_waiting_pull_ignores_the_bloom_filter_if_its_group_has_a_new_sql_expression() -> None:
    """What is stored from then on has not its bits: a message that fits would be passed over."""
    clock = ManualClock()
    made = manager(clock)
    made.register("g", [sql("T", "a > 1", 1)])
    held = made.backed("T", "g", "SQL92", sql92_filter("a > 1", frozenset()), "a > 1")
    assert isinstance(held, BitMapFilter)
    later_ms = clock.now_ms() + 5
    assert not held.matches_bit_map(BLOOM.bit_map([]), later_ms)
    made.register("g", [sql("T", "a > 2", 2)])
    assert held.matches_bit_map(BLOOM.bit_map([]), later_ms), "the bits are those of the new expression"
    made.forget_group("g")
    assert len(made) == 0


def test_only_the_newest_filters_are_loaded_from_a_file_with_too_many_filters(tmp_path: Path) -> None:
    """The newest stay; the file shrinks with the next write."""
    clock = ManualClock()
    path = tmp_path / "consumerFilter.json"
    made = manager(clock, path)
    for number in range(50):
        made.register(f"g{number}", [sql("T", "a > 1", 1)])
        clock.advance_ms(1)
        made.unregister(f"g{number}")
    made.persist()
    again = ConsumerFilterManager(clock, {"SQL92": sql92_filter}, BLOOM, JsonFile(path), count_max=20)
    assert again.load()
    assert len(again) == 20
    assert again.find("T", "g49") is not None
    assert again.persist()
    groups = JsonFile(path).load()["filterDataByTopic"]["T"]["groupFilterData"]
    assert sorted(groups) == [f"g{number}" for number in range(30, 50)]


def test_writing_the_filter_file_encodes_only_changed_filters_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One heartbeat must not cost as much as all filters together; and the file is as if it were written at once."""
    path = tmp_path / "consumerFilter.json"
    made = manager(ManualClock(), path)
    made.register("g", [sql(f"T{number}", "a > 1", 1) for number in range(200)])
    made.persist()
    rendered: list[object] = []
    pretty = fastjson.dumps_pretty

    def noted(value: object) -> str:
        rendered.append(value)
        return pretty(value)

    monkeypatch.setattr(fastjson, "dumps_pretty", noted)
    made.register("h", [sql("T7", "a > 2", 1)])
    made.persist()
    assert len(rendered) == 1
    text = path.read_text("utf-8")
    assert text == pretty(fastjson.loads(text))
    assert len(fastjson.loads(text)["filterDataByTopic"]) == 200
    assert "a > 2" in text
    made.forget_group("g")
    made.forget_topic("T7")
    made.persist()
    assert path.read_text("utf-8") == pretty({"filterDataByTopic": {}})


def test_filters_are_written_again_after_a_failed_write(tmp_path: Path) -> None:
    """A full disk passes; the filters of then are still there."""
    blocked = tmp_path / "config"
    blocked.write_text("a file where the folder should be")
    made = manager(ManualClock(), blocked / "consumerFilter.json")
    made.register("g", [sql("T", "a > 1", 1)])
    with pytest.raises(StoreError):
        made.persist()
    blocked.unlink()
    assert made.persist()
