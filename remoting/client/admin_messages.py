"""Administration of messages and offsets: read, copy and redeliver messages, and move the offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import attrs
import msgspec

from flintmq.core.broker.address import host_port
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingError
from flintmq.core.io.threads import background
from flintmq.core.io.typed_json import Int, Long
from flintmq.core.record import properties as props
from flintmq.core.record.host import decode_message_id
from flintmq.core.record.sys_flag import COMPRESSED
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.admin_broker import LONG_TIMEOUT_MS
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.compression import METHOD_MASK, CompressionError, UnreadableError
from flintmq.remoting.client.consume_from import FROM_FIRST
from flintmq.remoting.client.message import UNKNOWN_PLACE, Message, MessageExt, body_beginning, unpacked_messages
from flintmq.remoting.client.producer import SEND_TIMEOUT_MS, Producer
from flintmq.remoting.client.send_result import SendResult
from flintmq.remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.headers_admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from flintmq.remoting.wire.headers_message import ViewMessageRequestHeader
from flintmq.remoting.wire.json_body import Body

T = TypeVar("T")

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The consumer group with which RocketMQ's tools read queues. Every broker has this group."""
MASTERS_ASKED_MAX: Final = 32
AT_ONCE_MAX: Final = 16
"""Maximum number of concurrent requests for the offsets of queues. Each request is for one queue."""
READ_AT_ONCE_MAX: Final = 4
"""Maximum number of queues that the admin client reads at the same time. The answer for a queue has up to 4 MiB plus one
message."""
READ_QUEUES_MAX: Final = 256
READ_MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum total size of the bodies that the admin client reads from one queue. The stored size counts, also for compressed
bodies."""
READ_MESSAGES_MAX: Final = 1_000
"""Maximum number of messages that the admin client reads from all queues together."""
TRACE_MAX_BYTES: Final = 256 * 1024
"""Maximum number of bytes that are read from a message of the trace topic. Clients write trace messages of up to about 128,000
bytes."""
TRACES_MAX: Final = 200
Keep = Callable[[MessageExt], MessageExt]
"""A function that takes a message that the admin client has read, and returns the message to keep, such as a shortened copy.
The function runs on a thread."""
MOVE_TRIES: Final = 3
"""Maximum number of attempts to change a group's offset. An attempt fails if a consumer overwrites the offset at the same
time."""
_OF_THE_FIRST_SEND: Final = frozenset(
    {
        *(props.UNIQ_KEY, props.WAIT, props.DELAY, props.KEYS, props.TAGS, props.REAL_TOPIC, props.REAL_QUEUE_ID),
        *(props.RETRY_TOPIC, props.ORIGIN_MESSAGE_ID, props.RECONSUME_TIME, props.MAX_RECONSUME_TIMES),
        *(props.TRANSACTION_PREPARED, props.PRODUCER_GROUP, props.TRANSACTION_PREPARED_QUEUE_OFFSET),
        *(props.TRANSACTION_CHECK_TIMES, props.CHECK_IMMUNITY_TIME_IN_SECONDS, props.CLUSTER, props.MSG_REGION),
        *(props.TRACE_ON, props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL, props.MSG_TYPE),
        *(props.PUSH_REPLY_TIME, props.ARRIVE_TIME, props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS),
        *(props.TIMER_DELAY_SEC, props.TIMER_OUT_MS, "__transactionId__", "CONSUME_START_TIME", "MIN_OFFSET"),
        *("MAX_OFFSET", "INSTANCE_ID"),
    }
)
"""Properties that clients and brokers set for one send or delivery, and that must not be copied to another message."""


@attrs.frozen
class Move:
    """A change of a consumer group's offset in one queue, from the old offset to the new one."""

    queue: MessageQueue
    min_queue_offset: int
    max_queue_offset: int
    consumer_offset: int
    """The consumer group's offset before the change; -1 if the group has no offset in the queue."""
    new_offset: int

    @property
    def again(self) -> int:
        """Number of messages that the group gets again; if negative, the number of messages that it skips."""
        return max(self.consumer_offset, self.min_queue_offset) - self.new_offset


