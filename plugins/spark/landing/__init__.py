"""The landing zone: messages in files that Spark, Delta, pandas and pyarrow read (docs/spark-feed.md).

::

    dispatcher ─ positions ─► LandingFeeder (a thread) ─► Lander ─► LogReader: the log's own files
                                                            └─────► zone: ParquetZone or DeltaZone

The feeder decides when, the lander what, a zone how it becomes durable in one step. By default the lander works in a process
of its own, so that neither decoding nor the disk of the landing zone takes the broker's time. pyarrow is imported there.
"""
