"""Sends messages in batches, several requests at a time. Each request is repeated until it is acknowledged or cannot
succeed."""

from __future__ import annotations

import collections
import concurrent.futures
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.log_events import event_log
from flintmq.core.record import properties as props
from flintmq.plugins.spark.errors import RowError, SparkPluginError
from flintmq.plugins.spark.options import WriteOptions
from flintmq.plugins.spark.schema import SENT_TYPES
from flintmq.plugins.spark.wire.client import WireClient, again
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import SendStatus

if TYPE_CHECKING:
    import pyarrow


log = event_log("flintmq.spark")

ITEM_BYTES: Final = 512
"""Upper bound, in bytes, of the space that a message needs in a request in addition to the message's body and properties."""
REQUEST_BYTES: Final = 1024 * 1024
"""Size in bytes of the collected messages at which the messages are sent as one request. Larger requests are not faster."""
NOT_DURABLE: Final = (SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT)
"""Statuses of sends whose messages the broker has stored, but less durably than the broker's settings require."""

_Lane = tuple[str, MessageQueue | None]
"""Topic and queue of a request's messages. The sharding key of the messages chooses the queue; the queue is None for messages
without a sharding key."""

SPARK_TXN: Final = "SPARK_TXN"
"""Name of the message property that identifies a row. Messages with the same value come from one row that was sent more than
once."""

OWN_COLUMNS: Final = {props.TAGS: "tags", props.KEYS: "keys"}
"""Columns that set a message property, keyed by the property's name. A value in one of these columns replaces the property's
value in the column ``properties``."""
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
"""Properties that brokers and clients set on a message. If rows that were read from a topic are sent again, the messages get
none of these properties from the rows."""


@attrs.frozen
class RowMessage:
    """A message that was made from a row of a Spark write, with the row's sharding key."""

    message: Message
    sharding_key: str | None = None
    """Value that chooses the queue of a message. Messages with the same sharding key go to the same queue."""


def row_messages(
    batches: Iterable[pyarrow.RecordBatch], options: WriteOptions, transaction: str
) -> Iterator[RowMessage]:
    """Yield a message to send for each row of a Spark write. Unknown columns are ignored.

    Args:
        batches: the rows.
        options: the options of the write.
        transaction: the beginning of the messages' ``SPARK_TXN``.

    Raises:
        RowError: a row has no body or no topic, or its body is larger than ``maxMessageSize``.
    """
    number = 0
    for batch in batches:
        names = [name for name in batch.schema.names if name in SENT_TYPES]
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
            f"row {transaction}: the body has {len(body)} bytes, but at most {options.max_message_size_bytes} are sent: "
            "raise the brokers' maxMessageSize and the option maxMessageSize, or set compressOver"
        )
    # If the option ``topic`` is not set, the message's topic comes from the column ``topic`` of the row.
    topic = options.topic or row.get("topic")
    if topic is None:
        raise RowError(f"row {transaction}: the column 'topic' is null, and the option 'topic' is not set")
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


@attrs.define
class _Request:
    """Messages that are sent in one request, and their size."""

    messages: list[Message] = attrs.field(factory=list)
    size_bytes: int = 0