@attrs.frozen
class Moved:
    """The result of moving a consumer group's offsets: the changed offsets, and the failures."""

    offsets: Mapping[MessageQueue, int]
    """The consumer group's new offsets, keyed by queue."""
    members: int
    """Number of online consumers of the group that brokers informed about the group's new offsets."""
    errors: tuple[str, ...]
    """Error texts about the queues and brokers at which the group's offsets could not be changed."""


class DelayOffsets(Body):
    """The answer to GET_ALL_DELAY_OFFSET (45): the queue offset of the next message to deliver, keyed by delay level."""

    offset_table: dict[Int, Long] = msgspec.field(default_factory=dict)


async def view_message(admin: AdminClient, offset_msg_id: str) -> MessageExt:
    """Return the message with a broker's id, from registered brokers only.

    The id contains an address, which can be forged. Unlike :meth:`AdminClient.view_message`, this function connects only to
    addresses that a name server lists. The message is also found if its broker is now registered at another address than the id
    contains.

    Raises:
        ValueError: ``offset_msg_id`` is not a broker's message id.
        RefusedError: no broker has the message.
        RemotingError: no broker answers.
    """
    place = decode_message_id(offset_msg_id)
    own = host_port(place.ip, place.port)
    info = await admin.cluster_info()
    registered = [one for data in info.broker_addr_table.values() for one in data.broker_addrs.values()]
    masters = [one for one in (await admin.masters()).values() if one != own][:MASTERS_ASKED_MAX]
    header = ViewMessageRequestHeader(commit_log_offset_bytes=place.commit_log_offset_bytes)
    failure: RefusedError | RemotingError | None = None
    # All masters are asked for the message, because the broker's address in the message id may be outdated.
    for address in [own, *masters] if own in registered else masters:
        try:
            answer = await admin.client.ask(address, request(RequestCode.VIEW_MESSAGE_BY_ID, header))
        except (RefusedError, RemotingError) as error:
            failure = error
            continue
        for message in await unpacked_messages(answer.body, packed=admin.client.bodies_stay_packed):
            is_damaged = own in registered and message.queue_offset == UNKNOWN_PLACE
            if is_damaged or message.offset_msg_id.upper() == offset_msg_id.upper():
                return message
    if isinstance(failure, RemotingError):
        raise failure
    if failure is not None and failure.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND):
        raise failure
    if failure is not None and "AclException" in failure.remark:
        raise failure
    raise RefusedError(
        ResponseCode.QUERY_NOT_FOUND, f"no registered broker has a message {offset_msg_id}", reason="message.unknown"
    )


async def queues_of(admin: AdminClient, topic: str) -> dict[MessageQueue, tuple[int, int]]:
    """Return the minimum and maximum offsets of each queue of a topic, sorted by queue."""
    stats = await admin.topic_stats(topic)
    return {queue: (ends.min_queue_offset, ends.max_queue_offset) for queue, ends in sorted(stats.items())}


async def read_queue(
    admin: AdminClient, queue: MessageQueue, queue_offset: int, count: int, keep: Keep | None = None
) -> list[MessageExt]:
    """Return messages of a queue from an offset on, at most ``count``; fewer if the queue ends or the bodies exceed 8 MiB.

    Args:
        admin: the client that sends the requests.
        queue, queue_offset, count: the queue, the queue offset of the first message, and the maximum number.
        keep: a function called with each message when the message arrives; the function's result replaces the message.
    """
    api = BrokerApi(admin.client, TOOLS_GROUP)
    subscription = SubscriptionData(topic=queue.topic)
    found: list[MessageExt] = []
    while len(found) < count and sum(len(one.body) for one in found) < READ_MAX_BYTES:
        pulled = await api.pull(
            queue, queue_offset, subscription=subscription, max_messages=min(32, count - len(found))
        )
        if not pulled.messages or pulled.next_begin_queue_offset <= queue_offset:
            break
        found += pulled.messages if keep is None else await background(list, map(keep, pulled.messages))
        queue_offset = pulled.next_begin_queue_offset
    return found[:count]


