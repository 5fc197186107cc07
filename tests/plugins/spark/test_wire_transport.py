"""Pulling over the wire from a running broker, without Spark: offsets, limits, plans, rows, losses."""

from __future__ import annotations

import contextlib
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served

import flintmq.plugins.spark.wire.pulling as pulling
from flintmq.plugins.spark.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    SparkPluginError,
    UnknownTopicError,
)
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Bounds, Limit, Range
from flintmq.plugins.spark.store.transport import StoreTransport
from flintmq.plugins.spark.wire_transport import WireTransport

TOPIC = "orders"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A broker with 100, 50, 0 and 7 messages in the queues of a topic."""
    with Served(tmp_path) as one:
        one.create_topic(TOPIC)
        one.send(TOPIC, bodies(0, 100), 0, tags="even")
        one.send(TOPIC, bodies(1, 50), 1, tags="odd")
        one.send(TOPIC, bodies(3, 7), 3)
        yield one


def bodies(queue_id: int, count: int, first: int = 0) -> list[bytes]:
    """Bodies that no other message has."""
    return [f"{queue_id}:{number}".encode() for number in range(first, first + count)]


def transport(served: Served, **options: str) -> WireTransport:
    """A transport with options, the topic subscribed by default."""
    if "subscribePattern" not in options:
        options.setdefault("subscribe", TOPIC)
    if "brokerAddr" not in options:
        options["nameServer"] = served.namesrv
    return WireTransport(ReadOptions.parse(options))


def offset(*places: int) -> dict[str, Any]:
    """An offset of the topic's queues."""
    queues = {str(number): place for number, place in enumerate(places)}
    return {"v": 1, "transport": "broker", "queues": {TOPIC: {"broker-a": queues}}}


def places(found: dict[str, Any], topic: str = TOPIC) -> list[int]:
    """The other way round."""
    return list(found["queues"][topic]["broker-a"].values())


