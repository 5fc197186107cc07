"""Reads and writes the JSON dialect of fastjson, in which RocketMQ writes its configuration files and bodies.

The dialect differs from JSON in three ways. Keys that are numbers are not quoted (``{0:3,1:1}``). A key may be an object
(``{{"brokerName":"a","queueId":0,"topic":"T"}:5}``). An object that occurs again may be written as ``{"$ref":"$.path"}``. Also,
RocketMQ reads single quotes, unquoted names and trailing commas.

All functions are pure. See docs/internals/protocol.md, JSON dialect; docs/internals/store-format.md, Configuration files.
"""

from flintmq.core.io.fastjson.reader import ObjectKey, loads
from flintmq.core.io.fastjson.tables import pretty_table_pieces, table_pieces
from flintmq.core.io.fastjson.writer import dumps, dumps_pretty

__all__ = ["ObjectKey", "dumps", "dumps_pretty", "loads", "pretty_table_pieces", "table_pieces"]
