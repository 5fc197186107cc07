"""A Spark data source for batch and streaming reads and writes, from a store's files or from brokers over the network.

::

    from flintmq.plugins import spark as fs

    spark = fs.session(master="local[2]")        # finds Java, sets the workers' Python, listens on loopback
    df = spark.read.format("flintmq").option("subscribe", "orders").load("/data/store")

Only this package imports PySpark, pyarrow and numpy, each at its first use. A broker runs without them.
``pip install '.[spark]'`` installs them.
"""

from __future__ import annotations

from flintmq.plugins.spark.session import register, session

__all__ = ["register", "session"]
