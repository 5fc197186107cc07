"""What producers and consumers share: the transport, the routes, the client's name, its heartbeats."""

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
    """Return the answer itself when its code is SUCCESS or among those accepted.

    Raises:
        RefusedError: with the answer's code, its remark, and what that says of reason, measured value and key.
    """
    if answer.code == ResponseCode.SUCCESS or answer.code in accepted:
        return answer
    raise RefusedError.of_answer(answer.code, answer.remark)


class InstanceOptions(RemotingOptions, total=False):
    """What :class:`ClientInstance` takes beside the name servers, for the types of those that hand it on."""

    client_id: str | None
    hooks: Sequence[RpcHook]
    clock: Clock
    heartbeat_interval_s: float
    route_interval_s: float
    namespace: str


class ClientInstance:
    """One client to the brokers: one id, one connection per address. Loop thread only.

    A producer or consumer makes its own unless it is given one; its maker closes it.

    Args:
        name_servers: ``host:port;host:port``, a sequence of addresses, or an embedded broker of this process, which is then
            reached without the network and without a name server (docs/embedding.md).
        client_id: must be unique among the members of a group; made up by default.
        hooks: see every request and answer (an ``AclSigner``, for example).
        clock: where the time comes from.
        heartbeat_interval_s: how often brokers receive a heartbeat.
        route_interval_s: how old a route may get before a name server is asked again: how soon a client learns of new queues
            and brokers (pollNameServerInterval).
        namespace: of the topics and groups, which servers then know as ``NAMESPACE%NAME``; empty: none.
        remoting_options: for :class:`RemotingClient`.

    Raises:
        ValueError: there is no address; or the namespace is none that brokers take.
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
        """As they were given."""
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
        """Producer group → its started producers, which are one member for brokers: the last one that closes leaves."""
        self.consumers: dict[str, Callable[[], ConsumerData]] = {}
        """Group → the content of its next heartbeat."""
        self.transaction_checks: dict[str, Callable[[RemotingCommand, str, MessageExt], Awaitable[None]]] = {}
        """Producer group → what answers when a broker asks what became of a transaction (39)."""
        self._heartbeat_interval_s = heartbeat_interval_s
        self._group_handlers: dict[tuple[int, str], RequestHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.bodies_stay_packed: bool = False
        """Whether messages that are read have compressed bodies as they are stored (``body_error`` is
        :data:`~flintmq.remoting.client.message.PACKED`): for views, which show a part of them."""
        self._silent = Troubles(clock)
        """The addresses of brokers that take no heartbeat."""
        self.is_closed: bool = False
        """Whether :meth:`close` was called: nothing is asked any more."""

    async def ask(
        self, address: str, command: RemotingCommand, timeout_ms: float = REQUEST_TIMEOUT_MS, *accepted: int
    ) -> RemotingCommand:
        """Ask a broker. Raises ``RemotingError``, or ``RefusedError`` for codes that are not accepted."""
        return checked(await self.remoting.invoke(address, command, timeout_ms), *accepted)

    def register_group_processor(self, code: int, group: str, handler: RequestHandler) -> None:
        """From now on pushed requests of this code about this group go to ``handler(command, address)``."""
        self._group_handlers[code, group] = handler
        self.remoting.register_processor(code, self._dispatch_by_group)

    def forget_group(self, group: str) -> None:
        """Pushed requests about this group are refused from now on."""
        self._group_handlers = {key: handler for key, handler in self._group_handlers.items() if key[1] != group}

    def _dispatch_by_group(
        self, command: RemotingCommand, address: str
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        ext_fields = command.ext_fields or {}
        group = self.namespace.unwrap(ext_fields.get("consumerGroup") or ext_fields.get("group") or "")
        handler = self._group_handlers.get((command.code, group))
        if handler is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"the consumer group {group} is not here", reason="group.unknown"
            )
        return handler(command, address)

    def start_heartbeats(self) -> None:
        """Start telling brokers regularly. Further calls do nothing."""
        if not any(task.get_name() == "heartbeats" and not task.cancelling() for task in self._tasks):
            self.start_task(repeat(self._heartbeat_interval_s, self.send_heartbeats), "heartbeats")
            # Apart: name servers that do not answer would hold up every heartbeat by their timeout, once for each topic.
            self.start_task(repeat(self._heartbeat_interval_s, self._refresh_routes), "routes")

    async def send_heartbeats(self, addresses: Sequence[str] | None = None) -> int:
        """Send brokers a heartbeat with the client's groups.

        Args:
            addresses: the brokers; every known broker by default, masters only while there are no consumers.

        Returns:
            How many brokers answered. The others are tried again next time; each is logged at once, then with growing pauses.
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
        """Return whether a broker did not take the latest heartbeat."""
        return address in self._silent.reasons()

    async def unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell every known broker that a group has lost this member. Brokers that do not answer are logged."""
        header = UnregisterClientRequestHeader(
            client_id=self.client_id,
            producer_group=producer_group and self.namespace.wrap(producer_group),
            consumer_group=consumer_group and self.namespace.wrap(consumer_group),
        )
        for address in self.routes.broker_addresses():
            try:
                await self.ask(address, request(RequestCode.UNREGISTER_CLIENT, header), 1_000)
            except Exception as failure:  # of a hook, too: the client is closed all the same
                log.info(
                    "client.not_unregistered",
                    "%(broker)s did not learn that this client leaves: %(error)s",
                    broker=address,
                    error=told(failure),
                )

    def start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run background work until it ends or the instance is closed; what it raises is logged."""
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
        """Return the loop on which it has work or connections now; None where it has neither."""
        return next((task.get_loop() for task in self._tasks), None) or self.remoting.loop

    def open(self) -> None:
        """Ask again, after :meth:`close`. What ran in the background is started by those who need it."""
        self.is_closed = False
        self.remoting.open()

    async def close(self) -> None:
        """End background work and close every connection. Idempotent."""
        self.is_closed = True
        left = await ended(self._tasks)
        if left:
            log.warning(
                "client.not_cancelled",
                "%(client)s is closed, these tasks go on although they were cancelled: %(tasks)s",
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
    """Do work every so often, for good; what it raises is logged, at once and then with growing pauses, and does not end it."""
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
        except Exception as failure:  # of a user's offset store, say: other work, and the next time, must not suffer
            if troubles.met("", failure):
                log.exception("client.work_failed", "%(work)s failed", work=getattr(work, "__qualname__", work))


def _name(user: InstanceUser) -> str:
    group = f" of group {user.group}" if hasattr(user, "group") else ""
    return f"{type(user).__name__}{group} ({user.client.client_id})"


def _close_soon(user: InstanceUser) -> None:
    """Close a client that nobody has any more, on its loop. The log has it, too: few programs show a ``ResourceWarning``."""
    log.warning("client.dropped", "%(client)s was dropped without close(), and is closed now", client=_name(user))
    closing = asyncio.ensure_future(user.close())
    _CLOSING.add(closing)
    closing.add_done_callback(_CLOSING.discard)


_CLOSING: Final[set[asyncio.Future[None]]] = set()


class InstanceUser:
    """Holds a :class:`ClientInstance`. Loop thread only.

    Args:
        name_servers: ``host:port;host:port``, a sequence of addresses, or an embedded broker; not used when a
            ``client`` is handed over.
        client: an instance shared with others; it is not closed with this user.
        instance_options: for a :class:`ClientInstance` of its own.

    Raises:
        ValueError: ``name_servers`` is neither, or has no address.
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
                f"name_servers is {name_servers!r}, and must be addresses, or a broker of this process: "
                "give a function by its name, listener=..."
            )
        self.client: ClientInstance = client or ClientInstance(name_servers, **instance_options)
        self._owns_client = client is None
        self._changes = asyncio.Lock()
        """Held by :meth:`start` and :meth:`close`: they take effect in the order of the calls."""
        self._process = os.getpid()

    def __del__(self) -> None:
        """Warn of a client that is dropped without ``close()``, and close it: it has connections, and tasks that never end."""
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
        """Return whether it has to be closed."""
        return self._owns_client

    async def start(self) -> None:
        """Allow calls again after :meth:`close`. Connections open when they are used.

        Raises:
            RemotingConnectError: the ``client`` that it shares with others is closed.
        """
        async with self._changes:
            self._open()

    async def close(self) -> None:
        """Close the connections, unless they are shared. Idempotent."""
        async with self._changes:
            await self._shut()

    def _open(self) -> None:
        if self.client.is_closed:
            if not self._owns_client:
                raise RemotingConnectError(
                    f"the client that this {type(self).__name__} shares is closed: start the one that it is of, or make another"
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