async def read_times(
    admin: AdminClient, topic: str, begin_ms: int, end_ms: int, count: int, keep: Keep | None = None
) -> tuple[list[MessageExt], tuple[str, ...]]:
    """Return the messages of a topic that were stored in a time range, in the order of their store times.

    At most 256 queues are read, and at most 1,000 messages in total.

    Args:
        admin: the client that sends the requests.
        topic: the topic to read.
        begin_ms, end_ms: the range of store times, in ms since 1970.
        count: the maximum number of messages from each queue.
        keep: as for :func:`read_queue`.

    Returns:
        The messages, and sentences about the queues that were not read.
    """
    room = asyncio.Semaphore(READ_AT_ONCE_MAX)

    async def read(queue: MessageQueue, low: int, high: int) -> list[MessageExt]:
        async with room:
            first = max(low, await admin.search_offset(queue, begin_ms)) if begin_ms else low
            if first >= high:
                return []
            return await read_queue(admin, queue, first, min(count, high - first), keep)

    filled = [(queue, low, high) for queue, (low, high) in (await queues_of(admin, topic)).items() if high > low]
    queues = filled[:READ_QUEUES_MAX]
    count = min(count, max(1, READ_MESSAGES_MAX // max(1, len(queues))))
    answers, errors = await _of_each({queue: read(queue, low, high) for queue, low, high in queues})
    found = [one for answer in answers for one in answer if begin_ms <= one.store_timestamp_ms <= end_ms]
    found.sort(key=lambda one: (one.store_timestamp_ms, one.queue_id, one.queue_offset))
    if len(filled) > len(queues):
        errors += (f"only the first {len(queues)} of {len(filled)} queues with messages were read",)
    return found, errors


async def read_newest(
    admin: AdminClient, topic: str, count: int, keep: Keep | None = None
) -> tuple[list[MessageExt], tuple[str, ...]]:
    """Return the newest messages of a topic, at most ``count`` from all queues together, newest first.

    Args:
        admin: the client that sends the requests.
        topic, count: the topic, and the maximum number of messages.
        keep: as for :func:`read_queue`.

    Returns:
        The messages, and sentences about the queues that could not be read.
    """
    room = asyncio.Semaphore(AT_ONCE_MAX)
    stats = await admin.topic_stats(topic)
    ends = {queue: entry for queue, entry in stats.items() if entry.max_queue_offset > entry.min_queue_offset}
    # The newest `count` messages of a topic are all in the `count` queues that were last written to.
    newest = sorted(ends, key=lambda queue: (-ends[queue].last_update_timestamp_ms, queue))[:count]

    async def read(queue: MessageQueue) -> list[MessageExt]:
        low, high = ends[queue].min_queue_offset, ends[queue].max_queue_offset
        async with room:
            return await read_queue(admin, queue, max(low, high - count), count, keep)

    answers, errors = await _of_each({queue: read(queue) for queue in newest})
    found = [one for answer in answers for one in answer]
    found.sort(key=lambda one: (-one.store_timestamp_ms, one.broker_name, one.queue_id, -one.queue_offset))
    return found[:count], errors


async def _of_each(work: Mapping[MessageQueue, Awaitable[T]]) -> tuple[list[T], tuple[str, ...]]:
    """Run a request for each queue; return the results, and a sentence about each queue whose request failed."""
    answers = await asyncio.gather(*work.values(), return_exceptions=True)
    found: list[T] = []
    errors = []
    for queue, answer in zip(work, answers, strict=True):
        if isinstance(answer, (RefusedError, RemotingError)):
            errors.append(f"{queue.broker_name}:{queue.queue_id}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(answer)
    return found, tuple(errors)


async def consume_directly(
    admin: AdminClient, group: str, client_id: str, message: MessageExt, address: str
) -> ConsumeMessageDirectlyResult:
    """Have one member of a group consume a message at once, even if it has consumed it before; return the member's result.

    Args:
        admin: the client that sends the request.
        group, client_id: identify the member.
        message: the message; the broker that has the message reads it again from the store.
        address: the address of that broker, to which the member must be connected.

    Raises:
        RefusedError: the member is not connected or does not answer; the text is the broker's remark.
    """
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=group,
        client_id=client_id,
        msg_id=message.offset_msg_id,
        broker_name=message.broker_name or None,
        topic=message.topic,
    )
    answer = await admin.client.ask(address, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header), LONG_TIMEOUT_MS)
    return ConsumeMessageDirectlyResult.decode(answer.body)


async def send_copy(admin: AdminClient, message: MessageExt, topic: str, **more: str) -> SendResult:
    """Send a copy of a message: its body, tags, keys and the user's properties, with a new message id.

    If this client has not decompressed a compressed body, or cannot, the copy's body is the compressed body as it is stored.

    Args:
        admin: the client whose instance sends the copy.
        message: the message to copy.
        topic: the topic to send the copy to.
        more: additional properties of the copy.

    Raises:
        RefusedError: the broker refused the copy.
        RemotingError: the copy may or may not be stored.
        UnreadableError: the message is damaged; a copy would hide that.
    """
    is_compressed = bool(message.body_error and message.sys_flag & COMPRESSED)
    if message.body_error and not is_compressed:
        raise UnreadableError(f"{message.offset_msg_id} is not copied: {message.body_error}")
    own = {name: value for name, value in message.properties.items() if name not in _OF_THE_FIRST_SEND}
    copy = Message(
        topic, message.body, tags=message.tags or "", keys=tuple(message.keys), properties=own | more, flag=message.flag
    )
    async with _Copier("FLINTMQ_CONSOLE", client=admin.client) as producer:
        return await (producer.send_packed(copy, message.sys_flag) if is_compressed else producer.send(copy))


class _Copier(Producer):
    async def send_packed(self, message: Message, sys_flag: int) -> SendResult:
        """Send a message whose body is already compressed.

        ``sys_flag`` is the system flag of the original message; it contains the compression method.
        """
        prepared = attrs.evolve(self._preparer.one(message), sys_flag=sys_flag & (COMPRESSED | METHOD_MASK))
        return await self._sender.send(prepared, None, SEND_TIMEOUT_MS)


async def plan_moves(
    admin: AdminClient, topic: str, group: str, timestamp_ms: int
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """Return the offsets that a group would get in each queue of a topic by a reset to a time. Nothing is changed.

    Args:
        admin: the client that sends the requests.
        topic, group: the topic, and the group to move.
        timestamp_ms: the store time of the first message that the group is to get, in ms since 1970; 0: the first message
            that exists; -1: the next message that is sent.

    Returns:
        The moves, and sentences about the queues and brokers whose offsets could not be read.

    Raises:
        RefusedError: the topic does not exist.
    """
    room = asyncio.Semaphore(AT_ONCE_MAX)

    async def plan(queue: MessageQueue, low: int, high: int, consumer_offset: int) -> Move:
        async with room:
            new = await _offset_at(admin, queue, (low, high), timestamp_ms)
        return Move(queue, low, high, consumer_offset, new)

    masters = await admin.masters()
    work: dict[MessageQueue, Awaitable[Move]] = {}
    errors: list[str] = []
    for name in (await admin.client.routes.route(topic, max_age_s=0)).broker_addrs:
        if name not in masters:
            errors.append(f"{name}: it has no master now, and only a master takes offsets")
            continue
        try:
            ends = await admin.topic_stats_at(topic, masters[name])
            known = (await admin.consume_stats_at(group, masters[name], topic)).offset_table
        except (RefusedError, RemotingError) as error:
            errors.append(f"{name}: {error}")
            continue
        for queue, end in sorted(ends.items()):
            offset = known[queue].consumer_offset if queue in known else -1
            work[queue] = plan(queue, end.min_queue_offset, end.max_queue_offset, offset)
    moves, more_errors = await _of_each(work)
    return tuple(moves), (*errors, *more_errors)


async def plan_queue_move(
    admin: AdminClient, queue: MessageQueue, group: str, timestamp_ms: int, queue_offset: int | None = None
) -> Move:
    """Return the offset that a group would get in one queue by a reset. Nothing is changed.

    Args:
        admin: the client that sends the requests.
        queue, group: the queue, and the group to move.
        timestamp_ms: as for :func:`plan_moves`; ignored if ``queue_offset`` is given.
        queue_offset: the queue offset of the first message that the group is to get; None: use the time.

    Raises:
        RefusedError: the topic has no such queue, or the queue no such offset.
        RemotingError: the broker does not answer.
    """
    address = (await admin.masters()).get(queue.broker_name)
    ends = await admin.topic_stats_at(queue.topic, address) if address is not None else {}
    if address is None or queue not in ends:
        text = f"{queue.topic} has no queue {queue.broker_name}:{queue.queue_id}"
        raise RefusedError(ResponseCode.QUERY_NOT_FOUND, text, reason="queue.unknown")
    low, high = ends[queue].min_queue_offset, ends[queue].max_queue_offset
    if queue_offset is not None and not low <= queue_offset <= high:
        text = f"the queue has the offsets from {low} to {high}, not {queue_offset}"
        raise RefusedError(ResponseCode.QUERY_NOT_FOUND, text, reason="offset.unknown")
    known = (await admin.consume_stats_at(group, address, queue.topic)).offset_table.get(queue)
    consumer_offset = known.consumer_offset if known is not None else -1
    new = queue_offset if queue_offset is not None else await _offset_at(admin, queue, (low, high), timestamp_ms)
    return Move(queue, low, high, consumer_offset, new)


async def _offset_at(admin: AdminClient, queue: MessageQueue, ends: tuple[int, int], timestamp_ms: int) -> int:
    low, high = ends
    if timestamp_ms == -1:
        return high
    return max(low, await admin.search_offset(queue, timestamp_ms)) if timestamp_ms else low


async def move_group(admin: AdminClient, topic: str, group: str, timestamp_ms: int) -> Moved:
    """Reset a group's offsets in a topic to a time, broker by broker, whether the group's members are online or not.

    If members that consume the topic are online, the broker informs these members of the new offsets. The broker informs
    members only about queues for which the group has an offset, so missing offsets are written first. If no member is online,
    the new offsets are written to the broker.

    Returns:
        The new offsets, and sentences about the queues that could not be changed.

    Raises:
        RefusedError: the topic does not exist.
    """
    moves, errors = await plan_moves(admin, topic, group, timestamp_ms)
    by_broker: dict[str, list[Move]] = {}
    for move in moves:
        by_broker.setdefault(move.queue.broker_name, []).append(move)
    offsets: dict[MessageQueue, int] = {}
    told, problems = 0, list(errors)
    for name, own in by_broker.items():
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=True)
        try:
            members = await _readers_at(admin, group, topic, name)
            # If no member of the group is online, the new offset is stored, because members later begin at the stored offset.
            # If a queue has no stored offset of the group, the broker reports consumer offset 0 for the queue.
            # The broker does not send such a queue's new offset to members, so the new offset is stored for later starts.
            new = {move.queue: move.new_offset for move in own if members is None or move.consumer_offset <= 0}
            await set_offsets(admin, group, new)
            if members is not None:
                address = await admin.master(name)
                answer = await admin.client.ask(
                    address, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header), LONG_TIMEOUT_MS
                )
                obeyed = ResetOffsetBody.decode(answer.body).offset_table
                left = {move.queue: move.new_offset for move in own if move.queue not in obeyed}
                await set_offsets(admin, group, left)
                new = left | obeyed
                told = max(told, len(members.connection_set))
        except (RefusedError, RemotingError) as error:
            problems.append(f"{name}: {error}")
            continue
        offsets |= new
    return Moved(offsets, told, tuple(problems))