def rows(one: WireTransport, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of a plan, each part read by a copy, as workers do."""
    found: list[dict[str, Any]] = []
    for part in one.plan(start, end):
        for batch in pickle.loads(pickle.dumps(one)).read(pickle.loads(pickle.dumps(part))):
            found += batch.to_pylist()
    one.close()
    return found


def test_each_message_is_read_once_and_in_queue_order(served: Served) -> None:
    """Each message of each queue is one row with its place, in the order of its queue."""
    one = transport(served, pullBatchSize="7")
    start, end = one.initial("earliest"), one.final()
    assert (places(start), places(end)) == ([0, 0, 0, 0], [100, 50, 0, 7])
    found = rows(one, start, end)
    assert [(row["queueId"], row["queueOffset"], row["body"]) for row in found] == [
        (queue, number, f"{queue}:{number}".encode())
        for queue, count in ((0, 100), (1, 50), (3, 7))
        for number in range(count)
    ]
    assert {(row["topic"], row["brokerName"]) for row in found} == {(TOPIC, "broker-a")}
    assert {row["tags"] for row in found} == {"even", "odd", None}


def test_a_broker_is_read_without_a_name_server(served: Served) -> None:
    """brokerAddr is for whoever can reach a broker and no name server; patterns work there too."""
    one = transport(served, brokerAddr=served.address, subscribePattern="ord.*")
    assert len(rows(one, one.initial("earliest"), one.final())) == 157


def test_a_read_by_tag_omits_messages_whose_tag_has_an_equal_hash_but_different_text(served: Served) -> None:
    """Brokers compare hashes: 'AaAa' and 'BBBB' have one, and only one of them was asked for."""
    served.send(TOPIC, bodies(2, 5), 2, tags="AaAa")
    served.send(TOPIC, bodies(2, 5, 5), 2, tags="BBBB")
    one = transport(served, tags="BBBB || odd")
    found = rows(one, one.initial("earliest"), one.final())
    assert [row["tags"] for row in found] == ["odd"] * 50 + ["BBBB"] * 5


def test_a_read_begins_at_the_starting_offsets_that_its_options_name(served: Served) -> None:
    """earliest, latest, and each queue by itself with -1 and -2."""
    assert places(transport(served).initial("latest")) == [100, 50, 0, 7]
    named = json.dumps({TOPIC: {"broker-a": {"0": 40, "1": -1, "3": -2}}})
    one = transport(served, startingOffsets=named, endingOffsets=named)
    assert places(one.initial("earliest")) == [40, 50, 0, 0]
    assert places(one.final()) == [40, 50, 0, 0]
    one.close()
    for bad, says in (
        ({TOPIC: {"broker-a": {"0": 101}}}, "has 0 to 100, not 101"),
        ({TOPIC: {"broker-b": {"0": 1}}}, "at broker broker-b does not exist"),
        ({"broker-a": {"phys": 0}}, "are only for reads with load"),
    ):
        with contextlib.closing(transport(served, startingOffsets=json.dumps(bad))) as failing:  # noqa: SIM117
            with pytest.raises(OptionError, match=says):
                failing.initial("latest")


def test_a_read_over_the_wire_protocol_returns_exactly_the_messages_within_its_time_bounds(served: Served) -> None:
    """Brokers find the nearest message to a time; what is read must be those at or after it, and before the other."""
    one = transport(served)
    stored = [
        (int(row["storeTimestamp"].timestamp() * 1000), row["body"])
        for row in rows(one, one.initial("earliest"), one.final())
    ]
    middle = sorted(stored)[len(stored) // 2][0]
    for since, before in ((middle, None), (None, middle), (middle - 1, middle + 1)):
        options = {"startingTimestamp": since, "endingTimestamp": before}
        one = transport(served, **{name: str(value) for name, value in options.items() if value is not None})
        found = sorted(row["body"] for row in rows(one, one.initial("earliest"), one.final()))
        expected = sorted(
            body for at, body in stored if (since is None or at >= since) and (before is None or at < before)
        )
        assert found == expected


def test_a_spark_read_can_start_at_a_given_number_of_messages_before_the_end_of_each_queue(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last messages of each queue, or what came since; files and wire say the same."""
    store = {"path": str(served.folder / "store"), "subscribe": TOPIC, "visibility": "dispatched"}
    for start, rows_found in (("-20", 20 + 20 + 7), ("-1h", 157), ("-1000", 157)):
        one = transport(served, startingOffsets=start)
        assert len(rows(one, one.initial("latest"), one.final())) == rows_found
        files = StoreTransport(ReadOptions.parse({**store, "startingOffsets": start}))
        parts = files.plan(files.initial("latest"), files.final())
        assert sum(batch.num_rows for part in parts for batch in files.read(part)) == rows_found
    one = transport(served)
    stored = sorted(
        int(row["storeTimestamp"].timestamp() * 1000) for row in rows(one, one.initial("earliest"), one.final())
    )
    for at_ms in (stored[0], stored[len(stored) // 2], stored[-1] + 1):
        monkeypatch.setattr(
            "flintmq.plugins.spark.wire_transport.time.time", lambda at_ms=at_ms: (at_ms + 5_000) / 1000
        )
        late = transport(served, startingTimestamp="-5s")
        assert len(rows(late, late.initial("latest"), late.final())) == sum(at >= at_ms for at in stored)


def test_a_starting_time_in_the_future_is_an_error_by_default(served: Served) -> None:
    """A mistyped time must not silently read nothing, unless that is what was asked for."""
    late = str(int(time.time() * 1000) + 3_600_000)
    with contextlib.closing(transport(served, startingTimestamp=late)) as one:  # noqa: SIM117
        with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
            one.initial("latest")
    one = transport(served, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert rows(one, one.initial("latest"), one.final()) == []


def test_a_batch_of_at_most_20_messages_includes_every_queue_with_unread_messages(served: Served) -> None:
    """A batch has at most so many messages, every queue takes part, and batch by batch everything comes."""
    one = transport(served)
    at, end, batches = one.initial("earliest"), one.final(), 0
    while at != end:
        further = one.limited(at, end, Limit(max_rows=20))
        taken = [b - a for a, b in zip(places(at), places(further), strict=True)]
        assert 0 < sum(taken) <= 20
        assert all(taken[queue] for queue in range(4) if places(at)[queue] < places(end)[queue])
        at, batches = further, batches + 1
    assert batches >= 157 // 20
    small = one.limited(one.initial("earliest"), end, Limit(max_bytes=1))
    assert sum(places(small)) == 1
    assert one.rows_between(one.initial("earliest"), end, 1) == 157
    one.close()


def test_a_batch_is_divided_into_the_wanted_number_of_partitions_of_equal_size(served: Served) -> None:
    """minPartitions is reached, each message is in one part, and a queue is cut where that is needed."""
    one = transport(served, minPartitions="8")
    parts = one.plan(one.initial("earliest"), one.final())
    assert [sum(r.rows for r in part) for part in parts] == [20] * 7 + [17]
    assert len(transport(served).plan(offset(0, 0, 0, 0), offset(0, 0, 0, 0))) == 0
    one.close()
    with contextlib.closing(transport(served)) as whole:
        assert len(whole.plan(offset(0, 0, 0, 0), offset(100, 50, 0, 7))) == 1


def test_messages_excluded_by_filters_are_not_pulled(served: Served) -> None:
    """Bounds of the query's filters narrow topics, queues, offsets, times and tags; Spark filters again."""
    one = transport(served).narrowed(Bounds(queue_id=Range(0, 1), queue_offset=Range(45, 60)))
    parts = one.plan(offset(0, 0, 0, 0), offset(100, 50, 0, 7))
    assert sum(r.rows for part in parts for r in part) == 16 + 5
    one.close()
    assert transport(served).narrowed(Bounds(topics=frozenset({"other"}))).plan(offset(0), offset(9)) == []
    both = transport(served, tags="even").narrowed(Bounds(tags=frozenset({"odd"})))
    assert rows(both, offset(0, 0, 0, 0), offset(100, 50, 0, 7)) == []
    odd = transport(served).narrowed(Bounds(tags=frozenset({"odd"})))
    assert len(rows(odd, offset(0, 0, 0, 0), offset(100, 50, 0, 7))) == 50


def test_new_queues_of_a_topic_are_read_from_their_first_message(served: Served) -> None:
    """A topic that grows while a query is down must not lose what the new queues got meanwhile."""
    one = transport(served)
    before = one.latest()
    served.create_topic(TOPIC, queues=6)
    served.send(TOPIC, bodies(5, 9), 5)
    found = rows(one, one.checked(before), one.latest())
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [(5, number) for number in range(9)]


def test_checkpoints_keep_the_queues_of_a_broker_that_is_down(served: Served) -> None:
    """Its queues leave the route; a checkpoint without them would read them anew, from the first message, when it is back."""
    away = {
        "v": 1,
        "transport": "broker",
        "queues": {TOPIC: {"broker-a": {"0": 100}}, "other": {"broker-b": {"0": 77}}},
    }
    with contextlib.closing(transport(served)) as one:
        for limit in (Limit(), Limit(max_rows=10)):
            further = one.limited(away, one.latest(), limit)
            assert further["queues"]["other"] == {"broker-b": {"0": 77}}
            assert places(further)[0] == 100


def test_a_checkpoint_with_an_unknown_format_or_a_nonexistent_queue_or_offset_is_refused(served: Served) -> None:
    """An offset of files, of a later version, beyond a queue's end, or of a queue that is no more is never taken for ours."""
    with contextlib.closing(transport(served)) as one:
        for bad, says in (
            ({"v": 1, "transport": "store", "phys": 7}, "transport 'store'"),
            ({**offset(1), "v": 2}, "version 2"),
            ({"v": 1, "transport": "broker", "queues": {TOPIC: {"broker-a": {"0": -5}}}}, "cannot be read"),
            (offset(101), "the queue ends at 100"),
            (offset(0, 0, 0, 0, 9), "queue 4 of topic orders at broker broker-a does not exist any more"),
        ):
            with pytest.raises(CheckpointError, match=says):
                one.checked(bad)
    with contextlib.closing(transport(served, failOnDataLoss="false")) as one:
        assert places(one.checked(offset(101, 0, 0, 0, 9))) == [100, 0, 0, 0, 9]


def test_a_deleted_topic_with_unread_messages_is_reported_as_data_loss(served: Served) -> None:
    """It must stop the query, or be passed over when that was asked for; its places stay in any case."""
    served.create_topic("other")
    names = f"{TOPIC},other"
    served.send("other", bodies(0, 10), 0)
    with contextlib.closing(transport(served, subscribe=names)) as one:
        start = one.initial("earliest")
        some = one.limited(start, one.latest(), Limit(max_rows=10))
        everything = one.limited(some, one.latest(), Limit())
        served.delete_topic("other")
        with pytest.raises(
            CheckpointError, match=r"of topic other .* does not exist any more, and its messages \d to 9 were not read"
        ):
            one.checked(some)
        assert one.checked(everything) == everything
        assert list(one.latest()["queues"]) == [TOPIC]
        assert one.limited(everything, one.latest(), Limit()) == everything
        with pytest.raises(UnknownTopicError, match="there is no topic other"):
            one.initial("earliest")
    with contextlib.closing(transport(served, subscribe=names, failOnDataLoss="false")) as lenient:
        assert lenient.checked(some) == some


def test_messages_deleted_after_the_planning_of_a_read_are_an_error_if_fail_on_data_loss_is_on(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between planning and reading a queue may lose its tail or its topic's data: an error, or a warning and on."""
    monkeypatch.setattr(pulling, "PATIENCE_PAUSE_S", 0.001)
    one = transport(served)
    (part,) = one.plan(offset(95, 50, 0, 7), offset(105, 50, 0, 7))
    one.close()
    with pytest.raises(DataLossError, match=r"queue offset 100: .* the queue ends at 100.*failOnDataLoss"):
        list(one.read(part))
    lossy = transport(served, failOnDataLoss="false")
    assert sum(batch.num_rows for batch in lossy.read(part)) == 5
    assert "the read continues" in caplog.text


def test_consumer_offsets_are_committed_only_with_the_option_commit_group(served: Served) -> None:
    """commitGroup shows a query's lag in the broker's tools; without it nothing is written there."""
    with contextlib.closing(transport(served)) as silent:
        silent.commit(offset(10, 5, 0, 7))
    with contextlib.closing(transport(served, commitGroup="spark-lag")) as one:
        one.commit(offset(10, 5, 0, 7))
    assert served.committed("spark-lag", TOPIC, 0) == 10
    assert served.committed("spark-lag", TOPIC, 3) == 7
    assert served.committed("FLINTMQ_SPARK", TOPIC, 0) == 0  # as of a group that nobody knows


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"subscribe": "nope"}, UnknownTopicError, "no topic nope; see the option 'subscribe'"),
        ({"subscribe": TOPIC, "nameServer": "nowhere"}, SparkPluginError, "nameServer nowhere"),
    ],
)
def test_errors_about_topics_and_addresses_name_the_option_to_correct(
    served: Served, options: dict[str, str], kind: type[Exception], says: str
) -> None:
    """The user knows the option, and not the request that failed."""
    with contextlib.closing(WireTransport(ReadOptions.parse({"nameServer": served.namesrv, **options}))) as one:  # noqa: SIM117
        with pytest.raises(kind, match=says):
            one.initial("latest")


def test_credentials_are_read_from_the_environment(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are never options, which end in plans; half of them is a mistake that is told."""
    monkeypatch.setenv("FLINT_ACCESS_KEY", "abc")
    with pytest.raises(OptionError, match=r"FLINT_ACCESS_KEY and FLINT_SECRET_KEY.* must both be set"):
        transport(served).latest()
