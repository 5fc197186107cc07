"""Reads and writes the records and positions of transactions in the broker's store."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.config.rocketmq.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.broker.api import BrokerApi
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions.half_message import HALF_QUEUE_ID, TRANSACTION_GROUP


class TransactionStore:
    """The part of a broker's store that transactions use. Transactions use only queue 0 of the half topic and of the op topic.
    Used only on the event loop's thread.

    The positions in these queues are saved as the consumer offsets of the group ``CID_RMQ_SYS_TRANS``, so that a Java broker
    can continue from them.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._log = api.log
        self.store_host = api.address.packed

    @property
    def wrote_offset_bytes(self) -> int:
        return self._log.marks.wrote

    @property
    def readable_offset_bytes(self) -> int:
        """Physical offset up to which records can be read. An acknowledged record can be past this offset for a short time,
        for example with the transient store pool."""
        return self._log.marks.readable

    @property
    def flushed_offset_bytes(self) -> int:
        return self._log.marks.flushed

    def min_queue_offset(self, topic: str) -> int:
        return self._log.reader.min_queue_offset(topic, HALF_QUEUE_ID)

    def max_queue_offset(self, topic: str) -> int:
        return self._log.reader.max_queue_offset(topic, HALF_QUEUE_ID)

    def record(self, topic: str, queue_offset: int) -> Record | None:
        """Return the message at a queue offset; None if the queue has no message at this offset, or the message was deleted."""
        queue = self._log.queues.get((topic, HALF_QUEUE_ID))
        unit = queue.unit(queue_offset) if queue is not None and queue_offset >= queue.min_queue_offset else None
        return self._api.outlet.message_at(unit[0], unit[1]) if unit is not None else None

    def record_at(self, commit_log_offset_bytes: int) -> Record | None:
        return self._api.outlet.message_at(commit_log_offset_bytes)

    def last_record(self) -> Record | None:
        """Return the newest record of the log that has a consume queue entry."""
        queues = list(self._log.queues.values())
        newest = max(queues, key=lambda queue: queue.max_physical_offset_bytes, default=None)
        if newest is None:
            return None
        unit = newest.unit(newest.max_queue_offset - 1)
        return self._api.outlet.message_at(unit[0], unit[1]) if unit is not None else None

    def append(self, messages: Sequence[MessageExtBrokerInner]) -> list[DispatchRequest]:
        """Append messages as consecutive records, all or none. Does not wait for durability.

        Raises:
            RefusedError: MESSAGE_ILLEGAL if the store can never accept the messages; any other code if the store cannot accept
                the messages now.
        """
        try:
            return self._api.put(messages, together=True, dispatch=False).requests()
        except RefusedError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL or len(messages) == 1:
                raise
        # The messages cannot be appended together, because together they are longer than a log file. Each message is put alone.
        return [request for message in messages for request in self._api.put([message], dispatch=False).requests()]

    def ensure_topic(self, topic: str) -> None:
        self._api.topics.create_in_send_back(topic, 1)

    def load_positions(self) -> tuple[int, int]:
        """Return the saved positions in the half and op queues; -1 for a queue without a saved position."""
        query = self._api.offsets.query
        return (
            query(TRANS_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID),
            query(TRANS_OP_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID),
        )

    def save_positions(self, half_queue_offset: int, op_queue_offset: int) -> None:
        put = self._api.offsets.put
        put(TRANS_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID, half_queue_offset)
        put(TRANS_OP_HALF_TOPIC, TRANSACTION_GROUP, HALF_QUEUE_ID, op_queue_offset)
