"""Registers a broker and its topics with name servers (docs/internals/protocol.md, Registration)."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.address import ha_port
from flintmq.core.broker.role import MASTER_ID
from flintmq.core.errors import FlintError, RemotingError
from flintmq.core.io.clock import thread_time_of
from flintmq.core.kernel.hookspecs import RegisterService, hookimpl
from flintmq.core.kernel.ports.replication import SupportsReplication
from flintmq.core.log_events import event_log
from flintmq.remoting.processors.answers import sliced
from flintmq.remoting.server.secure_links import name_server_client
from flintmq.remoting.wire.bodies import KVTable
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import RemotingCommand, request
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_route import (
    CRC32_MASK,
    BrokerIdentityRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

log = event_log("flintmq.broker")

_REST: Final = 10
_REST_MAX_S: Final = 2.0
"""Longest pause in seconds after a registration of the broker with name servers. Up to this limit, the pause is ten times the
processor time for making the registration's body."""
_SETTLE_MAX_S: Final = 3.0
"""Maximum time in seconds after the start of a registration for which :meth:`Registration.settle` waits for its end. Answers to
requests that change topics wait for this method. The time is less than the five seconds that mqadmin waits for an answer."""


_RETRY_S: Final = 0.5
_RETRY_MAX_S: Final = 8.0
"""Longest pause in seconds before the broker registers again, after a registration failed or the connection to a name server
was lost. The pause doubles after each attempt. The broker does not wait for the next regular registration, because a restarted
name server knows no brokers."""


