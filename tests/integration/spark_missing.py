"""Whether Spark can be run here."""

from __future__ import annotations

import importlib.util
import os

import pytest


def need_spark() -> None:
    """Skips a test where Spark is missing, with the reason; fails it there when FLINTMQ_REQUIRE_SPARK is set."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if os.environ.get("FLINTMQ_REQUIRE_SPARK"):
        pytest.fail(f"Spark is required here: {', '.join(missing)} not installed")
    pytest.skip(f"needs Spark: {', '.join(missing)} not installed")
