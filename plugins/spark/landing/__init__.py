"""The landing zone: a broker's messages in Parquet or Delta files, for Spark, pandas and pyarrow (docs/spark-feed.md).

::

    dispatcher ─ positions ─► LandingFeeder (a thread) ─► Lander ─► LogReader: the log's own files
                                                            └─────► zone: ParquetZone or DeltaZone

The feeder decides when to copy messages to the landing zone, and the lander decides which part of the log to copy. The zone
makes that part durable in one step. The lander runs in a separate process by default, so that decoding and the landing zone's
disk do not slow down the broker. Only that process imports pyarrow.
"""
