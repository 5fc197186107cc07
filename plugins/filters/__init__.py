"""Message filters as a plugin: by tags, and by RocketMQ's subset of SQL92 over properties.

A client sends an expression as a string. :mod:`~flintmq.plugins.filters.sql92` parses it within the limits of
:mod:`flintmq.core.limits`. :mod:`~flintmq.plugins.filters.comparisons` compiles it to closures over typed operands. No text
of a client is evaluated as code or used as a regular expression.
"""
