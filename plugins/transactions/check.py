"""Asks producers in rounds whether to commit their open transactions (docs/internals/algorithms.md, Transactions).

::

    state of the half message                       action
    its transaction ended, or a copy replaced it    mark the message as done
    its producer was asked too often                give up: store the message in TRANS_CHECK_MAX_TIME_TOPIC
    it is older than the retention of the log       give up: store the message in TRANS_CHECK_MAX_TIME_TOPIC
    it is younger than its own property allows      append a copy, which the next round checks
    it is younger than transactions.timeout_ms      end the round, because later messages are younger
    any other                                       append a copy, and ask the producer about the copy

A round checks the half messages from the table's position to the end that the half queue had when the round began. It runs in
slices of a few milliseconds. The producer's answer names the copy of the half message, so a producer is asked only when this
copy can be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from flintmq.config.sections.models import BrokerConfig
from flintmq.config.sections.service import TransactionsSection
from flintmq.core.broker.producers import ProducerTable
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import DispatchRequest
from flintmq.core.log_events import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner, Record
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.transactions import half_message as half
from flintmq.plugins.transactions.half_message import Identity
from flintmq.plugins.transactions.store import TransactionStore
from flintmq.plugins.transactions.table import TransactionTable

_log = client_log(__name__)

CHECK_TRANSACTION_STATE: Final = 39
IDLE_S: Final = 0.05
"""Pause in seconds between two calls of :meth:`TransactionalMessageCheckService.run`, if no question to a producer waits to be
sent."""
BUSY_S: Final = 0.02
"""Pause in seconds after a call of :meth:`TransactionalMessageCheckService.run` that appended many copies of half messages, or
that left questions to producers unsent. The broker serves producers during the pause."""
SLICE_S: Final = 0.002
SLICE_MESSAGES: Final = 256
SLICE_BYTES: Final = 1024 * 1024
_HOUR_MS: Final = 3_600_000


class _Question(msgspec.Struct, frozen=True):
    """A request to a producer about a half message. The request waits until the copy of the half message can be read."""

    end_offset_bytes: int
    """Physical offset at which the copy of the half message ends. For each question to a producer, the broker appends a new
    copy of the half message to the log. The question is sent only when the log can be read up to this offset, because the
    producer's answer names the copy."""
    identity: Identity
    half_queue_offset: int
    group: str
    header: dict[str, str]
    body: bytes


