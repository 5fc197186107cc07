"""From rows to messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.core.record import properties as props
from flintmq.plugins.spark.errors import RowError
from flintmq.plugins.spark.write_options import TYPES, WriteOptions
from flintmq.remoting.client.message import Message

if TYPE_CHECKING:
    import pyarrow

SPARK_TXN: Final = "SPARK_TXN"
"""The property that tells the same row, sent twice, from two rows."""

OWN_COLUMNS: Final = {props.TAGS: "tags", props.KEYS: "keys"}
"""Properties that have a column, which counts where there is one."""
NOT_COPIED: Final = frozenset(
    {
        props.WAIT,
        props.DELAY,
        props.RETRY_TOPIC,
        props.REAL_TOPIC,
        props.REAL_QUEUE_ID,
        props.TRANSACTION_PREPARED,
        props.PRODUCER_GROUP,
        props.TRANSACTION_PREPARED_QUEUE_OFFSET,
        props.TRANSACTION_CHECK_TIMES,
        props.ORIGIN_MESSAGE_ID,
        props.RECONSUME_TIME,
        props.MAX_RECONSUME_TIMES,
        props.UNIQ_KEY,
        props.CLUSTER,
        props.MSG_REGION,
        props.TRACE_ON,
        "MIN_OFFSET",
        "MAX_OFFSET",
        SPARK_TXN,
    }
)
"""What brokers and clients write into the properties of a message that was read: of that message, not of the new one."""


@attrs.frozen
class RowMessage:
    """A message and where in its topic it belongs."""

    message: Message
    sharding_key: str | None = None
    """Messages of the same key go to the same queue."""


def row_messages(
    batches: Iterable[pyarrow.RecordBatch], options: WriteOptions, transaction: str
) -> Iterator[RowMessage]:
    """Make a message of each row.

    Args:
        batches: with the columns of :data:`~flintmq.plugins.spark.write_options.TYPES`, and others that are passed over.
        options: of the write.
        transaction: the beginning of each message's ``SPARK_TXN``.

    Raises:
        RowError: a row has no body or no topic, or a body that is larger than ``maxMessageSize``.
    """
    number = 0
    for batch in batches:
        names = [name for name in batch.schema.names if name in TYPES]
        columns = [batch.column(name).to_pylist() for name in names]
        for values in zip(*columns, strict=True):
            yield _message(dict(zip(names, values, strict=True)), options, f"{transaction}:{number}")
            number += 1


def _message(row: Mapping[str, Any], options: WriteOptions, transaction: str) -> RowMessage:
    body = row["body"]
    if body is None:
        raise RowError(f"row {transaction}: body is null")
    if isinstance(body, str):
        body = body.encode()
    if len(body) > options.max_message_size_bytes and options.compress_over_bytes is None:
        raise RowError(
            f"row {transaction}: a body of {len(body)} bytes, at most {options.max_message_size_bytes} are sent: raise the "
            "brokers' maxMessageSize and the option maxMessageSize, or set compressOver"
        )
    topic = row.get("topic") or options.topic
    if topic is None:
        raise RowError(f"row {transaction}: topic is null, and there is no option topic")
    given = dict(row.get("properties") or ())
    own = {column: given.pop(name, None) for name, column in OWN_COLUMNS.items()}
    kept = {name: value for name, value in given.items() if name not in NOT_COPIED and value is not None}
    kept[SPARK_TXN] = transaction
    return RowMessage(
        Message(
            topic,
            body,
            tags=row.get("tags") or own["tags"] or "",
            keys=row.get("keys") or own["keys"] or (),
            properties=kept,
            delay_level=row.get("delayLevel") or 0,
            flag=row.get("flag") or 0,
        ),
        row.get("shardingKey"),
    )
