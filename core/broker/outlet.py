"""Reads messages for groups and features: checks pulls, applies subscriptions and filters, and waits for new messages.

Every protocol, every feature and the process that embeds the broker read through this module. Its counterparts for writes are
:mod:`flintmq.core.broker.intake` and :mod:`flintmq.core.broker.sink`.

See docs/internals/protocol.md, Pull.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import msgspec

from flintmq.config.rocketmq.system_topics import OFFSET_MOVED_EVENT
from flintmq.core.broker import perm
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.hold import ANY_QUEUE, HeldPull, PullRequestHoldService
from flintmq.core.broker.subscription import SQL92, SUB_ALL, TAG, SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.isolation import IsolatedFilter
from flintmq.core.kernel.ports import HandedOut, MessageFilter, MessageFilterFactory
from flintmq.core.kernel.ports.filter import SupportsFilterBacking
from flintmq.core.limits import FILTER_EXPRESSION_MAX_BYTES
from flintmq.core.log_events import client_log
from flintmq.core.record import properties as props
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner, Record, decode_records
from flintmq.core.response_code import ResponseCode
from flintmq.core.store.message_reader import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from flintmq.core.broker.state import BrokerState

log = client_log("flintmq.broker")

_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_CODES: Final = {
    GetMessageStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetMessageStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetMessageStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: _MOVED,
}
"""Response codes of pulls, keyed by the status of a read. For a status that is not listed, a pull at queue offset 0 gets
PULL_NOT_FOUND, and any other pull PULL_OFFSET_MOVED."""
_HOLD_MAX_MS: Final = 24 * 3600 * 1000
"""Longest time that a pull is held, in ms. Ordinary clients ask for at most 30 s; the limit keeps a hostile client from
overflowing the timer."""
_FILTERS_MAX: Final = 1024
_MOVED_REPEAT_S: Final = 10.0
_MOVED_REMEMBERED_MAX: Final = 1024


class Peer(Protocol):
    """The origin of a pull: a client's connection to the server, or the process in which the broker runs.

    Origins are compared and hashed by identity.
    """

    @property
    def remote_address(self) -> str: ...

    def __hash__(self) -> int: ...


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A pull: the group, the queue, the first message wanted, and limits and filters for the answer."""

    topic: str
    queue_id: int
    queue_offset: int
    """Queue offset of the first message that the pull asks for."""
    group: str
    peer: Peer
    max_count: int = 32
    """Maximum number of messages in the answer to the pull. The store's limits for the size of an answer apply, too."""
    expression: str | None = SUB_ALL
    """Filter expression of the pull; None for the subscription that the group's members have registered."""
    expression_type: str | None = TAG
    """Type of the filter expression; None means TAG."""
    sub_version: int = 0
    """Version of the client's subscription, a time in ms since 1970. The pull is refused if the registered subscription is
    older than this version."""
    commit_offset: int | None = None
    """Consumer offset of the group to store with the pull; None if the pull stores no offset."""


class _Pulled(msgspec.Struct, frozen=True):
    next_queue_offset: int
    """Queue offset at which the next pull begins."""
    min_queue_offset: int
    """Queue offset of the queue's oldest message."""
    max_queue_offset: int
    """Queue offset that the queue's next message will have."""
    suggested_broker_id: int
    """Id of the broker to pull from next; 0 is the master."""


class Found(_Pulled, frozen=True):
    """The messages that a pull found, as the answer to the pull."""

    records: list[memoryview]
    """Views of one or more whole records each, in the order of the queue. The views stay readable while they are referenced."""
    message_count: int
    size_bytes: int
    code: ClassVar[int] = 0
    may_wait: ClassVar[bool] = False
    status: ClassVar[str] = GetMessageStatus.FOUND.value

    def messages(self) -> Iterator[Record]:
        """Yield the messages that the pull found, decoded, in the order of the queue.

        Raises:
            RecordError: a message is damaged.
        """
        for run in self.records:
            yield from decode_records(run)


