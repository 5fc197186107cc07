"""Reads from and sends to brokers with RocketMQ 4.9's protocol: finds queues, pulls messages, sends rows.

Spark's readers and writers use this package through :mod:`flintmq.plugins.spark.wire_transport` and
:mod:`flintmq.plugins.spark.writer`.
"""

from __future__ import annotations
