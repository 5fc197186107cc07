"""Message filters by property: the SQL92 subset of RocketMQ, and the bloom filter of its bit maps.

An expression is a string that a client sent. It is cut into tokens (:mod:`~flintmq.core.filter.tokens`), parsed by recursive
descent (:mod:`~flintmq.core.filter.parser`) under the limits of :mod:`flintmq.core.limits`, and becomes closures over typed
operands (:mod:`~flintmq.core.filter.operands`, :mod:`~flintmq.core.filter.comparisons`). Nothing a client sent is ever
evaluated as code or used as a regular expression. Everything here is pure.
"""