class Empty(_Pulled, frozen=True):
    """The answer to a pull that found no message."""

    code: int
    """Response code of the answer.

    PULL_NOT_FOUND: the queue has no message at the pull's queue offset yet. PULL_RETRY_IMMEDIATELY: the group shall pull again
    from ``next_queue_offset``. PULL_OFFSET_MOVED: the pull's queue offset is outside the queue; ``next_queue_offset`` is inside
    the queue.
    """
    status: str
    """RocketMQ's name of the read's result, a value of :class:`GetMessageStatus`."""
    records: ClassVar[Sequence[memoryview]] = ()
    message_count: ClassVar[int] = 0
    size_bytes: ClassVar[int] = 0

    @property
    def may_wait(self) -> bool:
        """Return whether the pull may be held until a message arrives, see :meth:`MessageOutlet.hold`."""
        return self.code == _NOT_FOUND


class MessageOutlet:
    """Reads messages for groups and for features of the broker. Used only on the event loop's thread.

    Args:
        state: the broker's tables, store and settings.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._moved = OffsetMovedEvents(state)
        self._filters = SubscriptionFilters(state)
        self.held = PullRequestHoldService(
            state.clock,
            self._end,
            held_max=state.config.pull.held_max,
            held_per_connection_max=state.config.pull.held_per_connection_max,
        )
        """The held pulls, which wait for messages."""

    # --- pulls of consumer groups ---

    def pull(self, wanted: Wanted) -> Found | Empty:
        """Return the messages of a queue that a group's subscription selects.

        The pull is checked and counted, and the consumer offset in the pull is stored.

        Raises:
            RefusedError: a check failed. The broker, the group, the topic, the queue, the subscription and the expression are
                checked in this order. The error's reason id names the check.
        """
        state = self._state
        config, clock = state.config, state.clock
        group = self._group(wanted.group)
        is_slave, by_slaves = not state.role.takes_writes, config.pull.slave_read
        if is_slave and not by_slaves and state.has_master():
            # If pull.slave_read is off, a slave refers clients to its master while the master is reachable.
            # The slave's answer repeats the requested offset, so that clients skip no messages when they change to the master.
            # If RocketMQ's slave lacks the requested messages, it answers with its first offset, and clients skip messages.
            return Empty(wanted.queue_offset, 0, 0, 0, _RETRY, GetMessageStatus.NO_MATCHED_MESSAGE.value)
        self._check_queue(wanted)
        topic, queue_id = wanted.topic, wanted.queue_id
        message_filter = self._filter(wanted, group)
        begin_s = clock.monotonic_s()
        result = state.store.reader.get_message(topic, queue_id, wanted.queue_offset, wanted.max_count, message_filter)
        took_s = clock.monotonic_s() - begin_s
        suggested = 0
        if by_slaves:
            suggested = group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
        pulled: Found | Empty
        if result.status is GetMessageStatus.FOUND or (
            result.status is GetMessageStatus.OFFSET_TOO_SMALL and state.older.find(wanted, message_filter, result)
        ):
            name, next_offset, records = wanted.group, result.next_begin_offset, result.slices
            count, size_bytes = result.message_count, result.size_bytes
            pulled = Found(next_offset, result.min_offset, result.max_offset, suggested, records, count, size_bytes)
            state.stats.handed_out(topic, name, queue_id, count, size_bytes, took_s, next_offset)
            if state.followers.all:
                state.followers.handed_out(HandedOut(topic, name, queue_id, records, took_s))
        else:
            pulled = _empty(result, wanted.queue_offset, suggested)
            state.stats.missed()
            if pulled.code == _MOVED:
                self._moved.moved(wanted, pulled.next_queue_offset)
        if wanted.commit_offset is not None and not is_slave:
            state.offsets.commit(topic, wanted.group, queue_id, wanted.commit_offset, wanted.peer.remote_address)
        return pulled

    def hold(self, wanted: Wanted, timeout_ms: int, wake: Callable[[HeldPull], object], places: int = 1) -> HeldPull:
        """Hold a pull until its queue gets a message that the pull's group wants.

        Call this method right after the pull, before the loop runs anything else.

        Args:
            wanted: the pull for which :meth:`pull` returned :class:`Empty`.
            timeout_ms: longest time to wait. Without ``pull.long_polling``, ``pull.short_polling_ms`` applies instead.
            wake: called once with the returned pull when a message has arrived or the time is up. The function shall pull
                again, without an offset to commit. ``wake`` is not called after the peer's connection closed, or after
                :meth:`cancel`.
            places: number of held pulls that this pull counts as, see :func:`~flintmq.core.broker.hold.places_of`.

        Raises:
            RefusedError: SYSTEM_BUSY if too many pulls wait already. The errors of :meth:`pull` are raised, too.
        """
        pull = self._state.config.pull
        return self.held.hold(
            wanted.topic,
            wanted.queue_id,
            wanted.queue_offset,
            wanted.peer,
            max(0, min(timeout_ms if pull.long_polling else pull.short_polling_ms, _HOLD_MAX_MS)),
            wake,
            self._filter(wanted, self._group(wanted.group)),
            places,
        )

    def hold_any(
        self,
        topic: str,
        wake: Callable[[HeldPull], object],
        timeout_ms: int,
        *,
        peer: Peer | None = None,
        message_filter: MessageFilter | None = None,
    ) -> HeldPull:
        """Wait for a message in any queue of a topic. No consumer offset is stored.

        Call this method right after the queues were read, before the loop runs anything else.

        Args:
            topic: the topic, which need not exist yet.
            wake: called once with the returned object when a message has arrived or the time is up.
            timeout_ms: longest time to wait.
            peer: the wait ends with the peer's connection and counts against the connection's limit; None for a feature of the
                broker.
            message_filter: only messages that the filter accepts end the wait.

        Raises:
            RefusedError: SYSTEM_BUSY if too many pulls wait already.
        """
        wait_ms = max(0, min(timeout_ms, _HOLD_MAX_MS))
        end = self._end(topic, ANY_QUEUE)
        return self.held.hold(topic, ANY_QUEUE, end, peer, wait_ms, wake, message_filter)

    def cancel(self, held: HeldPull) -> None:
        """End the wait of a held pull without calling its ``wake``. A wait that has ended is ignored."""
        self.held.cancel(held)

    def filter_of(self, subscription: SubscriptionData) -> MessageFilter | None:
        """Return the filter of a subscription; None if the subscription accepts every message.

        Raises:
            RefusedError: no filter has the subscription's expression type, or the expression does not parse.
        """
        return self._filters.compiled(subscription)

    # --- reads by services of the broker and by plugins ---

    def read(
        self, topic: str, queue_id: int, queue_offset: int, count: int = 32, message_filter: MessageFilter | None = None
    ) -> Found | Empty:
        """Return messages of a queue, for features. The read is not checked or counted, and the queue need not exist."""
        result = self._state.store.reader.get_message(topic, queue_id, queue_offset, count, message_filter)
        if result.status is not GetMessageStatus.FOUND:
            return _empty(result, queue_offset, 0)
        next_offset, low, high = result.next_begin_offset, result.min_offset, result.max_offset
        return Found(next_offset, low, high, 0, result.slices, result.message_count, result.size_bytes)

    def message_at(self, commit_log_offset_bytes: int, size_bytes: int | None = None) -> Record | None:
        """Return the message at a physical offset; None if the log has no whole record of ``size_bytes`` at this offset."""
        return self._state.store.reader.message_at(commit_log_offset_bytes, size_bytes)

    def _end(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that a queue's next message will have; for ``ANY_QUEUE``, the sum over a topic's queues."""
        end = self._state.store.reader.max_queue_offset
        if queue_id != ANY_QUEUE:
            return end(topic, queue_id)
        config = self._state.topics.select(topic)
        return sum([end(topic, one) for one in range(config.read_queue_nums)]) if config is not None else 0

    # --- checks of a pull, in RocketMQ's order ---

    def _group(self, name: str) -> SubscriptionGroupConfig:
        state = self._state
        if not state.config.broker.permission & perm.READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{state.advertised_address}] pulling message is forbidden",
                reason="broker.not_readable",
                key="broker.permission (brokerPermission)",
            )
        group = state.groups.select(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist",
                reason="group.missing",
                key="groups.auto_create (autoCreateSubscriptionGroup)",
            )
        if not group.consume_enable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {name}",
                reason="group.disabled",
                key="the group's consumeEnable (mqadmin updateSubGroup -s)",
            )
        return group

    def _check_queue(self, wanted: Wanted) -> None:
        topic = wanted.topic
        config = self._state.topics.select(topic)
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!", reason="topic.missing"
            )
        if not config.perm & perm.READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] pulling message is forbidden",
                reason="topic.not_readable",
                measured=f"permission {config.perm}",
                key="the topic's permission (mqadmin updateTopicPerm)",
            )
        if not 0 <= wanted.queue_id < config.read_queue_nums:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{wanted.queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{wanted.peer.remote_address}]",
                reason="queue.illegal",
                measured=f"queue {wanted.queue_id}",
            )

    def _filter(self, wanted: Wanted, group: SubscriptionGroupConfig) -> MessageFilter | None:
        """Return the filter of a pull; None if the pull accepts every message."""
        expression, kind = wanted.expression, wanted.expression_type
        if expression is None:
            subscription = self._registered(wanted, group)
        elif expression in (SUB_ALL, "") and kind in (None, TAG, ""):
            return None
        else:
            subscription = build_subscription(wanted.topic, expression, kind, wanted.sub_version)
        return self._filters.of(subscription, wanted.group)

    def _registered(self, wanted: Wanted, group: SubscriptionGroupConfig) -> SubscriptionData:
        name = wanted.group
        info = self._state.consumers.find(name)
        if info is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist",
                reason="subscription.no_group",
                measured=name,
            )
        if not group.consume_broadcast_enable and info.is_broadcasting:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
                reason="group.no_broadcast",
                key="the group's consumeBroadcastEnable (mqadmin updateSubGroup -d)",
            )
        subscription = info.find_subscription(wanted.topic)
        if subscription is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
                reason="subscription.missing",
                measured=f"group {name}, topic {wanted.topic}",
            )
        if subscription.sub_version < wanted.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
                reason="subscription.old",
                measured=f"subscription version {subscription.sub_version} at the broker, {wanted.sub_version} at the client",
            )
        return subscription