async def move_queue(admin: AdminClient, group: str, queue: MessageQueue, queue_offset: int) -> int:
    """Set a group's offset in one queue, without changing the group's offsets in other queues.

    The offset is written to the broker. Online members would overwrite the new offset within seconds, so the broker makes these
    members continue at the broker's stored offsets. RocketMQ 4.9 can make members continue at stored offsets only in all of the
    topic's queues at a broker. Therefore the members' current offsets in other queues are stored first if they are missing.

    Returns:
        The number of online members that the broker informed.

    Raises:
        RefusedError: the broker refuses.
        RemotingError: the broker does not answer, or members have overwritten the offset repeatedly.
    """
    address = await admin.master(queue.broker_name)
    members = await _readers_at(admin, group, queue.topic, queue.broker_name)
    header = ResetOffsetRequestHeader(topic=queue.topic, group=group, timestamp_ms=-1, is_force=False)
    for _ in range(MOVE_TRIES):
        await set_offsets(admin, group, {queue: queue_offset})
        if members is None:
            return 0
        await _store_missing(admin, group, queue, members)
        # INVOKE_BROKER_TO_RESET_OFFSET makes the group's members continue at the offsets that the broker has stored.
        # The timestamp -1 means the ends of the queues, but without ``is_force`` the broker never raises a stored offset.
        answer = await admin.client.ask(address, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
        if ResetOffsetBody.decode(answer.body).offset_table.get(queue) == queue_offset:
            return len(members.connection_set)
    raise RemotingError(f"a member of {group} overwrote the new offset {MOVE_TRIES} times: try again")


async def _readers_at(admin: AdminClient, group: str, topic: str, broker: str) -> ConsumerConnection | None:
    """Return the members of a group that are connected to a broker's master; None if no member consumes the topic.

    Raises:
        RefusedError: members from before the broker's restart have not reconnected yet; these members would overwrite new
            offsets.
    """
    try:
        members = await admin.consumer_connections(group, await admin.master(broker))
    except RefusedError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE or error.reason == "group.returning":
            raise
        return None
    return members if members.connection_set and topic in members.subscription_table else None


async def _store_missing(admin: AdminClient, group: str, moved: MessageQueue, members: ConsumerConnection) -> None:
    """Write a group's missing offsets in the queues of a topic at a broker, except in the queue whose offset is being moved.

    The offset that is written is the members' current position in the queue. If no member reports a position, it is the group's
    stored offset. Without a stored offset, it is the position where the group would begin.
    """
    address, api = await admin.master(moved.broker_name), BrokerApi(admin.client, group)
    ends = await admin.topic_stats_at(moved.topic, address)
    told = (await admin.consume_stats_at(group, address, moved.topic)).offset_table
    unsure = [queue for queue in ends if queue != moved and (queue not in told or told[queue].consumer_offset <= 0)]
    if not unsure:
        return
    header = GetConsumerStatusRequestHeader(topic=moved.topic, group=group)
    answer = await admin.client.ask(
        address, request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header), LONG_TIMEOUT_MS
    )
    come_to: dict[MessageQueue, int] = {}
    for table in GetConsumerStatusBody.decode(answer.body).consumer_table.values():
        come_to |= table
    for queue in unsure:
        stored = await api.committed(queue)
        end = ends[queue]
        begin = end.min_queue_offset if members.consume_from_where == FROM_FIRST else end.max_queue_offset
        await api.commit(queue, come_to.get(queue, begin if stored is None else stored))