class Registration:
    """Registers the broker at the start, at every interval, and soon after a change.

    A change is a changed topic, a changed role or a restarted name server. Used only on the event loop's thread.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._client = name_server_client(api.settings.current)
        self._addresses = api.settings.current.namesrv.addresses
        self._advertised = api.address.advertised.to_text() or None
        self._changed = asyncio.Event()
        self._lost: set[str] = set()
        """Addresses of name servers to which the broker's connection was lost. These name servers may no longer know the
        broker."""
        self._task: asyncio.Task[None] | None = None
        self._body_s = 0.0
        self._under_way: dict[asyncio.Future[None], float] = {}
        """Start time, in seconds, of each registration that has not ended, keyed by a future that is done when the registration
        has ended."""
        self._orders: dict[str, bytes] = {}
        """Order configurations of topics, as the name servers sent them, keyed by the name server's address; empty for a name
        server without an order configuration. An answer replaces only the entry of the name server that sent the answer, so
        overlapping registrations keep each other's answers."""
        self.registered: dict[str, bool] = {}
        """Whether the last registration with each name server succeeded, keyed by the name server's address."""
        self.master_address = ""
        """On a slave, the master's address for clients; empty while no name server knows the master."""
        self.master_ha_address = ""
        """On a slave, the master's address for replication; empty while no name server knows the master."""

    def start(self) -> None:
        """Do nothing, because the broker is registered only when it is ready."""

    async def ready(self) -> None:
        """Register the broker with every name server, and begin to repeat the registration. An unreachable name server is tried
        again."""
        self._api.topics.changed.subscribe(self.topic_changed)
        self._api.role.changed.subscribe(self._role_changed)
        self._client.lost.subscribe(self._connection_lost)
        await self.register_all()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def topic_changed(self) -> None:
        """Register the broker soon with the name servers; several changes within one iteration of the event loop cause one
        registration."""
        self._changed.set()

    def _role_changed(self) -> None:
        """Register the broker soon with the id of its new role; the answers of the name servers name the new master."""
        self.master_address = self.master_ha_address = ""
        self._changed.set()

    def _connection_lost(self, address: str) -> None:
        """Register the broker soon with a name server that may have been restarted."""
        if address in self._addresses:
            self._lost.add(address)
            self._changed.set()

    def _unsure(self) -> list[str]:
        """Return the name servers that may not know this broker."""
        return [one for one in self._addresses if one in self._lost or not self.registered.get(one)]

    async def _run(self) -> None:
        interval_s = self._api.settings.current.namesrv.register_interval_ms / 1000
        loop = asyncio.get_running_loop()
        due_s, retry_s = loop.time() + interval_s, _RETRY_S
        while True:
            unsure = self._unsure()
            wait_s = max(0.0, due_s - loop.time())
            try:
                async with asyncio.timeout(min(wait_s, retry_s) if unsure else wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            if self._changed.is_set() or loop.time() >= due_s:
                due_s = loop.time() + interval_s
                self._changed.clear()
                await self.register_all()
            else:
                await self._register_with(unsure)
            retry_s = min(retry_s * 2, _RETRY_MAX_S) if self._unsure() else _RETRY_S
            # After each new topic, the broker registers all its topics again.
            # The pause between two registrations leaves the broker time for its clients.
            await asyncio.sleep(min(self._body_s * _REST, _REST_MAX_S))

    async def register_all(self) -> None:
        """Register the broker with every name server at the same time."""
        await self._register_with(self._addresses)

    async def _register_with(self, addresses: Iterable[str]) -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Future[None] = loop.create_future()
        self._under_way[under_way] = loop.time()
        try:
            worked_s = thread_time_of(self._api.clock)
            begin_s = worked_s()
            body, crc32 = await self._body()
            self._body_s = worked_s() - begin_s
            await asyncio.gather(*(self._register(address, body, crc32) for address in addresses))
        finally:
            del self._under_way[under_way]
            under_way.set_result(None)
        # If name servers send different lists of ordered topics, the broker applies the list of only one name server.
        # If the lists of two name servers were applied in turn, topics would change each time, and be registered each time.
        first = next((address for address in self._addresses if self._orders.get(address)), None)
        if first is not None:
            try:
                # The name server's configuration lists the ordered topics (docs/internals/algorithms.md, Topics and groups).
                self._api.topics.update_order_topics(KVTable.decode(self._orders[first]).table.keys())
            except FlintError as error:
                # A malformed answer of a name server or a full disk must not end the broker's registrations.
                log.warning(
                    "registration.order_config",
                    "the order configuration of name server %(name_server)s: %(error)s",
                    name_server=first,
                    error=error,
                )

    async def settle(self) -> None:
        """Wait until all registrations with name servers that are under way have ended. The wait for a registration ends at the
        latest three seconds after the registration began.

        Registrations that begin during this wait are not waited for."""
        now_s = asyncio.get_running_loop().time()
        for under_way, began_s in list(self._under_way.items()):
            if began_s + _SETTLE_MAX_S > now_s:
                await asyncio.wait((under_way,), timeout=began_s + _SETTLE_MAX_S - now_s)

    async def _register(self, address: str, body: bytes, crc32: int) -> None:
        api = self._api
        broker, broker_id = api.settings.current.broker, api.role.broker_id
        header = RegisterBrokerRequestHeader(
            broker_name=broker.name,
            broker_addr=api.address.host_port,
            cluster_name=broker.cluster,
            ha_server_addr=self._ha_address(),
            broker_id=broker_id,
            compressed=False,
            body_crc32=crc32,
            flint_advertised=self._advertised,
            flint_whole=True,
        )
        command = request(RequestCode.REGISTER_BROKER, header, body, language="JAVA")
        try:
            answer = await self._client.invoke(address, command, api.settings.current.namesrv.register_timeout_ms)
        except RemotingError as error:
            if self.registered.get(address, True):
                log.warning(
                    "registration.failed",
                    "name server %(name_server)s: %(error)s; trying again",
                    name_server=address,
                    error=error,
                )
            self._not_registered(address)
            return
        if answer.code != 0:
            log.warning(
                "registration.refused",
                "name server %(name_server)s refused the registration: %(remark)s",
                name_server=address,
                remark=answer.remark,
            )
            self._not_registered(address)
            return
        self.registered[address] = True
        self._lost.discard(address)
        if broker_id == api.role.broker_id != MASTER_ID:
            self._learn_master(answer)
        self._orders[address] = answer.body

    def _not_registered(self, address: str) -> None:
        """Mark a registration with a name server as failed, and drop the name server's configuration of ordered topics."""
        self.registered[address] = False
        self._orders.pop(address, None)

    def _ha_address(self) -> str:
        """Return the address from which slaves replicate while this broker is the master."""
        api = self._api
        host = api.settings.current.ha.advertised_host or api.address.host_port.rpartition(":")[0]
        replication = next(api.parts(SupportsReplication), None)  # type: ignore[type-abstract]
        return f"{host}:{ha_port(replication, api.settings.current.listen.ha_port, api.address)}"

    def _learn_master(self, answer: RemotingCommand) -> None:
        """Read the master's addresses from a name server's answer. The answer lacks the addresses if the name server does not
        know the master."""
        found = decode_header(RegisterBrokerResponseHeader, answer.ext_fields)
        self.master_address = found.master_addr or self.master_address
        self.master_ha_address = found.ha_server_addr or self.master_ha_address

    async def _body(self) -> tuple[bytes, int]:
        """Return an encoded :class:`~flintmq.remoting.wire.bodies.RegisterBrokerBody` of all topics, and its checksum.

        The body has no filter servers. It is made in slices, so that clients are served between two slices."""
        topics = self._api.topics.file.encoded(self._api.settings.current.broker.permission)
        head = b'{"filterServerList":[],"topicConfigSerializeWrapper":'
        pieces, crc32 = [], 0
        async for piece in sliced(itertools.chain((head,), topics, (b"}",))):
            pieces.append(piece)
            crc32 = zlib.crc32(piece, crc32)
        return b"".join(pieces), crc32 & CRC32_MASK

    async def withdraw(self) -> None:
        """Unregister the broker from all name servers. A name server that does not answer removes the broker when its entry
        expires."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(self._unregister(address) for address in self._addresses))

    async def stop(self) -> None:
        await self._client.close()

    async def _unregister(self, address: str) -> None:
        api = self._api
        if not self.registered.get(address):
            return
        header = BrokerIdentityRequestHeader(
            broker_name=api.settings.current.broker.name,
            broker_addr=api.address.host_port,
            cluster_name=api.settings.current.broker.cluster,
            broker_id=api.role.broker_id,
        )
        try:
            await self._client.invoke(address, request(RequestCode.UNREGISTER_BROKER, header, language="JAVA"), 1_000)
        except RemotingError as error:
            log.info(
                "registration.not_withdrawn",
                "name server %(name_server)s did not learn that the broker stops: %(error)s",
                name_server=address,
                error=error,
            )


class RegistrationPlugin:
    """Registers the broker with the name servers of ``namesrv.addresses``."""

    plugin_name = "registration"

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("registration", lambda context: _make(context.api))


def _make(api: BrokerApi) -> Registration | None:
    return Registration(api) if api.settings.current.namesrv.addresses else None
