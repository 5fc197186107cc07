"""Consumers that are declared by decorating functions, and run together on one client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar, Unpack

import attrs

from flintmq.core.broker.subscription import TAG
from flintmq.core.errors import InvalidArgumentError
from flintmq.remoting.client.callbacks import is_coroutine_function
from flintmq.remoting.client.codec import Codec, decoding
from flintmq.remoting.client.consumer import Consumer, refuse_own_callers
from flintmq.remoting.client.consumer_settings import BROADCASTING, BatchListener, ConsumerSettings, Listener
from flintmq.remoting.client.instance import ClientInstance, InstanceOptions, InstanceUser
from flintmq.remoting.client.route import NameServers

L = TypeVar("L", bound=Listener)
B = TypeVar("B", bound=BatchListener)


@attrs.define
class _Group:
    """The handlers and settings declared for one consumer group."""

    name: str
    settings: ConsumerSettings | None
    takes_lists: bool
    is_async: bool
    handlers: dict[str, Callable[[Any], Any]] = attrs.field(factory=dict)
    """Functions that consume messages, keyed by the topic of the messages."""
    subscriptions: list[tuple[str, str, str]] = attrs.field(factory=list)
    """Topic, expression and expression type of each subscription of the group."""

    def consumer(self, options: dict[str, Any]) -> Consumer:
        """Return a new consumer of this group that passes messages to the group's handlers."""
        return Consumer(
            self.name,
            listener=None if self.takes_lists else self._dispatcher(),
            batch_listener=self._dispatcher() if self.takes_lists else None,
            settings=self.settings,
            **options,
        )

    def _dispatcher(self) -> Callable[[Any], Any]:
        """Return a listener that passes a message, or a list of messages of one topic, to the handler of the topic."""
        if len(self.handlers) == 1:
            return next(iter(self.handlers.values()))
        handlers, takes_lists = self.handlers, self.takes_lists

        def handler(messages: Any) -> Callable[[Any], Any]:
            return handlers[(messages[0] if takes_lists else messages).topic]

        if not self.is_async:
            return lambda messages: handler(messages)(messages)

        async def dispatch(messages: Any) -> Any:
            outcome: Awaitable[Any] = handler(messages)(messages)
            return await outcome

        return dispatch