async def set_offsets(admin: AdminClient, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Write a group's offsets to the brokers. Online members overwrite these offsets with their own within seconds."""
    api = BrokerApi(admin.client, group)
    for queue, consumer_offset in offsets.items():
        await api.commit(queue, consumer_offset)


async def delay_positions(admin: AdminClient, address: str) -> dict[int, int]:
    """Return, for each delay level, the queue offset of the next delayed message that a broker will deliver."""
    answer = await admin.client.ask(address, request(RequestCode.GET_ALL_DELAY_OFFSET), LONG_TIMEOUT_MS)
    return DelayOffsets.decode(answer.body).offset_table


async def traces_of(admin: AdminClient, topic: str, msg_id: str, max_num: int = 64) -> Sequence[Sequence[str]]:
    """Return the lines about a message in a trace topic, each split into its fields (see :mod:`.trace`)."""
    found = await admin.query_by_key(topic, msg_id, max_num=max_num)
    return await background(_traces_in, found, msg_id)


def _traces_in(found: Sequence[MessageExt], msg_id: str) -> list[list[str]]:
    lines: list[list[str]] = []
    for message in found:
        try:
            body, _ = body_beginning(message, TRACE_MAX_BYTES)
        except CompressionError:
            # A trace message that cannot be decompressed is skipped. The console's page of the trace message shows the error.
            continue
        fields = (line.strip().split("\x01") for line in body.decode("utf-8", "replace").split("\x02"))
        lines += (one for one in fields if msg_id in one)
        if len(lines) >= TRACES_MAX:
            break
    return lines[:TRACES_MAX]
