"""Puts and pulls messages without a socket, with the same checks, the same append and the same durability."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any, Final, Protocol, overload

import attrs

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.outlet import Empty, Found, Wanted
from flintmq.core.broker.sink import Incoming, not_durable, told_durable, until_flushed
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.subscription import build_subscription
from flintmq.core.kernel.ports import DispatchRequest, FlushStatus, FlushWaiter
from flintmq.core.record.host import unpack_host
from flintmq.core.record.java_number import number_or
from flintmq.core.record.properties import REAL_QUEUE_ID
from flintmq.core.record.record import RecordError
from flintmq.remoting.client.broker_api import PullResult, PullStatus
from flintmq.remoting.client.message import Unpacking, messages_apart, messages_of
from flintmq.remoting.client.unique_id import UniqueIdMaker
from flintmq.remoting.wire.codes import MQ_VERSION
from flintmq.remoting.wire.headers_message import SendMessageRequestHeader

_DEFAULT_QUEUE_NUMS: Final = 4


class Puttable(Protocol):
    """The attributes of a message that can be put; :class:`flintmq.remoting.client.message.Message` has these attributes."""

    @property
    def topic(self) -> str: ...

    @property
    def body(self) -> bytes: ...

    @property
    def flag(self) -> int: ...

    def wire_text(self, uniq_key: str) -> str:
        """Return all properties of a message in the form in which clients send properties, with the message's new id."""
        ...


@attrs.frozen
class PutMessageResult:
    """The topic, queue, offsets and ids of a message that was put without a socket."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    """The broker's message id, made of the broker's host and the message's physical offset."""
    unique_key: str
    """The sender's message id: the property UNIQ_KEY."""
    commit_log_offset_bytes: int


class PutBatch(Sequence[PutMessageResult]):
    """The results of putting a batch of messages, in the order of the messages. Await the object to wait until the batch is
    durable. Results are created when they are accessed."""

    def __init__(
        self,
        appended: list[DispatchRequest],
        topics: list[str],
        host_hex: str,
        waiter: FlushWaiter | None,
        told: Callable[[FlushStatus], None],
        holding: Collection[str] = (),
    ) -> None:
        self._told = told
        self._appended = appended
        self._topics = topics
        self._host_hex = host_hex
        self._waiter = waiter
        self._holding = holding
        """Internal topics, such as the schedule topic, in which the broker stores a message until the message reaches its own
        queue."""

    @property
    def status(self) -> FlushStatus | None:
        """The status of the flush of a batch: None while the flush is in progress, FLUSHED if there is nothing to wait for."""
        return self._waiter.status if self._waiter is not None else FlushStatus.FLUSHED

    def _result(self, index: int) -> PutMessageResult:
        appended = self._appended[index]
        physical = appended.commit_log_offset_bytes
        queue_id = appended.queue_id
        if appended.topic in self._holding:
            queue_id = number_or(appended.properties.get(REAL_QUEUE_ID), queue_id)
        return PutMessageResult(
            self._topics[index],
            queue_id,
            appended.queue_offset,
            f"{self._host_hex}{physical:016X}",
            appended.uniq_key,
            physical,
        )

    @overload
    def __getitem__(self, index: int) -> PutMessageResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[PutMessageResult]: ...
    def __getitem__(self, index: int | slice) -> PutMessageResult | list[PutMessageResult]:
        if isinstance(index, slice):
            return [self._result(at) for at in range(*index.indices(len(self._appended)))]
        return self._result(index)

    def __len__(self) -> int:
        return len(self._appended)

    def __iter__(self) -> Iterator[PutMessageResult]:
        return map(self._result, range(len(self._appended)))

    def __await__(self) -> Generator[Any, None, PutBatch]:
        """Wait until the messages are as durable as the flush strategy promises.

        Raises:
            RefusedError: FLUSH_DISK_TIMEOUT (stored, maybe not durable), FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE (stored,
                but not on a slave), or SERVICE_NOT_AVAILABLE (a sync failed).
        """
        return self._durable().__await__()

    async def _durable(self) -> PutBatch:
        status = await until_flushed(self._waiter) if self._waiter is not None else FlushStatus.FLUSHED
        self._told(status)
        refusal = not_durable(status)
        if refusal is not None:
            raise refusal
        return self