class Sender:
    """Sends the messages of one Spark task to brokers. Not thread-safe. Call :meth:`close` at the end. Raises OptionError if
    the address or the credentials of the options cannot be used."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._client = WireClient(options.name_server, options.broker_addr)
        self._producer = Producer(
            options.group,
            client=self._client.instance,
            retries=0,
            compress_over_bytes=options.compress_over_bytes,
            max_message_bytes=options.max_message_size_bytes,
        )
        self._open: dict[_Lane, _Request] = {}
        self._under_way: collections.deque[tuple[_Lane, concurrent.futures.Future[None]]] = collections.deque()
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self.rows = 0
        self.requests = 0
        self.repeated = 0

    def send(self, row: RowMessage) -> None:
        """Add a message to a request to a broker. The request is sent when it is full, or by :meth:`flush`.

        Raises:
            RowError: a message cannot be sent.
            SparkPluginError: an earlier message could not be sent.
        """
        message = row.message
        lane = (message.topic, self._queue_of(message.topic, row.sharding_key))
        self.rows += 1
        over_bytes = self._options.compress_over_bytes
        compressed = over_bytes is not None and len(message.body) >= over_bytes
        if message.delay_level or message.topic.startswith("%") or compressed:
            # A batch must not contain delayed or compressed messages, or messages of retry and dead-letter topics.
            self._submit(lane, [message])
            return
        pairs_bytes = sum(3 * (len(name) + len(value)) + 2 for name, value in message.properties.items())
        size_bytes = len(message.body) + ITEM_BYTES + pairs_bytes
        request = self._open.get(lane)
        if request is not None and request.size_bytes + size_bytes > min(
            REQUEST_BYTES, self._options.max_message_size_bytes
        ):
            self._submit(lane, self._open.pop(lane).messages)
            request = None
        if request is None:
            request = self._open[lane] = _Request()
        request.messages.append(message)
        request.size_bytes += size_bytes
        if len(request.messages) >= self._options.send_batch:
            self._submit(lane, self._open.pop(lane).messages)

    def flush(self) -> None:
        """Send all messages that were added and not yet sent, and wait until brokers have acknowledged all messages. Raises
        SparkPluginError if a message could not be sent."""
        for lane, request in list(self._open.items()):
            self._submit(lane, request.messages)
        self._open.clear()
        while self._under_way:
            self._take_answer()

    def close(self) -> None:
        """Close the connections to brokers. Idempotent."""
        for _, future in self._under_way:
            future.cancel()
        self._under_way.clear()
        self._client.close()

    # --- inside ---

    def _queue_of(self, topic: str, sharding_key: str | None) -> MessageQueue | None:
        if sharding_key is None:
            return None
        if topic not in self._queues:
            self._queues[topic] = self._client.run(again(lambda: self._producer.queues(topic)))
        queues = self._queues[topic]
        if not queues:
            raise SparkPluginError(f"{self._client.where}: topic {topic} has no queue to write to")
        return queues[zlib.crc32(sharding_key.encode()) % len(queues)]

    def _submit(self, lane: _Lane, messages: list[Message]) -> None:
        # To keep the order of messages, a request to a queue waits for earlier requests to the same queue.
        while lane[1] is not None and any(other == lane for other, _ in self._under_way):
            self._take_answer()
        while len(self._under_way) >= self._options.send_pipeline:
            self._take_answer()
        self.requests += 1
        self._under_way.append((lane, self._client.start(self._send(messages, lane[1]))))

    def _take_answer(self) -> None:
        self._client.result(self._under_way.popleft()[1])

    async def _send(self, messages: list[Message], queue: MessageQueue | None) -> None:
        attempts = 0

        async def attempt() -> None:
            nonlocal attempts
            attempts += 1
            timeout_ms = self._options.send_timeout_ms
            result = (
                await self._producer.send(messages[0], queue, timeout_ms=timeout_ms)
                if len(messages) == 1
                else await self._producer.send_batch(messages, queue, timeout_ms=timeout_ms)
            )
            if result.status in NOT_DURABLE:
                raise RemotingError(f"the broker answered {result.status.name}: the messages may not be durable")

        try:
            await again(attempt, self._options.send_attempts)
        except ValueError as error:
            raise RowError(f"row {_rows(messages)}: {error}") from error
        except RefusedError as refused:
            hint = f"{refused} ({len(messages)} rows to {messages[0].topic}, {_rows(messages)}, attempt {attempts})"
            raise RefusedError(refused.code, hint, reason=refused.reason) from refused
        except RemotingError as error:
            raise RemotingError(
                f"sending {len(messages)} rows to topic {messages[0].topic} failed in attempt {attempts}: {error}"
            ) from error
        finally:
            self.repeated += attempts > 1


def _rows(messages: list[Message]) -> str:
    first, last = messages[0].properties[SPARK_TXN], messages[-1].properties[SPARK_TXN]
    return first if first == last else f"{first} to {last}"
