"""Consuming as a member of a group: the members share the queues, and messages are pushed to a listener.

::

    rebalance ──queue gained──▶ load its offset ──▶ pull ◀──▶ listener ──consumed──▶ commit every 5 s
        ▲      ──queue lost───▶ commit, unlock
        └── every 20 s, and when a broker says that members came or went
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Final, Unpack

from flintmq.core.broker.subscription import TAG, SubscriptionData, build_subscription
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import InvalidArgumentError, RefusedError
from flintmq.core.running_loop import running_loop
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.callbacks import ended
from flintmq.remoting.client.codec import Codec
from flintmq.remoting.client.consume_service import ConsumeService
from flintmq.remoting.client.consumer_requests import ConsumerRequests
from flintmq.remoting.client.consumer_settings import BROADCASTING, BatchListener, ConsumerSettings, Listener
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions, InstanceUser, log, repeat
from flintmq.remoting.client.membership import Membership
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.offset_store import BrokerOffsetStore, FileOffsetStore, OffsetStore
from flintmq.remoting.client.process_queue import ProcessQueue
from flintmq.remoting.client.rebalancer import Rebalancer
from flintmq.remoting.client.route import NameServers
from flintmq.remoting.client.trace import Tracer
from flintmq.remoting.client.unique_id import make_client_id
from flintmq.remoting.wire.bodies import CheckClientRequestBody
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request

CLOSED_BY_LISTENER: Final = (
    "close() was called by this consumer's listener, for whose end it waits: call it in another task or thread"
)


class Consumer(InstanceUser):
    """A member of a consumer group (``DefaultMQPushConsumer`` of RocketMQ).

    Used only on the event loop's thread, usually in an ``async with`` statement.

    With a listener, each message is passed to the listener. Without a listener, iterate over the consumer: a message counts as
    consumed when the next one is requested. If an exception or ``break`` ends the loop, the current message is delivered
    again::

        async with Consumer("group", "127.0.0.1:9876") as consumer:
            await consumer.subscribe("Topic", "TagA || TagB")
            async for message in consumer:
                ...

    Args:
        group: the consumer group.
        listener: consumes messages, one per call.
        batch_listener: used instead of a listener; consumes up to ``settings.consume_batch_size`` messages of one queue per
            call.
        settings: the consumer's settings; the defaults are RocketMQ's.
        offset_store: stores the group's offsets; by default the brokers (CLUSTERING) or a local file (BROADCASTING).
        trace: True writes a trace record of each message to RocketMQ's trace topic; a string names another topic.
        codec: decodes bodies for ``message.value``, such as :class:`~flintmq.remoting.client.codec.JsonCodec`.
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`. Two members of a
            group cannot share a ``client``.
    """

    def __init__(
        self,
        group: str,
        name_servers: NameServers = (),
        listener: Listener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        settings: ConsumerSettings | None = None,
        client: ClientInstance | None = None,
        offset_store: OffsetStore | None = None,
        trace: str | bool = False,
        codec: Codec | None = None,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        self.group = group
        self.settings: ConsumerSettings = settings or ConsumerSettings()
        # In broadcasting mode, the client id names the folder that stores the consumer's offsets.
        # A broadcasting consumer has the same default client id after a restart, so that it finds its stored offsets.
        if self.settings.message_model == BROADCASTING:
            instance_options.setdefault("client_id", make_client_id(instance_name="DEFAULT"))
        super().__init__(name_servers, client=client, **instance_options)
        self.member: Membership = Membership(
            group=group,
            settings=self.settings,
            client=self.client,
            api=BrokerApi(self.client, group),
            tracer=Tracer(self.client, group, trace) if trace else None,
        )
        self.started_at_ms: int = 0
        self._started = False
        self._is_leaving = False
        """Whether :meth:`close` has begun and not ended. The value stays true if the task that calls :meth:`close` is
        cancelled."""
        self._offsets = offset_store or self._default_offset_store()
        self.consumption: ConsumeService = ConsumeService(
            self.member, listener, batch_listener, self.member.start_task, codec
        )
        self.rebalancer: Rebalancer = Rebalancer(self.member, self._offsets, self.consumption.run)

    # --- start and close of the consumer ---

    async def start(self) -> None:
        """Join the group and begin to consume.

        After :meth:`close`, the consumer can be started again and still has its subscriptions.

        Raises:
            ValueError: the shared ``client`` already has a member of this group.
            RemotingConnectError: the shared ``client`` is closed.
        """
        async with self._changes:
            if self._is_leaving:
                await self._leave()  # Complete an earlier close() that was cancelled.
            if not self._started:
                self._open()
                if self.member.tracer is not None:
                    self.member.tracer.begin()
                await self._join()

    async def _join(self) -> None:
        if self.group in self.client.consumers:
            raise InvalidArgumentError(
                f"group {self.group} has a member on this client already, and brokers cannot distinguish two members of one "
                "client: give this consumer another client"
            )
        self._started = True
        self.started_at_ms = self.client.clock.now_ms()
        ConsumerRequests(self.member, self.rebalancer, self.consumption, self.started_at_ms).register()
        if self.member.is_clustering:
            await self.subscribe(RETRY_PREFIX + self.group)
        self.client.consumers[self.group] = self.member.describe
        self.client.start_heartbeats()
        settings = self.settings
        self.rebalancer.begin()
        self.consumption.start()
        start_task = self.member.start_task
        start_task(repeat(settings.commit_interval_s, self.rebalancer.commit), "commit")
        if settings.orderly and self.member.is_clustering:
            start_task(repeat(settings.lock_interval_s, self.rebalancer.renew_locks), "locks")
        start_task(self.rebalancer.run(), "rebalance")

    async def close(self) -> None:
        """Stop consuming, commit, leave the group and close the connections. Idempotent.

        The method waits up to ``settings.close_timeout_s`` for messages that are being consumed concurrently. Messages not
        finished by then are abandoned and delivered again. An orderly message is always finished. An ``async for`` loop over
        the consumer ends, and the loop's current message is delivered again.

        Raises:
            RuntimeError: a listener of this consumer called the method. The method would wait for this listener to end, and the
                listener would wait for the method.
        """
        refuse_own_callers([self])
        # The lock makes a second close() wait until the first close() has closed everything.
        async with self._changes:
            if self._started or self._is_leaving:
                await self._leave()
            if self.member.tracer is not None:
                await self.member.tracer.close()
            await self._shut()

    async def _leave(self) -> None:
        """Stop consuming, commit and leave the group. If this method is cancelled, the next call repeats all steps."""
        self._started, self._is_leaving = False, True
        tasks = self.member.tasks
        try:
            await self.consumption.iteration.settle()
            await self.consumption.drain(self.settings.close_timeout_s)
        finally:
            for task in tasks:
                task.cancel()
        left = await ended(tasks)
        if left:
            log.warning(
                "client.not_cancelled",
                "%(client)s is closed, these tasks still run although they were cancelled: %(tasks)s",
                client=self.group,
                tasks=", ".join(left),
            )
        self.consumption.iteration.end()
        await self.rebalancer.drop_all()
        self.consumption.close()
        self.client.consumers.pop(self.group, None)
        self.client.forget_group(self.group)
        await self.client.unregister(consumer_group=self.group)
        self._is_leaving = False

    async def subscribe(self, topic: str, expression: str = "*", expression_type: str = TAG) -> None:
        """Consume the messages of a topic that match an expression (``*``, ``A || B``, or SQL92).

        Raises:
            RefusedError: the expression does not parse; a broker parses SQL92.
        """
        subscription = build_subscription(topic, expression, expression_type, self.client.clock.now_ms())
        if not subscription.is_tag_type:
            await self._check(subscription)
        self.member.subscriptions[topic] = subscription
        self.rebalancer.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic, and release its queues."""
        self.member.subscriptions.pop(topic, None)
        await self.rebalancer.drop_topic(topic)

    def suspend(self) -> None:
        """Stop pulling messages until :meth:`resume`. Messages already pulled are consumed; the consumer stays in its group."""
        self.consumption.suspend()

    def resume(self) -> None:
        """Continue to pull messages after a call of :meth:`suspend`."""
        self.consumption.resume()

    @property
    def is_started(self) -> bool:
        """Whether this consumer is currently a member of its group."""
        return self._started

    @property
    def troubles(self) -> Mapping[str, str]:
        """The current obstacles to consuming, each with its reason; empty if nothing prevents consuming.

        A key of the mapping is the name of a topic (if the topic has no route yet, or no name server answers) or
        ``broker NAME`` (if this broker does not answer).
        """
        return self.member.troubles.reasons()

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionData]:
        """The current subscriptions of this consumer, keyed by topic."""
        return self.member.subscriptions

    @property
    def process_queues(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues that are assigned to this member, each with its unconsumed messages."""
        return self.rebalancer.process_queues

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Iterate over the consumer's messages; see :meth:`~flintmq.remoting.client.iteration.Iteration.messages`."""
        return self.messages()

    def messages(self, timeout_ms: int | None = None) -> AsyncIterator[MessageExt]:
        """Iterate over the messages as ``async for message in consumer`` does, with a timeout.

        Args:
            timeout_ms: the time without a message after which the iteration ends; None: the iteration ends only when the
                consumer is closed.

        Raises:
            TypeError: the consumer has a listener.
            RuntimeError: the consumer was never started, so no message can arrive.
        """
        messages = self.consumption.iteration.messages(timeout_ms, owner=self)
        if not (self._started or self.started_at_ms):
            raise RuntimeError(
                f"consumer of {self.group} is not started: use it in an async with statement, or start() it"
            )
        return messages

    async def rebalance(self) -> None:
        """Compute which queues this member consumes; start to consume added queues, and release removed queues."""
        await self.rebalancer.rebalance()

    async def commit(self) -> None:
        """Store each consumer offset that has changed since it was last stored. Raises ``FlintError``."""
        await self.rebalancer.commit()

    # --- internals ---

    def _default_offset_store(self) -> OffsetStore:
        if self.member.is_clustering:
            return BrokerOffsetStore(self.member.api)
        folder = self.settings.offset_folder or _home() / ".rocketmq_offsets"
        return FileOffsetStore(folder / self.client.client_id / self.member.wrapped_group / "offsets.json")

    @property
    def _is_in_use(self) -> bool:
        return self._started or super()._is_in_use

    async def _check(self, subscription: SubscriptionData) -> None:
        route = await self.client.routes.route(subscription.topic)
        wrapped = self.client.namespace.wrap_subscription(subscription)
        body = CheckClientRequestBody(self.client.client_id, self.member.wrapped_group, None, wrapped)
        if not route.broker_addrs:
            raise RefusedError(17, f"topic {subscription.topic} has no broker", reason="route.no-broker")
        command = request(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
        await self.client.ask(route.address(next(iter(route.broker_addrs))), command)


def _home() -> Path:
    """Return the user's home folder.

    Raises:
        InvalidArgumentError: the user has no home folder, as in a container whose user has no passwd entry.
    """
    try:
        return Path.home()
    except RuntimeError as failure:
        raise InvalidArgumentError(
            "this user has no home folder, in which the offsets of broadcasting are stored: set ConsumerSettings.offset_folder"
        ) from failure


def refuse_own_callers(consumers: Iterable[Consumer]) -> None:
    """Raise ``RuntimeError`` if the caller is a listener or the offset store of one of the consumers.

    A listener or an offset store cannot close its own consumer, because the close would wait for its caller to return.

    Thread-safe, because plain listeners run on threads.
    """
    task = asyncio.current_task() if running_loop() is not None else None
    for consumer in consumers:
        is_own = task is not None and (task in consumer.member.tasks or consumer.rebalancer.has_task(task))
        if is_own or consumer.consumption.is_listening:
            raise RuntimeError(CLOSED_BY_LISTENER)
