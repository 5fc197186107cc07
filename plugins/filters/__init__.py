"""Message filters as a plugin: by tags, and by RocketMQ's subset of SQL92 over properties.

An expression is a string that a client sent. It is parsed (:mod:`~flintmq.plugins.filters.sql92`) under the limits of
:mod:`flintmq.core.limits`, and becomes closures over typed operands (:mod:`~flintmq.plugins.filters.comparisons`). No text of a
client is ever evaluated as code or used as a regular expression.
"""
