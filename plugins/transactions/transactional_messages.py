"""Ends transactions, and asks about those that were not ended (docs/internals/algorithms.md, Transactions).

Unlike RocketMQ's, a transaction ends once: whichever of its half messages a producer names, and however late. What was
completed of a round of checks stays completed, and a look at a message that must not be asked about yet does not count as one.
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
"""Ends that came before their half message can be read, kept until it can."""


class TransactionalMessageService:
    """The broker's transactions. Loop thread; :meth:`run` is the caller's timer's job.

    Args:
        store: see :class:`TransactionStore`.
        producers: the connected producers that can be asked.
        place: sends a committed message to a queue that its topic has, or to where it waits until it is to be delivered.
        config: the settings in force.
        clock: time.
        has_topic: says whether a topic is there; the topic of a half message may have been deleted.
        drop: counts a message that was committed when its topic was gone.
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
        """Transactions that ended, by their topic and whether they were committed."""
        self.committed = 0
        """Transactions committed since the start."""
        self.rolled_back = 0
        """Transactions rolled back since the start."""

    # life

    def load(self) -> None:
        """Read where the queues stand, and forget what was known before. Call it after the store has recovered and its queues
        have caught up, and when a slave becomes the master.

        Raises:
            RefusedError: an op record that a crash cut off could not be appended.
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
        """Do what is due, for a few milliseconds at most.

        Returns:
            After how many seconds to call again; 0 when there is more to do.
        """
        self._retry_early()
        try:
            wait_s = self.checks.run()
        finally:
            self.save()
        return min(wait_s, IDLE_S)

    def rest_s(self) -> float:
        """Return for how many seconds :meth:`run` has nothing to do."""
        return 0.0 if self._early else self.checks.rest_s()

    def save(self) -> None:
        """Save the positions once what they stand for is on disk."""
        positions = self._durable.ready((self.table.position, self.table.op_position))
        if positions is not None and positions != (0, 0):
            self._store.save_positions(*positions)
            self._durable.saved = positions

    # end

    def end(self, request: EndTransactionRequestHeader) -> bool:
        """Commit or roll back. An undecided producer changes nothing: it is asked again.

        Returns:
            False when it is committed, but its message is dropped, because its topic was deleted.

        Raises:
            RefusedError: SYSTEM_ERROR, in the words of RocketMQ: the half message is not there, is another one or
                another group's, or its transaction has ended; what the store refuses with; or the time that a committed
                message names is one at which too many are due, or further ahead than settings now allow. Then it stays
                open, and its producer is asked again.
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
            raise _refused("transaction.ended", "the transaction has ended or is no longer known", identity[0])
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
        """Forget how many transactions of a topic ended: it was deleted."""
        for is_commit in (True, False):
            self.ended.pop((topic, is_commit), None)

    def _keep_early(self, request: EndTransactionRequestHeader) -> None:
        """Keep the end of a half message that is acknowledged but cannot be read yet (transient store pool)."""
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
            raise _refused("transaction.no_topic", "the half message has no real topic", str(record.queue_offset))
        return message

    def _op(self, half_queue_offset: int) -> MessageExtBrokerInner:
        return half.op_of(half_queue_offset, self._clock.now_ms(), self._store.store_host)

    def _append(self, messages: list[MessageExtBrokerInner], op_offsets: list[int]) -> None:
        self._store.append(messages)
        for offset in op_offsets:
            self.table.add_op(offset)

    # resume

    def resume(self, commit_log_offset_bytes: int) -> None:
        """Ask about a half message from the start again (323), also one that was given up.

        Raises:
            RefusedError: SYSTEM_ERROR; the half message does not exist, or its transaction has ended.
        """
        record = self._store.record_at(commit_log_offset_bytes)
        if record is None or record.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            raise _refused("transaction.gone", "there is no half message at", str(commit_log_offset_bytes))
        identity = half.identity_of(record)
        given_up = record.topic == TRANS_CHECK_MAX_TIME_TOPIC
        half_offset = -1 if given_up else record.queue_offset
        ended = self.table.was_ended(identity) if given_up else not self.table.is_open(identity, half_offset)
        if ended:
            raise _refused("transaction.ended", "the transaction has ended or is no longer known", identity[0])
        replaced = [self.table.newest_copy(identity), half_offset]
        offsets = sorted({offset for offset in replaced if offset >= self.table.position})
        copy = half.copy_of(record, {props.TRANSACTION_CHECK_TIMES: "0"})
        put = self._store.append([copy, *(self._op(offset) for offset in offsets)])
        for offset in offsets:
            self.table.add_op(offset)
            self.table.done(offset)
        self.table.replaced(identity, half_offset, put[0].queue_offset)


def _verify(request: EndTransactionRequestHeader, record: Record) -> None:
    """Refuse a request that names a place where another message lies by now. Raises RefusedError.

    An id may be left out, as with RocketMQ. One that is another message's is refused, where RocketMQ does not look at ids:
    after a crash under an asynchronous flush, another half message of the group may lie at the same place with the same queue
    offset, and the end of the lost one would commit it.
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
