"""The client instance of producers and consumers: transport, routes, client id and heartbeats (``MQClientInstance``)."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Self, Unpack

from flintmq.core.errors import FlintError, InvalidArgumentError, RefusedError, RemotingConnectError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.log_events import event_log
from flintmq.remoting.client.callbacks import ended, told
from flintmq.remoting.client.message import MessageExt
from flintmq.remoting.client.namespace import Namespace
from flintmq.remoting.client.request_reply import Requests
from flintmq.remoting.client.route import ROUTE_MAX_AGE_S, NameServers, RouteCache, parse_name_servers
from flintmq.remoting.client.transport import InProcessServer, RemotingClient, RemotingOptions, RequestHandler, RpcHook
from flintmq.remoting.client.troubles import Troubles
from flintmq.remoting.client.unique_id import make_client_id
from flintmq.remoting.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.headers_message import UnregisterClientRequestHeader

log = event_log("flintmq.client")

HEARTBEAT_INTERVAL_S: Final = 30.0
REQUEST_TIMEOUT_MS: Final = 3_000


def checked(answer: RemotingCommand, *accepted: int) -> RemotingCommand:
    """Return a server's answer if the answer's code is SUCCESS or one of ``accepted``.

    Raises:
        RefusedError: the answer has another code. The error has the code and the remark of the answer. If the remark
            contains the reason of the refusal, the measured value, and the key of a setting, the error has these too.
    """
    if answer.code == ResponseCode.SUCCESS or answer.code in accepted:
        return answer
    raise RefusedError.of_answer(answer.code, answer.remark)


class InstanceOptions(RemotingOptions, total=False):
    """The keyword arguments of :class:`ClientInstance`, for the type annotations of functions that pass them on."""

    client_id: str | None
    hooks: Sequence[RpcHook]
    clock: Clock
    heartbeat_interval_s: float
    route_interval_s: float
    namespace: str


class ClientInstance:
    """A client as it appears to brokers: it has one client id, and one connection to each address.

    Used only on the event loop's thread.

    A producer or consumer creates its own client instance, or uses an instance passed as ``client``. The creator of an instance
    closes the instance.

    Args:
        name_servers: ``host:port;host:port``, a sequence of addresses, or an embedded broker of this process. An embedded
            broker needs neither the network nor a name server (docs/embedding.md).
        client_id: the id, which must be unique among the members of a group; by default it is generated.
        hooks: hooks that see every request and answer, such as an ``AclSigner``.
        clock: the source of time.
        heartbeat_interval_s: the interval between heartbeats to brokers.
        route_interval_s: the age at which a route is fetched again; new queues and brokers are seen after at most this time
            (pollNameServerInterval).
        namespace: the namespace of topics and groups, which servers know as ``NAMESPACE%NAME``; empty: none.
        remoting_options: the keyword arguments of :class:`RemotingClient`.

    Raises:
        ValueError: ``name_servers`` contains no address, or ``namespace`` is a name that brokers refuse.
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        client_id: str | None = None,
        hooks: Sequence[RpcHook] = (),
        clock: Clock = SYSTEM_CLOCK,
        heartbeat_interval_s: float = HEARTBEAT_INTERVAL_S,
        route_interval_s: float = ROUTE_MAX_AGE_S,
        namespace: str = "",
        **remoting_options: Unpack[RemotingOptions],
    ) -> None:
        self.client_id: str = client_id or make_client_id()
        self.clock = clock
        self.name_servers: NameServers = name_servers
        """The name servers, as the caller passed them to the constructor."""
        if isinstance(name_servers, InProcessServer):
            remoting_options["in_process"] = name_servers
        self.remoting: RemotingClient = RemotingClient(**remoting_options)
        for hook in hooks:
            self.remoting.add_hook(hook)
        self.namespace: Namespace = Namespace(namespace)
        self.routes: RouteCache = RouteCache(
            self.remoting,
            parse_name_servers(name_servers),
            clock,
            max_age_s=route_interval_s,
            namespace=self.namespace,
        )
        self.requests: Requests = Requests(self)
        self.producer_groups: set[str] = set()
        self.producers: Counter[str] = Counter()
        """Number of started producers, keyed by producer group.

        Brokers see all producers of a group as one member, which leaves the group when the last producer is closed."""
        self.consumers: dict[str, Callable[[], ConsumerData]] = {}
        """Functions that return a consumer's part of the next heartbeat, keyed by consumer group."""
        self.transaction_checks: dict[str, Callable[[RemotingCommand, str, MessageExt], Awaitable[None]]] = {}
        """Handlers of brokers' transaction checks (request code 39), keyed by producer group."""
        self._heartbeat_interval_s = heartbeat_interval_s
        self._group_handlers: dict[tuple[int, str], RequestHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.bodies_stay_packed: bool = False
        """Whether bodies of received messages stay compressed, for callers that show only a part of each body.

        A message with a compressed body has the ``body_error`` :data:`~flintmq.remoting.client.message.PACKED`."""
        self._silent = Troubles(clock)
        """Brokers that did not answer the latest heartbeat, keyed by address."""
        self.is_closed: bool = False
        """Whether the client instance is closed, so that it sends no more requests."""

    async def ask(
        self, address: str, command: RemotingCommand, timeout_ms: float = REQUEST_TIMEOUT_MS, *accepted: int
    ) -> RemotingCommand:
        """Send a request to a server and return its answer.

        Raises:
            RefusedError: the answer's code is neither SUCCESS nor in ``accepted``.
            RemotingError: no answer arrived.
        """
        return checked(await self.remoting.invoke(address, command, timeout_ms), *accepted)

    def register_group_processor(self, code: int, group: str, handler: RequestHandler) -> None:
        """Set the handler of the requests that brokers send to this client with one request code and for one group.

        The handler is called as ``handler(command, address)``: with the request, and with the address of the sending broker.
        """
        self._group_handlers[code, group] = handler
        self.remoting.register_processor(code, self._dispatch_by_group)

    def forget_group(self, group: str) -> None:
        """Remove the handlers of a group; requests that brokers push for the group are then refused."""
        self._group_handlers = {key: handler for key, handler in self._group_handlers.items() if key[1] != group}

    def _dispatch_by_group(
        self, command: RemotingCommand, address: str
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        ext_fields = command.ext_fields or {}
        group = self.namespace.unwrap(ext_fields.get("consumerGroup") or ext_fields.get("group") or "")
        handler = self._group_handlers.get((command.code, group))
        if handler is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"this client has no consumer of group {group}", reason="group.unknown"
            )
        return handler(command, address)

    def start_heartbeats(self) -> None:
        """Start sending heartbeats and refreshing routes in the background. Idempotent."""
        if not any(task.get_name() == "heartbeats" and not task.cancelling() for task in self._tasks):
            self.start_task(repeat(self._heartbeat_interval_s, self.send_heartbeats), "heartbeats")
            # Routes are refreshed by a separate task, because a name server that does not answer would delay heartbeats.
            self.start_task(repeat(self._heartbeat_interval_s, self._refresh_routes), "routes")

    async def send_heartbeats(self, addresses: Sequence[str] | None = None) -> int:
        """Send a heartbeat with the client's groups to brokers.

        If a broker does not answer, the client logs a line at once, and further lines at growing intervals.

        Args:
            addresses: the addresses of the brokers. By default a client with consumers uses all brokers that it knows, and a
                client without consumers uses only the masters.

        Returns:
            The number of brokers that answered the heartbeat.
        """
        heartbeat = HeartbeatData(
            self.client_id,
            [describe() for describe in self.consumers.values()],
            [ProducerData(self.namespace.wrap(group)) for group in sorted(self.producer_groups)],
        )
        if not heartbeat.consumer_data_set and not heartbeat.producer_data_set:
            return 0
        body = heartbeat.encode()
        if addresses is None:
            addresses = self.routes.broker_addresses(masters_only=not heartbeat.consumer_data_set)
            for gone in self._silent.reasons().keys() - set(addresses):
                self._silent.over(gone)
        outcomes = await asyncio.gather(
            *(self.ask(address, request(RequestCode.HEART_BEAT, body=body)) for address in addresses),
            return_exceptions=True,
        )
        for address, outcome in zip(addresses, outcomes, strict=True):
            if isinstance(outcome, FlintError):
                if self._silent.met(address, outcome):
                    log.warning(
                        "client.no_heartbeat", "no heartbeat to %(broker)s: %(error)s", broker=address, error=outcome
                    )
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._silent.over(address)
        return sum(isinstance(outcome, RemotingCommand) for outcome in outcomes)

    def is_silent(self, address: str) -> bool:
        """Return whether the latest heartbeat to a broker failed."""
        return address in self._silent.reasons()

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Unregister this client from a group at every known broker. A broker that does not answer is only logged."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=producer_group and self.namespace.wrap(producer_group),
            consumer_group=consumer_group and self.namespace.wrap(consumer_group),
        )
        for address in self.routes.broker_addresses():
            try:
                await self.ask(address, request(RequestCode.UNREGISTER_CLIENT, header), 1_000)
            except Exception as failure:
                # The client must be closed even if a hook raises an exception.
                log.info(
                    "client.not_unregistered",
                    "%(broker)s did not learn that this client leaves: %(error)s",
                    broker=address,
                    error=told(failure),
                )

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task, which is cancelled if the instance is closed. Exceptions of the task are logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("client.task_failed", "background work %(task)s failed", task=task.get_name(), exc_info=failure)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the instance's tasks or connections; None if the instance has no tasks and no connections."""
        return next((task.get_loop() for task in self._tasks), None) or self.remoting.loop

    def open(self) -> None:
        """Allow requests again after :meth:`close`. Producers and consumers restart the background tasks that they need."""
        self.is_closed = False
        self.remoting.open()

    async def close(self) -> None:
        """Cancel the instance's background tasks and close its connections. Idempotent."""
        self.is_closed = True
        left = await ended(self._tasks)
        if left:
            log.warning(
                "client.not_cancelled",
                "%(client)s is closed, these tasks still run although they were cancelled: %(tasks)s",
                client="a client",
                tasks=", ".join(left),
            )
        await self.remoting.close()

    async def _refresh_routes(self) -> None:
        for route in self.routes.known():
            try:
                await self.routes.route(route.topic)
            except RefusedError as failure:
                log.info(
                    "client.route_gone", "the route of %(topic)s is gone: %(error)s", topic=route.topic, error=failure
                )


