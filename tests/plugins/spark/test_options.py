"""Options are read as users of Spark expect, and a mistake is an error that says what to change."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from flintmq.plugins.spark.errors import OptionError, SchemaError, SparkPluginError
from flintmq.plugins.spark.option_values import EARLIEST, LATEST, Place, place, start
from flintmq.plugins.spark.options import READ_OPTIONS, ReadOptions
from flintmq.plugins.spark.ports import ANY
from flintmq.plugins.spark.schema import ALL_NAMES

SAMPLES = {
    "startingTimestamp": "1764068058123",
    "endingTimestamp": "20251125",
    "path": "/data/store",
    "nameServer": "h:9876",
    "brokerAddr": "h:10911",
    "subscribe": "a, b",
    "subscribePattern": "orders-.*",
    "queues": '{"a": [0, 1]}',
    "tags": "x || y",
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "latest",
    "maxBytesPerTrigger": "64m",
    "maxPartitionBytes": "1g",
    "batchBytes": "4mb",
    "maxTriggerDelay": "30s",
    "columns": "topic, BODY",
    "visibility": "Dispatched",
    "badRecords": "skip",
    "propertiesFormat": "json",
    "brokerName": "broker-a",
    "commitLogPath": "/a,/b",
    "commitGroup": "g",
    "failOnDataLoss": "false",
    **dict.fromkeys(["includeSystemTopics", "verifyCrc", "rawBody", "pushdown"], "TRUE"),
}


def given(name: str, value: str) -> dict[str, str]:
    """An option with whatever it needs beside it."""
    option = next(one for one in READ_OPTIONS.values() if one.name == name)
    if name in ("path", "nameServer", "brokerAddr"):
        beside = {} if name == "path" else {"subscribe": "a"}
    elif option.only == "broker":
        beside = {"nameServer": "h:9876", "subscribe": "a"}
    else:
        beside = {"path": "/data/store"}
    return {**beside, name: value}


@pytest.mark.parametrize("option", READ_OPTIONS.values(), ids=lambda one: one.name)
def test_each_option_is_accepted_under_its_name_and_its_aliases_in_any_letter_case(option: Any) -> None:
    """Spark hands names over in lower case; a value must change exactly its own attribute."""
    value = SAMPLES.get(option.name, "7")
    plain = ReadOptions.parse(given("path", "/data/store"))
    found = ReadOptions.parse(given(option.name, value))
    for name in (option.name.lower(), option.name.upper(), *option.aliases):
        beside = {key: text for key, text in given(option.name, value).items() if key != option.name}
        assert ReadOptions.parse({**beside, name: value}) == found
    assert option.name == "path" or found != plain
    assert pickle.loads(pickle.dumps(found)) == found


def test_keeping_bad_records_adds_the_column_bad_record_unless_columns_are_chosen() -> None:
    """A read without the option has the same columns as before."""
    assert ReadOptions.parse({"path": "/s", "badRecords": "keep"}).columns == (*ALL_NAMES, "badRecord")
    assert ReadOptions.parse({"path": "/s", "badRecords": "keep", "columns": "body"}).columns == ("body",)


def test_values_of_options_are_parsed_with_their_units() -> None:
    """One of each kind, with Spark's units: m and mb are 1024 squared."""
    options = ReadOptions.parse(
        {
            "path": "/s",
            "topic": "a,b , a",
            "subExpression": "x||y ||x",
            "maxbytespertrigger": "64m",
            "maxPartitionBytes": "1MB",
            "batchBytes": "100",
            "maxTriggerDelay": "15m",
            "columns": "body,TOPIC",
            "queues": '{"a":[1,0]}',
        }
    )
    assert options.subscribe == ("a", "b")
    assert options.tags == ("x", "y")
    assert (options.max_bytes_per_trigger, options.max_partition_bytes, options.batch_bytes) == (64 << 20, 1 << 20, 100)
    assert options.max_trigger_delay_ms == 900_000
    assert options.columns == ("body", "topic")
    assert options.queues == {"a": {0, 1}}
    assert ReadOptions.parse({"path": "/s", "tags": "*"}).tags == ()
    assert ReadOptions.parse({"path": "/s"}).columns == ALL_NAMES


def test_the_default_byte_limit_of_a_batch_applies_unless_the_number_of_messages_is_limited() -> None:
    """A first micro-batch that takes everything runs out of memory; who counts messages has chosen a limit."""
    assert ReadOptions.parse({"path": "/s"}).bytes_per_trigger == 256 << 20
    assert ReadOptions.parse({"path": "/s", "maxOffsetsPerTrigger": "5"}).bytes_per_trigger is None
    both = ReadOptions.parse({"path": "/s", "maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1k"})
    assert both.bytes_per_trigger == 1024


def test_the_starting_offset_may_be_given_as_a_number_of_messages_or_as_a_duration() -> None:
    """The time sets only the start, and does not move with each process as a filter would."""
    assert start("startingOffsets", "-100") == Place("rows", rows=100)
    assert start("startingOffsets", " -10m ") == Place("age", age_ms=600_000)
    assert start("startingOffsets", "latest") == LATEST
    options = ReadOptions.parse({"path": "/s", "startingTimestamp": "-2h"})
    assert options.starting_offsets == Place("age", age_ms=7_200_000)
    assert options.stored_ms == ANY
    iso = ReadOptions.parse({"path": "/s", "startingTimestamp": "2026-01-31T12:00:00Z"})
    assert iso.starting_timestamp_ms == 1_769_860_800_000


