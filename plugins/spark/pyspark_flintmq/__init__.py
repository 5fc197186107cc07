"""Registers the data source: Spark looks for ``DefaultSource`` in every top-level module named ``pyspark_…``."""

from __future__ import annotations

from flintmq.plugins.spark.source import FlintMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