async def repeat(interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
    """Call ``work`` at a fixed interval until cancelled.

    Exceptions of ``work`` are logged, at once and then after growing pauses.
    """
    troubles = Troubles(SYSTEM_CLOCK)
    while True:
        await asyncio.sleep(interval_s)
        try:
            await work()
            troubles.over("")
        except (FlintError, OSError) as failure:
            if troubles.met("", failure):
                log.warning(
                    "client.work_failed", "%(work)s: %(error)s", work=getattr(work, "__qualname__", work), error=failure
                )
        except Exception as failure:
            # An exception of ``work``, for example from a user's offset store, does not end the repetition.
            if troubles.met("", failure):
                log.exception("client.work_failed", "%(work)s failed", work=getattr(work, "__qualname__", work))


def _name(user: InstanceUser) -> str:
    group = f" of group {user.group}" if hasattr(user, "group") else ""
    return f"{type(user).__name__}{group} ({user.client.client_id})"


def _close_soon(user: InstanceUser) -> None:
    """Close a client that was garbage-collected without ``close()``, and log a warning.

    The warning is logged because few programs show a ``ResourceWarning``. Must be called on the client's event loop.
    """
    log.warning("client.dropped", "%(client)s was dropped without close(), and is closed now", client=_name(user))
    closing = asyncio.ensure_future(user.close())
    _CLOSING.add(closing)
    closing.add_done_callback(_CLOSING.discard)


_CLOSING: Final[set[asyncio.Future[None]]] = set()


class InstanceUser:
    """The base class of producers, consumers and admin clients, which use a :class:`ClientInstance`.

    Used only on the event loop's thread.

    Args:
        name_servers: ``host:port;host:port``, a sequence of addresses, or an embedded broker; ignored if ``client`` is given.
        client: an instance to share with others; :meth:`close` does not close it.
        instance_options: the keyword arguments of the :class:`ClientInstance` to create, if ``client`` is None.

    Raises:
        ValueError: ``name_servers`` has another type, or no address.
    """

    def __init__(
        self,
        name_servers: NameServers = (),
        *,
        client: ClientInstance | None = None,
        **instance_options: Unpack[InstanceOptions],
    ) -> None:
        if not isinstance(name_servers, str | Sequence | InProcessServer):
            raise InvalidArgumentError(
                f"name_servers is {name_servers!r}, and must be addresses of name servers, or a broker in this "
                "process. Pass a listener by keyword: listener=function"
            )
        self.client: ClientInstance = client or ClientInstance(name_servers, **instance_options)
        self._owns_client = client is None
        self._changes = asyncio.Lock()
        """Lock of :meth:`start` and :meth:`close`, which makes concurrent calls take effect in the order in which they were
        made."""
        self._process = os.getpid()

    def __del__(self) -> None:
        """Warn that the client was garbage-collected without ``close()``, and close its connections and tasks."""
        if not hasattr(self, "_process") or self._process != os.getpid() or not self._is_in_use:
            return
        loop = self.client.loop
        if loop is None:
            return
        warnings.warn(
            f"{_name(self)} was dropped without close(): use it in a with statement",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )
        if not loop.is_closed():
            loop.call_soon_threadsafe(_close_soon, self)

    @property
    def _is_in_use(self) -> bool:
        """Whether the client must be closed with ``close()``, because it owns its client instance."""
        return self._owns_client

    async def start(self) -> None:
        """Allow calls again after :meth:`close`. Connections are opened on demand.

        Raises:
            RemotingConnectError: the shared ``client`` is closed.
        """
        async with self._changes:
            self._open()

    async def close(self) -> None:
        """Close the client's connections, unless they belong to a shared client instance. Idempotent."""
        async with self._changes:
            await self._shut()

    def _open(self) -> None:
        if self.client.is_closed:
            if not self._owns_client:
                raise RemotingConnectError(
                    f"the client that this {type(self).__name__} shares is closed: start the owner of the client, or create "
                    "another client"
                )
            self.client.open()

    async def _shut(self) -> None:
        if self._owns_client:
            await self.client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
