"""What a stream has done, of what Spark reports: rows in a session of this process, others through Spark Connect."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from flintmq.plugins.spark.pipeline.running import StreamCount


class Query:
    """A query's reports."""

    def __init__(self, observed: dict[str, Any]) -> None:
        self.recentProgress = [  # Spark's name
            {
                "batchId": 7,
                "observedMetrics": observed,
                "sources": [{"numInputRows": 5}],
                "processedRowsPerSecond": 2.5,
            }
        ]


@pytest.mark.parametrize(
    ("observed", "rows"),
    [
        ({"flintmq_rows": Row(rows=3)}, 3),
        ({"flintmq_rows": Row(values=[3], schema={"type": "struct", "fields": []})}, 3),
        ({"flintmq_rows": {"rows": 3}}, 3),
        ({"flintmq_rows": Row("rows")(None)}, 0),
        ({}, 0),
    ],
    ids=["this process", "Spark Connect", "a dict", "null", "nothing"],
)
def test_the_metrics_of_a_spark_batch_may_be_reported_as_a_row_or_as_a_dict(
    observed: dict[str, Any], rows: int
) -> None:
    """A form that is not expected must not end the stream; batches are counted once, however often they are looked at."""
    count = StreamCount()
    query: Any = Query(observed)
    count.look_at(query)
    count.look_at(query)
    assert (count.rows, count.rows_of, count.rows_per_s) == (rows, {7: rows}, 2.5)
