"""What maintenance raises on purpose."""

from __future__ import annotations

from flintmq.plugins.spark.errors import SparkPluginError


class MaintenanceError(SparkPluginError):
    """The work cannot be done on this store, or not in this way; says what can."""
