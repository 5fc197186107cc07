"""The JSON dialect of RocketMQ: what its files and bodies hold, read leniently and written as it writes.

Three things distinguish it from JSON: keys that are numbers are not quoted (``{0:3,1:1}``), a key may be an object
(``{{"brokerName":"a","queueId":0,"topic":"T"}:5}``), and an object met twice may be written as ``{"$ref":"$.path"}``. Readers
of RocketMQ also take single quotes, unquoted names and trailing commas.

Everything here is pure. See docs/internals/protocol.md, JSON dialect; docs/internals/store-format.md, Configuration files.
"""

from flintmq.core.io.fastjson.reader import ObjectKey, loads
from flintmq.core.io.fastjson.tables import pretty_table_pieces, table_pieces
from flintmq.core.io.fastjson.writer import dumps, dumps_pretty

__all__ = ["ObjectKey", "dumps", "dumps_pretty", "loads", "pretty_table_pieces", "table_pieces"]
