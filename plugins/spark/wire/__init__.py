"""The wire to brokers, FlintMQ's or any other of RocketMQ 4.9: which queues there are, what a task pulls, how rows are sent.

:mod:`flintmq.plugins.spark.wire_transport` and :mod:`flintmq.plugins.spark.writer` are what Spark's readers and writers see.
"""

from __future__ import annotations
