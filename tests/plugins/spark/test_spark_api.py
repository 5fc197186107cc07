"""One interface over PySpark 4.0 to 4.3: what an older one lacks is made up for, without one of them installed."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions, types

from flintmq.plugins.spark import source, spark_api
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.ports import Limit

OPTIONS = {"path": "/data/store", "maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "5"}


class Numbers:
    """A transport of whole numbers."""

    def __init__(self) -> None:
        self.end = 100
        self.checked_at: list[int] = []
        self.limits: list[Limit] = []
        self.committed: list[int] = []

    def initial(self, default: str) -> dict[str, int]:
        return {"n": 0 if default == "earliest" else self.end}

    def latest(self) -> dict[str, int]:
        return {"n": self.end}

    def checked(self, offset: dict[str, int]) -> dict[str, int]:
        self.checked_at.append(offset["n"])
        return offset

    def limited(self, start: dict[str, int], end: dict[str, int], limit: Limit) -> dict[str, int]:
        self.limits.append(limit)
        return {"n": min(end["n"], start["n"] + (limit.max_rows or 10**9))}

    def rows_between(self, start: dict[str, int], end: dict[str, int], enough: int) -> int:
        return end["n"] - start["n"]

    def commit(self, end: dict[str, int]) -> None:
        self.committed.append(end["n"])

    def plan(self, start: dict[str, int], end: dict[str, int]) -> list[tuple[int, int]]:
        assert start != end
        return [(start["n"], end["n"])]


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


def reader(numbers: Numbers) -> Any:
    return source.StreamReader(numbers, ReadOptions.parse(OPTIONS))  # type: ignore[arg-type]


def test_the_initial_offset_is_at_most_the_end_offset_even_if_pyspark_requests_the_end_offset_first(
    numbers: Numbers,
) -> None:
    """PySpark before 4.2 calls latestOffset, then initialOffset: what comes between must not be skipped, or read backwards."""
    one = reader(numbers)
    numbers.end = 100
    end = one.latestOffset()
    numbers.end = 150
    assert one.initialOffset() == {"n": 100}
    assert end == {"n": 100}
    assert one.partitions(one.initialOffset(), end) == []
    assert numbers.checked_at == []


def test_a_restarted_query_checks_its_checkpoint_before_the_next_batch(numbers: Numbers) -> None:
    """Spark plans an empty batch first, from which the reader learns the offset."""
    one = reader(numbers)
    assert one.partitions({"n": 40}, {"n": 40}) == []
    assert one.latestOffset() == {"n": 100}
    assert numbers.checked_at == [40]


def test_the_first_batch_of_a_stream_has_no_size_limit_and_all_later_batches_are_limited(numbers: Numbers) -> None:
    """The first one may be all that a query with AvailableNow asks for: a limit would end it too early."""
    one = reader(numbers)
    one.partitions({"n": 40}, {"n": 40})
    first = one.latestOffset()
    assert first == {"n": 100}
    one.partitions({"n": 40}, first)
    numbers.end = 104
    assert one.latestOffset() == first  # fewer than minOffsetsPerTrigger
    numbers.end = 200
    assert one.latestOffset() == {"n": 110}
    assert [limit.max_rows for limit in numbers.limits] == [None, 10]


def test_the_source_uses_the_start_offset_that_spark_gives_for_a_batch(numbers: Numbers) -> None:
    """PySpark 4.2 and later give the reader the start offset and the limit of a batch."""
    one = reader(numbers)
    assert one.latestOffset({"n": 40}, one.getDefaultReadLimit()) == {"n": 50}
    assert one.latestOffset({"n": 50}, spark_api.ReadAllAvailable()) == {"n": 100}


@pytest.mark.parametrize(("condition", "passes"), [("DATA_SOURCE_ALREADY_EXISTS", True), ("ANOTHER", False)])
def test_registering_a_spark_source_that_is_already_registered_succeeds(condition: str, passes: bool) -> None:
    """Where flintmq is installed, Spark has found it; only 4.2 and later replace it."""

    class Refusal(AnalysisException):
        def getCondition(self) -> str:  # noqa: N802 - Spark's name
            return condition

    class Session:
        class dataSource:  # noqa: N801 - Spark's name
            @staticmethod
            def register(_source: Any) -> None:
                raise Refusal("known")

    if passes:
        spark_api.register_source(Session(), source.FlintMQDataSource)
    else:
        with pytest.raises(AnalysisException):
            spark_api.register_source(Session(), source.FlintMQDataSource)


VALUE = {
    "id": 7,
    "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
    "price": decimal.Decimal("0.07"),
    "whole": 3,
    "some": {"a": [{"x": 1}], "b": []},
}


def test_values_are_decoded_one_by_one_if_spark_has_no_arrow_udf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark then needs dictionaries for maps, and a float for a whole number in a column of doubles."""
    inner = types.StructType().add("x", types.LongType())
    result = (
        types.StructType()
        .add("id", types.LongType())
        .add("at", types.TimestampType())
        .add("price", types.DecimalType(9, 2))
        .add("whole", types.DoubleType())
        .add("some", types.MapType(types.StringType(), types.ArrayType(inner)))
    )
    arrow_type = spark_api.to_arrow_type(result)
    made: list[Any] = []
    monkeypatch.delattr(functions, "arrow_udf", raising=False)
    monkeypatch.setattr(functions, "udf", lambda function, **_type: made.append(function) or (lambda column: column))
    spark_api.arrow_column(
        lambda bodies: pa.array([None if one is None else VALUE for one in bodies.to_pylist()], arrow_type),
        "column",  # type: ignore[arg-type]
        result,
    )
    found = made[0](bytearray(b"body"))
    assert found == VALUE
    assert isinstance(found["whole"], float)
    assert result.toInternal(found)
    assert made[0](None) is None


def test_timestamps_are_in_utc_with_every_pyspark_version() -> None:
    """Versions of PySpark name the argument for the time zone differently."""
    schema = spark_api.to_arrow_schema(types.StructType().add("at", types.TimestampType()))
    assert schema.field("at").type == pa.timestamp("us", tz="UTC")