class Consumers(InstanceUser):
    """Consumers of any number of groups, each declared by decorating a function.

    Used only on the event loop's thread.

    ::

        consumers = Consumers("127.0.0.1:9876")

        @consumers.handler("Orders", group="billing", expression="new || paid")
        async def bill(message): ...

        @consumers.batch_handler("Orders", group="archive")
        async def archive(messages): ...

        asyncio.run(consumers.run())        # or: async with consumers: ...

    The decorators return the functions unchanged, so tests can call them. Groups share one client, with one connection to each
    broker.

    Args:
        name_servers, client, instance_options: see :class:`~flintmq.remoting.client.instance.InstanceUser`.
    """

    def __init__(
        self,
        name_servers: NameServers = (),
        *,
        client: ClientInstance | None = None,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        super().__init__(name_servers, client=client, **instance_options)
        self._name_servers = name_servers
        self._instance_options = instance_options
        self._groups: dict[str, _Group] = {}
        self._running = AsyncExitStack()
        self._consumers: list[Consumer] = []
        """The running consumers, one for each group."""
        self._closed = asyncio.Event()

    def handler(
        self,
        topic: str,
        *,
        group: str,
        expression: str = "*",
        expression_type: str = TAG,
        settings: ConsumerSettings | None = None,
        codec: Codec | None = None,
    ) -> Callable[[L], L]:
        """Return a decorator that declares that a function consumes a topic, one message per call.

        Args:
            topic: the topic to consume.
            group: the consumer group. It can consume several topics, each with a separate function.
            expression: selects the messages to consume (``*``, ``A || B``, or SQL92).
            expression_type: ``TAG`` or ``SQL92``.
            settings: the settings of the group, such as order, concurrency and broadcasting. Pass them once for all topics of
                the group.
            codec: decodes bodies for ``message.value``, such as :class:`~flintmq.remoting.client.codec.JsonCodec`.

        Raises:
            ValueError: the group already has a function for the topic; the group already has other settings; the group's
                functions are of another kind (a kind is a coroutine or plain function, for one message or for a list); or the
                consumers already run.
        """
        return self._declaration(topic, group, expression, expression_type, settings, codec, takes_lists=False)

    def batch_handler(
        self,
        topic: str,
        *,
        group: str,
        expression: str = "*",
        expression_type: str = TAG,
        settings: ConsumerSettings | None = None,
        codec: Codec | None = None,
    ) -> Callable[[B], B]:
        """Return a decorator that declares that a function consumes up to ``settings.consume_batch_size`` messages per call.

        The arguments and errors are the same as for :meth:`handler`.
        """
        return self._declaration(topic, group, expression, expression_type, settings, codec, takes_lists=True)

    def _declaration(
        self,
        topic: str,
        group: str,
        expression: str,
        expression_type: str,
        settings: ConsumerSettings | None,
        codec: Codec | None,
        *,
        takes_lists: bool,
    ) -> Callable[[Any], Any]:
        def declare(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            is_async = is_coroutine_function(function)
            made = _Group(group, settings, takes_lists, is_async)
            known = self._groups.setdefault(group, made)
            if self._groups_run:
                raise InvalidArgumentError(f"group {group}: declare it before the consumers are started")
            if topic in known.handlers:
                raise InvalidArgumentError(
                    f"group {group} has a function for topic {topic} already: {known.handlers[topic]!r}"
                )
            if settings is not None and settings != (known.settings or settings):
                raise InvalidArgumentError(
                    f"group {group} has other settings already: give them once for all its topics"
                )
            if (takes_lists, is_async) != (known.takes_lists, known.is_async):
                raise InvalidArgumentError(
                    f"group {group} has functions of another kind already: do not mix coroutine functions with plain "
                    "functions, or functions that take lists with functions that take one message"
                )
            known.settings = known.settings or settings
            known.handlers[topic] = function if codec is None else decoding(function, codec)
            known.subscriptions.append((topic, expression, expression_type))
            return function

        return declare

    @property
    def _groups_run(self) -> bool:
        return bool(self.client.consumers)

    async def start(self) -> None:
        """Join every group and begin to consume. If this method raises an exception, no consumer runs.

        See :meth:`Consumer.subscribe` for the exceptions.
        """
        async with self._changes:
            if self._consumers and all(consumer.is_started for consumer in self._consumers):
                return
            await self._leave()  # Complete an earlier close() that was cancelled.
            self._open()
            async with AsyncExitStack() as running:
                consumers: list[Consumer] = []
                for group in self._groups.values():
                    consumer = await running.enter_async_context(group.consumer(self._options(group)))
                    consumers.append(consumer)
                    for topic, expression, expression_type in group.subscriptions:
                        await consumer.subscribe(topic, expression, expression_type)
                self._running, self._consumers = running.pop_all(), consumers
            self._closed.clear()

    def _options(self, group: _Group) -> dict[str, Any]:
        # A broadcasting group needs its own client, because the client id names the folder with the group's offsets.
        if group.settings is not None and group.settings.message_model == BROADCASTING:
            return {"name_servers": self._name_servers or self.client.name_servers, **self._instance_options}
        return {"client": self.client}

    async def close(self) -> None:
        """Leave every group, commit the offsets, and close the connections. Then :meth:`run` returns. Idempotent.

        Raises:
            RuntimeError: a decorated function called the method, which would then wait for this function to end. Nothing was
                closed.
        """
        refuse_own_callers(self._consumers)
        async with self._changes:
            await self._leave()
            self._closed.set()
            await self._shut()

    async def _leave(self) -> None:
        """Leave every group. If this method is cancelled, the next call repeats all steps."""
        await self._running.aclose()
        for consumer in self._consumers:
            await consumer.close()
        self._consumers = []

    async def run(self) -> None:
        """Consume until :meth:`close` or cancellation, then leave every group and commit. Installs no signal handler."""
        async with self:
            await self._closed.wait()