def test_offset_options_accept_earliest_and_latest_and_queue_offsets_and_log_positions() -> None:
    """rocketmq-spark's JSON with -2 and -1, and the physical form."""
    assert place("startingOffsets", " Earliest ") == EARLIEST
    assert place("startingOffsets", "latest") == LATEST
    found = place("startingOffsets", '{"t": {"broker-a": {"0": 23, "1": -1, "2": -2}}}')
    assert found.queue_offsets == {("t", "broker-a", 0): 23, ("t", "broker-a", 1): -1, ("t", "broker-a", 2): -2}
    assert place("endingOffsets", '{"broker-a": {"phys": 4096}}').physical_offsets == {"broker-a": 4096}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/s", "failOnDataLos": "false"}, "unknown option 'failOnDataLos'; did you mean 'failOnDataLoss'?"),
        ({"path": "/s", "kafka.bootstrap.servers": "h"}, "unknown option .* known are: path, nameServer"),
        ({}, "nameServer or option brokerAddr; given: none"),
        ({"path": "/s", "nameServer": "h:1"}, "given: path and nameServer"),
        ({"path": "/s", "topic": "a", "subscribe": "b"}, "subscribe is given twice"),
        ({"path": "/s", "subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern are both given"),
        ({"nameServer": "h:1"}, "needs the option subscribe"),
        ({"path": "/s", "pullBatchSize": "3"}, "pullBatchSize is only for reads with nameServer"),
        ({"nameServer": "h:1", "topic": "a", "visibility": "flushed"}, "visibility is only for reads with load"),
        (
            {"path": "/s", "startingOffsets": "latest", "startingTimestamp": "20260131"},
            "startingOffsets and startingTimestamp are both given",
        ),
        (
            {"path": "/s", "endingOffsets": "latest", "endingTimestamp": "20260131"},
            "endingOffsets and endingTimestamp are both given",
        ),
        ({"path": "/s", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than"),
        ({"path": "/s", "columns": "topic,bodi"}, "no column 'bodi'; did you mean 'body'"),
        ({"path": "/s", "columns": "topic,Topic"}, "names the column topic twice"),
        ({"path": " "}, "path is empty"),
        ({"path": "/s", "subscribe": ","}, "subscribe has no name in it"),
        ({"path": "/s", "subscribePattern": "("}, "not a regular expression"),
        ({"path": "/s", "failOnDataLoss": "yes"}, "must be true or false, not 'yes'"),
        ({"path": "/s", "maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"path": "/s", "maxOffsetsPerTrigger": "1e6"}, "whole number"),
        ({"path": "/s", "maxBytesPerTrigger": "64 parsecs"}, "must be a size"),
        ({"path": "/s", "maxTriggerDelay": "soon"}, "must be a duration"),
        ({"path": "/s", "visibility": "all"}, "flushed or dispatched or confirmed, not 'all'"),
        ({"path": "/s", "tags": "a || *"}, "tags separated by"),
        ({"path": "/s", "queues": "[1]"}, "must be JSON such as"),
        ({"path": "/s", "queues": '{"a": ["0"]}'}, "must be JSON such as .*Expected `int`, got `str`"),
        ({"path": "/s", "startingOffsets": "-0"}, "at least 1"),
        ({"path": "/s", "startingOffsets": "-soon"}, "neither a number of messages .* nor a time before now"),
        ({"path": "/s", "startingTimestamp": "-100"}, "needs a unit, such as -10m"),
        ({"path": "/s", "endingOffsets": "-100"}, "must be earliest, latest"),
        (
            {"path": "/s", "startingTimestamp": "-10m", "startingOffsets": "latest"},
            "startingOffsets and startingTimestamp are both given",
        ),
        ({"path": "/s", "startingOffsets": "soonest"}, "must be earliest, latest, .*not 'soonest'"),
        ({"path": "/s", "startingOffsets": "7"}, "must be earliest, latest"),
        (
            {"path": "/s", "startingOffsets": '{"t": {"b": 7}}'},
            "must be earliest, latest, .*Expected `object`, got `int`",
        ),
        ({"path": "/s", "startingOffsets": '{"t": {"b": {"0": -3}}}'}, "-2 earliest, -1 latest.*Expected `int` >= -2"),
        ({"path": "/s", "startingOffsets": '{"t": {"b": {"x": 3}}}'}, "Expected `int`, got `str` - at `key`"),
        ({"path": "/s", "startingOffsets": '{"b": {"phys": -1}}'}, "Expected `int` >= 0"),
        ({"path": "/s", "startingOffsets": '{"b": {"phys": true}}'}, "Expected `int`, got `bool`"),
        ({"path": "/s", "startingOffsets": "[" * 100_000}, "must be earliest, latest"),
    ],
)
def test_the_error_about_an_invalid_option_names_the_option(options: dict[str, str], message: str) -> None:
    """The error must come on the driver, before anything is opened."""
    with pytest.raises(SparkPluginError, match=message) as raised:
        ReadOptions.parse(options)
    assert isinstance(raised.value, OptionError | SchemaError)
    assert len(str(raised.value)) < 1_200
