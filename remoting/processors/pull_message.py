"""PULL_MESSAGE (11), and LITE_PULL_MESSAGE (361) of client 5, now or when messages come (docs/internals/protocol.md, Pull)."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import ClassVar, Final

from flintmq.config.rocketmq.system_topics import OFFSET_MOVED_EVENT
from flintmq.core.broker import perm
from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.hold import HeldPull, places_of
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.subscription import TAG, SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.client_log import client_log
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.isolation import IsolatedFilter
from flintmq.core.kernel.ports import HandedOut, MessageFilter
from flintmq.core.kernel.ports.filter import SupportsFilterBacking
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.limits import FILTER_EXPRESSION_MAX_BYTES
from flintmq.core.record import properties as props
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ONEWAY_FLAG, ResponseCode
from flintmq.core.store.message_reader import GetMessageResult, GetMessageStatus
from flintmq.remoting.processors import needs
from flintmq.remoting.server.rpc_latency import QUICK_S
from flintmq.remoting.server.server import RemotingServer
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON
from flintmq.remoting.wire.fast_json import encode_pull_response_json
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader, PullMessageResponseHeader
from flintmq.remoting.wire.refusal import system_error

log = client_log("flintmq.broker")

COMMIT_OFFSET: Final = 0x1
SUSPEND: Final = 0x2
SUBSCRIPTION: Final = 0x4

_FOUND: Final = GetMessageStatus.FOUND.value.encode("ascii")
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_CODES: Final = {
    GetMessageStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetMessageStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetMessageStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: _MOVED,
}
"""Of the others PULL_NOT_FOUND at the start of a queue, else PULL_OFFSET_MOVED."""
_FILTERS_MAX: Final = 1024
_HOLD_MAX_MS: Final = 24 * 3600 * 1000
"""No client asks for more than half a minute; a hostile one must not overflow the timer."""
_MOVED_REPEAT_S: Final = 10.0
_MOVED_REMEMBERED_MAX: Final = 1024
_FLUSH_BYTES: Final = 1024 * 1024
"""A read of a quarter megabyte holds pulls whose answers are a thousand times as long."""

_handles_pulls: Final = partial(
    handles,
    header=PullMessageRequestHeader,
    answer=PullMessageResponseHeader,
    pool="pull",
    needs=needs.topic_and_group(),
)


class PullMessageProcessor:
    """Answers pulls; those that find nothing may be held. Loop thread."""

    may_wait: ClassVar = True
    """A peer that asks for much at once is answered in several iterations of the loop."""

    def __init__(self, state: BrokerState, server: RemotingServer) -> None:
        self._state = state
        self._followers = state.followers
        self._server = server
        self._moved = OffsetMovedEvents(state)
        self._known_backing: SupportsFilterBacking | None = None
        self._filters: dict[tuple[str, str, frozenset[int]], MessageFilter | None] = {}

    @_handles_pulls(RequestCode.PULL_MESSAGE)
    @_handles_pulls(RequestCode.LITE_PULL_MESSAGE)
    def process(self, batch: list[Request]) -> None:
        """Answer the pulls of one read; those that find nothing may be held.

        The answers leave in pieces, so that a peer that does not read holds little.
        """
        stats = self._state.stats
        flush_at = stats.get_bytes + _FLUSH_BYTES
        for number, request in enumerate(batch):
            if number and self._server.postponed.must_wait(request.channel):
                self._server.postponed.put(batch[number:])
                return
            self._process(request, may_hold=True)
            if stats.get_bytes >= flush_at:
                request.channel.flush()
                if not request.channel.is_open:
                    return
                flush_at = stats.get_bytes + _FLUSH_BYTES

    def _process(self, request: Request, *, may_hold: bool) -> None:
        try:
            self._pull(request, request.header(PullMessageRequestHeader), may_hold=may_hold)
        except RefusedError as error:
            request.channel.refuse(request, error)

    def _pull(self, request: Request, header: PullMessageRequestHeader, *, may_hold: bool) -> None:
        state = self._state
        group = self._group(header.consumer_group)
        if not state.role.takes_writes and not state.config.pull.slave_read and state.has_master():
            # Refused to be read as a slave while the master lives. Nothing is skipped, as RocketMQ's answer would.
            result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, header.queue_offset, 0, 0, [])
            self._answer(
                request,
                int(ResponseCode.PULL_RETRY_IMMEDIATELY),
                result,
                group,
                request.channel.read_s,
                was_held=not may_hold,
            )
            return
        topic, name, queue_id = header.topic, header.consumer_group, header.queue_id
        remote_address = request.channel.remote_address
        self._check_topic(header, remote_address)
        subscription = self._subscription(header, group)
        message_filter = self._filter(subscription, header.consumer_group)
        begin_s = state.clock.monotonic_s()
        result = state.store.reader.get_message(
            topic, queue_id, header.queue_offset, header.max_msg_nums, message_filter
        )
        end_s = state.clock.monotonic_s()
        stats = state.stats
        if result.status is GetMessageStatus.FOUND:
            code = 0
            took_s = end_s - begin_s
            next_offset = result.next_begin_offset
            stats.handed_out(topic, name, queue_id, result.message_count, result.size_bytes, took_s, next_offset)
            if self._followers.all:
                self._followers.handed_out(HandedOut(topic, name, queue_id, result.slices, took_s))
        else:
            stats.get_missed += 1
            code = _CODES.get(result.status) or (_NOT_FOUND if header.queue_offset == 0 else _MOVED)
            if code == _MOVED:
                self._moved.moved(header, result.next_begin_offset, remote_address)
        if may_hold and header.sys_flag & COMMIT_OFFSET and state.role.takes_writes:
            state.offsets.commit(topic, name, queue_id, header.commit_consumer_offset, remote_address)
        if code == _NOT_FOUND and may_hold and header.sys_flag & SUSPEND:
            self._hold(request, header, message_filter)
            return
        self._answer(request, code, result, group, end_s, was_held=not may_hold)

    # checks, in RocketMQ's order

    def _group(self, name: str) -> SubscriptionGroupConfig:
        broker = self._state.config.broker
        if not perm.is_readable(broker.permission):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._state.advertised_address}] pulling message is forbidden",
                reason="broker.not_readable",
                key="broker.permission (brokerPermission)",
            )
        group = self._state.groups.select(name)
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

    def _check_topic(self, header: PullMessageRequestHeader, remote_address: str) -> None:
        topic = header.topic
        config = self._state.topics.select(topic)
        if config is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!", reason="topic.missing"
            )
        if not perm.is_readable(config.perm):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] pulling message is forbidden",
                reason="topic.not_readable",
                measured=f"permission {config.perm}",
                key="the topic's permission (mqadmin updateTopicPerm)",
            )
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise system_error(
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{config.read_queue_nums}] consumer:[{remote_address}]",
                reason="queue.illegal",
                measured=f"queue {header.queue_id}",
            )

    def _subscription(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | None:
        if header.sys_flag & SUBSCRIPTION:
            if header.subscription in (None, "*", "") and header.expression_type in (None, "TAG", ""):
                return None
            return build_subscription(header.topic, header.subscription, header.expression_type, header.sub_version)
        name = header.consumer_group
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
        subscription = info.find_subscription(header.topic)
        if subscription is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
                reason="subscription.missing",
                measured=f"group {name}, topic {header.topic}",
            )
        if subscription.sub_version < header.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
                reason="subscription.old",
                measured=f"version {subscription.sub_version} here, {header.sub_version} at the client",
            )
        return subscription

    def _filter(self, subscription: SubscriptionData | None, group: str) -> MessageFilter | None:
        """Return the filter of a subscription; None lets everything pass."""
        if subscription is None or (subscription.is_tag_type and not subscription.code_set):
            return None
        made = self._compiled(subscription)
        if subscription.is_tag_type or made is None:
            return made
        backing = self._backing()
        if backing is None:
            return made
        return backing.backed(subscription.topic, group, subscription.expression_type, made, subscription.sub_string)

    def _backing(self) -> SupportsFilterBacking | None:
        if self._known_backing is None:
            self._known_backing = next(self._state.services_with(SupportsFilterBacking), None)  # type: ignore[type-abstract]
        return self._known_backing

    def _compiled(self, subscription: SubscriptionData) -> MessageFilter | None:
        """Remembered, because each pull brings the same few."""
        key = (subscription.expression_type, subscription.sub_string, subscription.code_set)
        known = self._filters.get(key)
        if known is not None:
            if isinstance(known, IsolatedFilter):
                known.check()
            return known
        factory = self._state.filter_factory(subscription.expression_type or TAG)
        made = factory(subscription.sub_string, subscription.code_set)
        if len(self._filters) >= _FILTERS_MAX:
            self._filters.clear()
        if len(subscription.sub_string) <= FILTER_EXPRESSION_MAX_BYTES:  # a thousand as long as a header are too much
            self._filters[key] = made
        return made

    def _hold(self, request: Request, header: PullMessageRequestHeader, message_filter: MessageFilter | None) -> None:
        pull = self._state.config.pull
        wait_ms = header.suspend_timeout_ms if pull.long_polling else pull.short_polling_ms
        request.read_s = request.channel.read_s
        self._state.hold.hold(
            header.topic,
            header.queue_id,
            header.queue_offset,
            request.channel,
            max(0, min(wait_ms, _HOLD_MAX_MS)),
            partial(self._resume, request),
            message_filter,
            places_of(request, header.subscription),
        )

    def _resume(self, request: Request, _held: HeldPull) -> None:
        self._process(request, may_hold=False)
        self._server.flush_soon(request.channel)

    def _answer(
        self,
        request: Request,
        code: int,
        result: GetMessageResult,
        group: SubscriptionGroupConfig,
        end_s: float,
        *,
        was_held: bool,
    ) -> None:
        latency = self._server.latency
        if request.flag & ONEWAY_FLAG:
            if latency is not None:
                latency.add(request.code, code, end_s - (request.read_s or request.channel.read_s), is_oneway=True)
            return
        suggested = 0
        if self._state.config.pull.slave_read:
            suggested = group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
        channel = request.channel
        if request.codec == JSON and self._state.answers_as_bytes:
            if latency is not None and (code or was_held or end_s - channel.read_s > QUICK_S):
                latency.add(request.code, code, end_s - (request.read_s or channel.read_s), was_held=was_held)
            channel.write(
                encode_pull_response_json(
                    request.opaque,
                    code,
                    suggested,
                    result.next_begin_offset,
                    result.min_offset,
                    result.max_offset,
                    _FOUND if result.status is GetMessageStatus.FOUND else result.status.value.encode("ascii"),
                    result.size_bytes,
                )
            )
            channel.write_all(result.slices)
            return
        fields = {
            "suggestWhichBrokerId": str(suggested),
            "nextBeginOffset": str(result.next_begin_offset),
            "maxOffset": str(result.max_offset),
            "minOffset": str(result.min_offset),
        }
        channel.respond(request, Response(code, result.status.value, fields, b"".join(result.slices)))


class OffsetMovedEvents:
    """Stores a record in OFFSET_MOVED_EVENT for each consumer that asked for what is not there. Loop thread.

    See docs/internals/algorithms.md, Retention.

    A client that asks again and again for the same wrong offset gets one record in ten seconds: with RocketMQ each of its
    pulls makes the log grow (``compat: strict`` does so too).
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._last: OrderedDict[tuple[str, str, int], tuple[int, int, float]] = OrderedDict()

    def moved(self, header: PullMessageRequestHeader, corrected: int, remote_address: str) -> None:
        """Note that a pull was answered with the queue offset ``corrected`` in place of the one it asked for."""
        state, group, topic, queue_id = self._state, header.consumer_group, header.topic, header.queue_id
        requested = header.queue_offset
        if state.config.store.compat == "safe" and self._is_repeat((group, topic, queue_id), requested, corrected):
            return
        text = "%s (%s) asked for queue offset %d of %s queue %d and is sent to %d"
        log.warning(text, group, remote_address, requested, topic, queue_id, corrected)
        event = bodies.OffsetMovedEvent(
            consumer_group=group,
            message_queue=MessageQueue(state.config.broker.name, queue_id, topic),
            offset_new=corrected,
            offset_request=requested,
        )
        try:
            state.sink.put([self._message(group, event.encode())]).requests()
        except RefusedError as error:  # the answer to the pull matters more than its trace
            log.warning("no record of it: %s", error.remark)

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
