"""Options of tables in Spark's catalog, as Spark 4.0 to 4.3 hand them over: twice each, among properties, and only once."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")

from pyspark.sql.types import StructType

from flintmq.plugins.spark.errors import OptionError
from flintmq.plugins.spark.options import ReadOptions
from flintmq.plugins.spark.source import FlintMQDataSource
from flintmq.plugins.spark.sql_table import options_of_new_table, read_options, write_options

CREATED = {
    "subscribe": "a",
    "option.subscribe": "a",
    "nameserver": "h:9876",
    "option.nameserver": "h:9876",
    "sendbatch": "10",
    "option.sendbatch": "10",
    "owner": "root",
    "provider": "flintmq",
    "comment": "a table",
}
"""What Spark gives for ``CREATE TABLE t USING flintmq OPTIONS (nameServer 'h:9876', subscribe 'a', sendBatch '10') …``."""


def kept(schema: StructType) -> StructType:
    """A schema as the catalog gives it back."""
    return StructType.fromJson(json.loads(schema.json()))


def test_a_sql_table_keeps_its_source_options() -> None:
    """Reads and writes of it get none from Spark, and each takes those it knows."""
    schema = kept(FlintMQDataSource(CREATED).schema())
    assert len(schema) == len(FlintMQDataSource({"nameServer": "h:1", "subscribe": "a"}).schema())
    assert read_options({}, schema) == {"subscribe": "a", "nameserver": "h:9876"}
    assert write_options({}, schema) == {"nameserver": "h:9876", "sendbatch": "10"}
    assert read_options({"subscribe": "b"}, schema) == {"subscribe": "b", "nameserver": "h:9876"}  # SELECT … WITH (…)


def test_the_location_of_a_sql_table_is_used_as_the_path_of_the_store() -> None:
    """OPTIONS (path …) and LOCATION come as both, with the scheme that Spark adds."""
    given = {
        "location": "file:/data/store",
        "path": "file:/data/store",
        "option.subscribe": "a",
        "owner": "o",
        "provider": "flintmq",
    }
    assert options_of_new_table(given) == {"subscribe": "a", "path": "file:/data/store"}
    options = read_options({}, kept(FlintMQDataSource(given).schema()))
    assert ReadOptions.parse(options).transport == "store"


def test_creating_a_sql_table_with_an_invalid_option_is_refused() -> None:
    """The error names the option that was probably meant."""
    with pytest.raises(OptionError, match="unknown option 'subscrbe'; did you mean 'subscribe'"):
        FlintMQDataSource({"option.subscrbe": "a", "owner": "o", "provider": "flintmq"}).schema()
    with pytest.raises(OptionError, match="needs exactly one source"):
        FlintMQDataSource({"option.subscribe": "a", "owner": "o", "provider": "flintmq"}).schema()


def test_an_option_reserved_for_sql_tables_is_refused_in_a_read_that_uses_no_table() -> None:
    """Rows written to a table still go to the topic that the write names."""
    for name in ("location", "option.subscribe", "provider"):
        with pytest.raises(OptionError, match=f"unknown option '{name}'"):
            FlintMQDataSource({"path": "/data/store", name: "x"}).schema()
    schema = kept(FlintMQDataSource(CREATED).schema())
    elsewhere = {"brokerAddr": "other:10911", "topic": "b"}
    assert write_options(elsewhere, schema) == elsewhere
    assert read_options({"path": "/data/store"}, schema) == {"path": "/data/store"}
