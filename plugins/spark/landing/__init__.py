"""The landing zone: a broker's messages in Parquet or Delta files, for Spark, pandas and pyarrow (docs/spark-feed.md).

::

    dispatcher ─ positions ─► LandingFeeder (a thread) ─► Lander ─► LogReader: the log's own files
                                                            └─────► zone: ParquetZone or DeltaZone

The feeder decides when to land, and the lander decides which part of the log. The zone makes that part durable in one step. By
default the lander runs in a separate process, so that decoding and the landing zone's disk do not slow down the broker. Only
that process imports pyarrow.
"""