class TransactionalMessageCheckService:
    """Checks half messages in rounds, and asks producers about them. Used only on the event loop's thread.

    Args:
        store: see :class:`TransactionStore`.
        table: the half messages that are done, and the open transactions.
        producers: the connected producers that can be asked.
        config: the settings in force.
        clock: measures intervals and the age of messages.
    """

    def __init__(
        self,
        store: TransactionStore,
        table: TransactionTable,
        producers: ProducerTable,
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._store = store
        self.table = table
        self._producers = producers
        self._config = config
        self._clock = clock
        self._questions: deque[_Question] = deque()
        self._sliced_bytes = 0
        self._round_end: int | None = None
        """Queue offset in the half topic at which the current round of checks ends; None between rounds."""
        self._round_began_s = clock.monotonic_s()

    def begin(self, table: TransactionTable) -> None:
        """Use another table of transactions from now on. The next round of checks begins after
        ``transactions.check_interval_ms``."""
        self.table = table
        self._questions.clear()
        self._round_end = None
        self._round_began_s = self._clock.monotonic_s()

    def run(self) -> float:
        """Run one slice of a round of checks, and send questions to producers; return the seconds until the next call.

        An unexpected exception is not caught. It ends the round, and checks that were completed stay completed.
        """
        now_s = self._clock.monotonic_s()
        if self._round_end is None and now_s - self._round_began_s >= self._settings.check_interval_ms / 1000:
            self._round_began_s = now_s
            self._round_end = self._store.max_queue_offset(TRANS_HALF_TOPIC)
        more = self._round_end is not None and self._slice(self._round_end)
        self._ask()
        if more:
            return BUSY_S if self._sliced_bytes >= SLICE_BYTES else 0.0
        return BUSY_S if self._questions else IDLE_S

    def rest_s(self) -> float:
        """Return the seconds until the next round of checks begins. Return 0 during a round, or if questions to producers wait
        to be sent."""
        if self._round_end is not None or self._questions:
            return 0.0
        return self._round_began_s + self._settings.check_interval_ms / 1000 - self._clock.monotonic_s()

    @property
    def _settings(self) -> TransactionsSection:
        return self._config().transactions

    def _slice(self, round_end: int) -> bool:
        """Continue the round of checks; return whether the round has more half messages to check."""
        table, clock = self.table, self._clock
        deadline_s = clock.monotonic_s() + SLICE_S
        self._sliced_bytes = 0
        # None in ``_round_end`` means "no round". If a check raises an exception, checks continue only in the next round.
        self._round_end = None
        try:
            for _ in range(SLICE_MESSAGES):
                if table.position >= round_end or not self._step(table.position):
                    return False
                if clock.monotonic_s() > deadline_s or self._sliced_bytes >= SLICE_BYTES:
                    break
        except RefusedError as error:
            _log.warning(
                "transaction.checked_later", "transactions are checked again later: %(error)s", error=error.remark
            )
            return False
        self._round_end = round_end
        return True

    def _step(self, half_queue_offset: int) -> bool:
        """Check one half message; return False if the round of checks ends with this message."""
        record = self._store.record(TRANS_HALF_TOPIC, half_queue_offset)
        if record is None:
            low = self._store.min_queue_offset(TRANS_HALF_TOPIC)
            _log.warning(
                "transaction.gone",
                "half messages from %(half_offset)d on are no longer in the log [transaction.gone]",
                half_offset=half_queue_offset,
            )
            self.table.skip_to(max(low, half_queue_offset + 1))
            return True
        identity, properties = half.identity_of(record), record.properties
        if self.table.is_replaced(identity, half_queue_offset) or not self.table.is_open(identity, half_queue_offset):
            self.table.done(half_queue_offset)
            return True
        settings = self._settings
        times = half.check_times(properties)
        # If the producer's clock is ahead of the broker's clock, the message's age counts from the store timestamp.
        age_ms = self._clock.now_ms() - min(record.born_timestamp_ms, record.store_timestamp_ms)
        if times >= settings.check_max or age_ms > self._config().store.file_reserved_hours * _HOUR_MS:
            self._give_up(record, identity, times)
            return True
        immune_ms = half.immunity_ms(properties, settings.timeout_ms)
        if immune_ms is not None and age_ms < immune_ms:
            first = properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET, str(half_queue_offset))
            self._put_copy(record, identity, {props.TRANSACTION_PREPARED_QUEUE_OFFSET: first})
            return True
        if immune_ms is None and 0 <= age_ms < settings.timeout_ms:
            return False
        made = self._put_copy(record, identity, {props.TRANSACTION_CHECK_TIMES: str(times + 1)})
        if made is not None:
            self._questions.append(_question(record, identity, *made))
        return True

    def _put_copy(
        self, record: Record, identity: Identity, changes: dict[str, str]
    ) -> tuple[MessageExtBrokerInner, DispatchRequest] | None:
        """Append a copy of a half message to the half queue. If the store can never accept a copy, give the message up and
        return None."""
        message = half.copy_of(record, changes)
        try:
            (put,) = self._store.append([message])
        except RefusedError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            _log.error(
                "transaction.not_put_again",
                "half message %(half_offset)d cannot be put again: %(error)s",
                half_offset=record.queue_offset,
                error=error.remark,
            )
            self._give_up(record, identity, half.check_times(record.properties))
            return None
        self._sliced_bytes += put.message_size_bytes
        self.table.replaced(identity, record.queue_offset, put.queue_offset)
        return message, put

    def _give_up(self, record: Record, identity: Identity, times: int) -> None:
        _log.warning(
            "transaction.given_up",
            "half message %(half_offset)d of %(group)s for %(topic)s is given up after %(checks)d checks "
            "[transaction.given_up]",
            half_offset=record.queue_offset,
            group=record.properties.get(props.PRODUCER_GROUP),
            topic=record.properties.get(props.REAL_TOPIC),
            checks=times,
        )
        self._store.ensure_topic(TRANS_CHECK_MAX_TIME_TOPIC)
        try:
            self._store.append([half.given_up_of(record)])
        except RefusedError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            _log.error(
                "transaction.kept",
                "half message %(half_offset)d cannot become a dead letter either: %(error)s; it stays in the log at "
                "position %(log_position)d until that expires [transaction.kept]",
                half_offset=record.queue_offset,
                error=error.remark,
                log_position=record.commit_log_offset_bytes,
            )
        self._sliced_bytes += record.size_bytes
        self.table.gave_up(identity, record.queue_offset)

    def _ask(self) -> None:
        """Ask producers whether to commit or roll back half messages. For each question, the broker has appended a copy of the
        half message to the log, because the producer's answer names the copy. A question is sent only when its copy can be
        read, and goes to the next member of the producer group."""
        questions, readable = self._questions, self._store.readable_offset_bytes
        while questions and questions[0].end_offset_bytes <= readable:
            question = questions.popleft()
            if not self.table.is_open(question.identity, question.half_queue_offset):
                continue
            channel = self._producers.next_channel(question.group)
            if channel is None:
                _log.debug(
                    "transaction.nobody_to_ask",
                    "no member of producer group %(group)s is connected to be asked",
                    group=question.group,
                )
                continue
            try:
                channel.send_oneway(CHECK_TRANSACTION_STATE, question.header, question.body)
            except FlintError as error:
                _log.warning(
                    "transaction.not_asked",
                    "%(client)s could not be asked: %(error)s",
                    client=channel.remote_address,
                    error=error,
                )


def _question(record: Record, identity: Identity, message: MessageExtBrokerInner, put: DispatchRequest) -> _Question:
    return _Question(
        end_offset_bytes=put.commit_log_offset_bytes + put.message_size_bytes,
        identity=identity,
        half_queue_offset=put.queue_offset,
        group=message.properties.get(props.PRODUCER_GROUP, ""),
        header=half.check_header(record, put),
        body=half.check_body(record, message, put),
    )
