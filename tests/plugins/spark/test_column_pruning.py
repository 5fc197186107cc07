"""The rule that spares columns: without it a session works all the same. With Spark: with_spark/test_columns_used.py."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")

from py4j.protocol import Py4JError

from flintmq.plugins.spark.column_pruning import prune_columns


def test_columns_are_not_pruned_in_a_spark_connect_session() -> None:
    """This process has no JVM, because the server plans the query."""
    assert prune_columns(SimpleNamespace()) is False


def test_a_failure_to_add_the_column_pruning_rule_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A vendor's Spark may have no Janino, or forbid it: reads are slower then, and as right as before."""

    class Rules:
        def extraOptimizations(self) -> Any:  # noqa: N802 - Spark's name
            raise Py4JError("no such method")

    spark = SimpleNamespace(_jsparkSession=SimpleNamespace(experimental=Rules))
    with caplog.at_level(logging.WARNING, "flintmq.spark"):
        assert prune_columns(spark) is False
    assert "name the needed ones with the option columns: no such method" in caplog.text
