"""FlintMQ on Spark: a data source for batch and streaming reads, over a store's files or a broker's wire.

::

    from flintmq.plugins import spark as fs

    spark = fs.session(master="local[2]")        # finds Java, sets the Python of the workers, stays on loopback
    df = spark.read.format("flintmq").option("subscribe", "orders").load("/data/store")

Only this package imports PySpark, pyarrow and numpy, and only where they are used: a broker runs without them.
``pip install '.[spark]'`` brings all it takes.
"""

from __future__ import annotations

from flintmq.plugins.spark.session import register, session

__all__ = ["register", "session"]