def _empty(result: GetMessageResult, queue_offset: int, suggested_broker_id: int) -> Empty:
    """Return the answer to a pull that read a queue from ``queue_offset`` on and found no message."""
    status, low, high = result.status, result.min_offset, result.max_offset
    code = _CODES.get(status) or (_NOT_FOUND if queue_offset == 0 else _MOVED)
    return Empty(result.next_begin_offset, low, high, suggested_broker_id, code, status.value)


class SubscriptionFilters:
    """Compiles the expressions of subscriptions. Used only on the event loop's thread.

    Args:
        state: gives the factories of filters and the service that precomputes filters as bit maps.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._known_backing: SupportsFilterBacking | None = None
        self._compiled: dict[tuple[str, str, frozenset[int]], MessageFilter] = {}

    def of(self, subscription: SubscriptionData, group: str) -> MessageFilter | None:
        """Return the filter of a group's subscription; None if the subscription accepts every message.

        The filter reads precomputed bit maps if they were made for the same expression.

        Raises:
            RefusedError: for the same reasons as in :meth:`compiled`.
        """
        made = self.compiled(subscription)
        if made is None or subscription.is_tag_type:
            return made
        backing = self._backing()
        if backing is None:
            return made
        return backing.backed(subscription.topic, group, subscription.expression_type, made, subscription.sub_string)

    def compiled(self, subscription: SubscriptionData) -> MessageFilter | None:
        """Return the filter of a subscription's expression; None if the expression accepts every message.

        Raises:
            RefusedError: the expression does not parse, no filter has its type, or the filter of its type is switched off.
        """
        kind, expression, codes = subscription.expression_type, subscription.sub_string, subscription.code_set
        if not codes and subscription.is_tag_type:
            return None
        # The filter's factory is looked up even for a cached filter, because SQL92 may have been switched off meanwhile.
        factory = self._factory(kind or TAG)
        key = (kind, expression, codes)
        known = self._compiled.get(key)
        if known is not None:
            if isinstance(known, IsolatedFilter):
                known.check()
            return known
        made = factory(expression, codes)
        if len(self._compiled) >= _FILTERS_MAX:
            self._compiled.clear()
        if len(expression) <= FILTER_EXPRESSION_MAX_BYTES:
            # The filter of a very long expression is not cached, because it would take too much memory.
            self._compiled[key] = made
        return made

    def _backing(self) -> SupportsFilterBacking | None:
        if self._known_backing is None:
            self._known_backing = next(self._state.services_with(SupportsFilterBacking), None)  # type: ignore[type-abstract]
        return self._known_backing

    def _factory(self, expression_type: str) -> MessageFilterFactory:
        """Return the factory of filters for an expression type: tags, SQL92 if it is switched on, or a plugin's type.

        Raises:
            RefusedError: SQL92 is switched off, or no plugin has registered the type.
        """
        filters = self._state.filters
        factory = filters.get(expression_type)
        allowed = self._state.config.pull.property_filter
        if factory is not None and (allowed or expression_type != SQL92):
            return factory
        if expression_type == SQL92 and not allowed:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
                reason="filter.off",
                key="pull.property_filter (enablePropertyFilter)",
            )
        known = f"types that have a filter: {', '.join(sorted(filters))}"
        if allowed:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the broker has no filter for expressions of type {expression_type[:80]}",
                reason="filter.unknown",
                measured=known,
            )
        # As in RocketMQ, if enablePropertyFilter is off, an unknown type of expression gets the same error as SQL92.
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type[:80]}",
            reason="filter.unknown",
            measured=known,
        )


class _OffsetMovedEvent(msgspec.Struct, rename="camel"):
    """The body of a record in topic OFFSET_MOVED_EVENT; RocketMQ's OffsetMovedEvent."""

    consumer_group: str
    message_queue: MessageQueue
    offset_new: int
    offset_request: int


