"""Ends transactions, and asks producers about open transactions (docs/internals/algorithms.md, Transactions).

Three rules differ from RocketMQ's. A transaction ends only once, even if its producers later name another of its half messages.
If a round of checks fails, the checks that it completed stay completed. A message that is too young for a check does not count
as checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.durable_positions import DurablePositions
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.errors import RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.log_events import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.host import offset_message_id
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions import half_message as half
from flintmq.plugins.transactions.check import IDLE_S, TransactionalMessageCheckService
from flintmq.plugins.transactions.store import TransactionStore
from flintmq.plugins.transactions.table import TransactionTable, rebuild
from flintmq.remoting.wire.headers_message import EndTransactionRequestHeader

_log = client_log(__name__)

EARLY_MAX: Final = 10_000
"""Maximum number of requests to end a transaction that are kept because the transaction's half message cannot be read yet."""


class TransactionalMessageService:
    """Ends and checks the broker's transactions. Loop thread; the caller's timer calls :meth:`run`.

    Args:
        store: see :class:`TransactionStore`.
        producers: the connected producers that can be asked.
        place: sets the queue of a committed message: a queue of its topic, or a queue in which the message waits until it is
            due.
        config: the settings in force.
        clock: measures intervals and the age of messages.
        has_topic: returns whether a topic exists; the topic of a half message may have been deleted.
        drop: counts a committed message that is dropped because its topic was deleted.
    """

    def __init__(
        self,
        store: TransactionStore,
        producers: ProducerTable,
        place: Callable[[MessageExtBrokerInner], object],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        has_topic: Callable[[str], bool] = lambda topic: True,
        drop: Callable[[MessageExtBrokerInner], object] = lambda message: None,
    ) -> None:
        self._store = store
        self._place = place
        self._has_topic = has_topic
        self._drop = drop
        self._clock = clock
        self._early: deque[EndTransactionRequestHeader] = deque()
        self._durable: DurablePositions[tuple[int, int]] = DurablePositions(store)
        self.table = TransactionTable()
        self.checks = TransactionalMessageCheckService(store, self.table, producers, config, clock)
        self.ended: dict[tuple[str, bool], int] = {}
        """Number of ended transactions, keyed by the topic of the half message and by whether the transactions were
        committed."""
        self.committed = 0
        """Number of transactions that were committed since the start."""
        self.rolled_back = 0
        """Number of transactions that were rolled back since the start."""

    # life

    def load(self) -> None:
        """Rebuild the table of transactions from the half and op queues.

        Call it after the store has recovered and its queues are complete, and after a slave became the master.

        Raises:
            RefusedError: op records were lost in a crash, and the store refuses to append them again.
        """
        self.table, missing = rebuild(self._store)
        self._early.clear()
        self.checks.begin(self.table)
        if missing:
            _log.warning(
                "transaction.op_lost",
                "op records of half messages %(half_offsets)s were lost in a crash and are put again",
                half_offsets=missing,
            )
            self._append([self._op(offset) for offset in missing], missing)
        self._durable.saved = self._store.load_positions()
        self.save()

    def run(self) -> float:
        """End transactions whose end requests came before their half messages could be read. Then check half messages, for a
        few milliseconds at most.

        Returns:
            The seconds until the next call; 0 if there is more to do.
        """
        self._retry_early()
        try:
            wait_s = self.checks.run()
        finally:
            self.save()
        return min(wait_s, IDLE_S)

    def rest_s(self) -> float:
        """Return the seconds until :meth:`run` has to end or check transactions."""
        return 0.0 if self._early else self.checks.rest_s()

    def save(self) -> None:
        """Save the positions in the half and op queues, after the records that they cover are on disk."""
        positions = self._durable.ready((self.table.position, self.table.op_position))
        if positions is not None and positions != (0, 0):
            self._store.save_positions(*positions)
            self._durable.saved = positions

    # end

    def end(self, request: EndTransactionRequestHeader) -> bool:
        """Commit or roll back a transaction. If the producer is undecided, nothing changes, and the producer is asked again.

        Returns:
            False if the transaction is committed, but its message is dropped because its topic was deleted.

        Raises:
            RefusedError: SYSTEM_ERROR with RocketMQ's remark if the half message does not exist, is another message or belongs
                to another group, or if its transaction has ended. If the store refuses the committed message, the code of this
                refusal; for example, too many messages are due at its delivery time, or this time is too far ahead for the
                current settings. After such a refusal the transaction stays open, and its producer is asked again.
        """
        if request.from_transaction_check:
            _log.debug(
                "transaction.answered",
                "%(group)s was asked and says %(state)d: %(request)s",
                group=request.producer_group,
                state=request.commit_or_rollback,
                request=request,
            )
        if request.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return True
        record = self._store.record_at(request.commit_log_offset_bytes)
        if record is None:
            self._keep_early(request)
            return True
        _verify(request, record)
        identity = half.identity_of(record)
        if not self.table.is_open(identity, record.queue_offset):
            raise _refused(
                "transaction.ended", "the transaction has ended, or the broker does not know it", identity[0]
            )
        offsets = self.table.offsets_to_end(identity, record.queue_offset)
        messages = [self._op(offset) for offset in offsets]
        is_commit = request.commit_or_rollback == TRANSACTION_COMMIT
        final = self._final(record) if is_commit else None
        has_topic = self._has_topic(record.properties.get(props.REAL_TOPIC, ""))
        if final is not None and has_topic:
            self._place(final)
            messages.insert(0, final)
        self._append(messages, offsets)
        self.table.ended(identity, record.queue_offset)
        self.committed += is_commit
        self.rolled_back += not is_commit
        if has_topic:
            ended = record.properties.get(props.REAL_TOPIC, ""), is_commit
            self.ended[ended] = self.ended.get(ended, 0) + 1
        elif final is not None:
            self._drop(final)
            return False
        return True

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of transactions of a deleted topic."""
        for is_commit in (True, False):
            self.ended.pop((topic, is_commit), None)

    def _keep_early(self, request: EndTransactionRequestHeader) -> None:
        """Keep a request to end a transaction until its half message can be read. With the transient store pool, a half message
        is acknowledged before it can be read.

        Raises RefusedError if the half message is not in the log, or if too many requests are kept.
        """
        place = request.commit_log_offset_bytes
        if not self._store.readable_offset_bytes <= place < self._store.wrote_offset_bytes:
            raise _refused("transaction.gone", "Find prepared transaction message failed", str(place))
        if len(self._early) >= EARLY_MAX:
            raise _refused("transaction.early", "too many transactions wait for their half message", str(EARLY_MAX))
        self._early.append(request)

    def _retry_early(self) -> None:
        early, self._early = self._early, deque()
        for request in early:
            try:
                self.end(request)
            except RefusedError as error:
                _log.warning(
                    "transaction.not_ended",
                    "a transaction of %(group)s was not ended: %(error)s",
                    group=request.producer_group,
                    error=error.remark,
                )

    def _final(self, record: Record) -> MessageExtBrokerInner:
        message = half.final_of(record)
        if message is None:
            raise _refused(
                "transaction.no_topic",
                "the half message does not name the topic of its delivery",
                str(record.queue_offset),
            )
        return message

    def _op(self, half_queue_offset: int) -> MessageExtBrokerInner:
        return half.op_of(half_queue_offset, self._clock.now_ms(), self._store.store_host)

    def _append(self, messages: list[MessageExtBrokerInner], op_offsets: list[int]) -> None:
        self._store.append(messages)
        for offset in op_offsets:
            self.table.add_op(offset)

    # resume

    def resume(self, commit_log_offset_bytes: int) -> None:
        """Reset the number of checks of a half message (request 323), even if the half message was given up.

        Raises:
            RefusedError: SYSTEM_ERROR; the half message does not exist, or its transaction has ended.
        """
        record = self._store.record_at(commit_log_offset_bytes)
        if record is None or record.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            raise _refused(
                "transaction.gone",
                "no half message begins at this physical offset of the log",
                str(commit_log_offset_bytes),
            )
        identity = half.identity_of(record)
        given_up = record.topic == TRANS_CHECK_MAX_TIME_TOPIC
        half_offset = -1 if given_up else record.queue_offset
        ended = self.table.was_ended(identity) if given_up else not self.table.is_open(identity, half_offset)
        if ended:
            raise _refused(
                "transaction.ended", "the transaction has ended, or the broker does not know it", identity[0]
            )
        replaced = [self.table.newest_copy(identity), half_offset]
        offsets = sorted({offset for offset in replaced if offset >= self.table.position})
        copy = half.copy_of(record, {props.TRANSACTION_CHECK_TIMES: "0"})
        put = self._store.append([copy, *(self._op(offset) for offset in offsets)])
        for offset in offsets:
            self.table.add_op(offset)
            self.table.done(offset)
        self.table.replaced(identity, half_offset, put[0].queue_offset)


def _verify(request: EndTransactionRequestHeader, record: Record) -> None:
    """Raise RefusedError if a record is not the half message that an end request names.

    Like in RocketMQ, the request may lack the message id. Unlike in RocketMQ, an id of another message is refused. After a
    crash with asynchronous flush, another half message of the group may have the same physical offset and queue offset. Without
    this check, a request to commit the lost transaction would commit this other half message.
    """
    properties = record.properties
    if record.topic != TRANS_HALF_TOPIC or record.queue_id != half.HALF_QUEUE_ID:
        raise _refused("transaction.gone", "Find prepared transaction message failed", record.topic)
    if properties.get(props.PRODUCER_GROUP) != request.producer_group:
        raise _refused("transaction.group", "The producer group wrong", request.producer_group)
    if record.queue_offset != request.tran_state_table_offset:
        raise _refused(
            "transaction.queue_offset", "The transaction state table offset wrong", str(request.tran_state_table_offset)
        )
    uniq_key = properties.get(props.UNIQ_KEY)
    place = offset_message_id(record.store_host.hex().upper(), record.commit_log_offset_bytes)
    told = {name for name in (request.msg_id, request.transaction_id) if name}
    if uniq_key and told and not told & {uniq_key, place}:
        raise _refused("transaction.id", "The transaction id wrong", request.msg_id)


def _refused(reason: str, message: str, measured: str) -> RefusedError:
    return RefusedError(ResponseCode.SYSTEM_ERROR, message, reason=reason, measured=measured[:200])