@attrs.frozen(eq=False)
class Itself:
    """The addresses that the broker uses as the client's if its own process puts or pulls messages. Other clients have a
    connection, from which the broker takes the client's addresses."""

    packed_host: bytes
    remote_address: str


class InProcessPut:
    """Stores messages that the broker's own process puts without a socket. For the loop thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._ids = UniqueIdMaker(unpack_host(state.store_host)[0], state.clock)
        self._sender = Itself(state.store_host, state.advertised_address)
        self._next_queue = 0

    def put(self, messages: Sequence[Puttable]) -> PutBatch:
        """Append messages, each to the next queue of its topic. All messages are checked before the first one is appended."""
        state = self._state
        if not state.role.takes_writes:
            state.store.check_writeable()
        now_ms = state.clock.now_ms()
        single = state.intake.single
        select = state.topics.select
        # One header serves all messages of the batch, because messages keep no reference to their header.
        header = SendMessageRequestHeader(
            producer_group="",
            topic="",
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUE_NUMS,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=now_ms,
            flag=0,
        )
        made_with = min(_DEFAULT_QUEUE_NUMS, state.config.topics.default_queue_nums)
        inner: list[Incoming] = []
        waits = False
        for message, uniq_key in zip(messages, self._ids.make_many(len(messages)), strict=True):
            header.topic = topic = message.topic
            config = select(topic)
            queues = config.open_queue_nums if config is not None else made_with
            self._next_queue += 1
            header.queue_id = self._next_queue % queues if queues > 0 else 0
            header.flag = message.flag
            header.properties = message.wire_text(uniq_key)
            made = single(header, message.body, self._sender, MQ_VERSION)
            waits = waits or made.wait
            inner.append(made)
        if not inner:
            return PutBatch([], [], state.store_host_hex, None, self._told)
        stored = state.sink.put(inner)
        waiter = stored.waiter if waits else None
        topics, holding = [message.topic for message in messages], state.topics.holding_topics
        return PutBatch(stored.requests(), topics, state.store_host_hex, waiter, self._told, holding)

    def _told(self, status: FlushStatus) -> None:
        """Count the result of a flush in the broker's statistics. Can be called from any thread."""
        faults = self._state.stats.faults
        if status is not FlushStatus.FLUSHED or faults.are_some:
            # call_soon_threadsafe() raises RuntimeError if the broker's event loop has ended.
            # RuntimeError is ignored, because flushes need not be counted after the end of the event loop.
            with contextlib.suppress(RuntimeError):
                self._state.loop.call_soon_threadsafe(told_durable, status, faults)


def pull_result(pulled: Found | Empty, wanted: Wanted, broker_name: str) -> PullResult:
    """Return the messages of a pull, with their bodies decompressed. Can be called from any thread.

    This function compares tags as text, because the broker compares only the hashes of tags.

    Args:
        pulled: the broker's answer to the pull.
        wanted: the request, with an expression.
        broker_name: the broker name in the messages.
    """
    tags = build_subscription(wanted.topic, wanted.expression, wanted.expression_type).tags_set
    records = b"".join(pulled.records)
    try:
        messages = messages_of(records, broker_name, Unpacking())
    except RecordError:
        messages = messages_apart(records, broker_name, Unpacking())
    return PullResult(
        status=PullStatus(pulled.code),
        messages=tuple(one for one in messages if not tags or one.tags in tags),
        next_begin_queue_offset=pulled.next_queue_offset,
        min_queue_offset=pulled.min_queue_offset,
        max_queue_offset=pulled.max_queue_offset,
        suggested_broker_id=pulled.suggested_broker_id,
    )