class OffsetMovedEvents:
    """Stores a record in topic OFFSET_MOVED_EVENT for each pull from an offset outside its queue. Used only on the event loop's
    thread.

    See docs/internals/algorithms.md, Retention.

    If a client repeats the same wrong offset, at most one record is stored in ten seconds. RocketMQ and ``store.compat:
    strict`` store a record for every such pull, so that a client in an endless loop fills the log.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._last: OrderedDict[tuple[str, str, int], tuple[int, int, float]] = OrderedDict()

    def moved(self, wanted: Wanted, corrected: int) -> None:
        """Write a log line, and store a message in the topic OFFSET_MOVED_EVENT, about a pull from an offset outside its queue.

        The pull was answered with the queue offset ``corrected``.
        """
        state, group, topic, queue_id = self._state, wanted.group, wanted.topic, wanted.queue_id
        requested = wanted.queue_offset
        if state.config.store.compat == "safe" and self._is_repeat((group, topic, queue_id), requested, corrected):
            return
        log.warning(
            "pull.offset_moved",
            "%(group)s (%(client)s) asked for queue offset %(asked_offset)d of %(topic)s queue %(queue_id)d, "
            "which is outside the queue; its pulls continue at %(now_offset)d",
            group=group,
            client=wanted.peer.remote_address,
            asked_offset=requested,
            topic=topic,
            queue_id=queue_id,
            now_offset=corrected,
        )
        queue = MessageQueue(state.config.broker.name, queue_id, topic)
        event = msgspec.json.encode(_OffsetMovedEvent(group, queue, corrected, requested))
        try:
            state.sink.put([self._message(group, event)]).requests()
        except RefusedError as error:
            # The pull must be answered even if the message that reports the moved offset cannot be stored.
            log.warning(
                "pull.move_not_recorded",
                "the moved offset is not recorded in OFFSET_MOVED_EVENT: %(error)s",
                error=error.remark,
            )

    def _message(self, group: str, body: bytes) -> MessageExtBrokerInner:
        named = {props.KEYS: group, props.TAGS: group, props.DELAY: "0"}
        return MessageExtBrokerInner(
            OFFSET_MOVED_EVENT,
            0,
            body,
            named,
            properties_to_string(named).encode("utf-8", "surrogatepass"),
            self._state.clock.now_ms(),
            self._state.store_host,
            self._state.store_host,
        )

    def _is_repeat(self, key: tuple[str, str, int], requested: int, corrected: int) -> bool:
        now_s = self._state.clock.monotonic_s()
        before = self._last.get(key)
        if before is not None and before[:2] == (requested, corrected) and now_s - before[2] < _MOVED_REPEAT_S:
            return True
        self._last[key] = (requested, corrected, now_s)
        self._last.move_to_end(key)
        if len(self._last) > _MOVED_REMEMBERED_MAX:
            self._last.popitem(last=False)
        return False
