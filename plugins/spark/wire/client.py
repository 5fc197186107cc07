"""A client of brokers for processes without an event loop: Spark's planners and workers.

The event loop runs in a separate thread, so that answers arrive while Spark processes earlier rows. Closing the client ends the
thread. A client is never pickled. Each task makes and closes its own client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Final, TypeVar

import attrs

from flintmq.config.errors import ConfigError
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError, RefusedError, RemotingError
from flintmq.core.response_code import ResponseCode
from flintmq.core.route.route_data import BrokerData, QueueData, TopicRouteData
from flintmq.plugins.spark.errors import OptionError, SparkPluginError
from flintmq.remoting.client.access import access_of
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.blocking import LoopThread
from flintmq.remoting.client.broker_api import BrokerApi
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.route import RouteCache
from flintmq.remoting.wire.bodies import TopicOffset
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import GetEarliestMsgStoretimeResponseHeader, QueueRequestHeader
from flintmq.remoting.wire.headers_route import LEFT_BROKERS, GetRouteInfoRequestHeader

T = TypeVar("T")

DEFAULT_GROUP: Final = "FLINTMQ_SPARK"
"""Name of the consumer group with which a read pulls messages. All reads may share the group, because reads commit no
offsets."""
ATTEMPTS: Final = 4
PAUSE_S: Final = 0.25
"""Pause in seconds before the second attempt of a request. The pause doubles before each further attempt."""
PAUSE_MAX_S: Final = 4.0
"""Longest pause in seconds between two attempts of a request."""
PASSING_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Response codes with which a broker refuses a request only because it is too busy at the moment."""


@attrs.frozen
class TopicBounds:
    """The first and last offsets of a topic's queues, as brokers report them."""

    queues: Mapping[MessageQueue, TopicOffset]
    """First and last queue offset of each queue on the brokers that answered, keyed by queue."""
    answered: frozenset[str]
    """Names of the brokers that answered the request for the queue offsets."""
    silent: Mapping[str, str]
    """Error texts of brokers that should have the topic but did not answer, keyed by broker name."""


class WireClient:
    """A client of brokers for Spark's planners and workers. Its methods may be called from any thread. Call :meth:`close` at
    the end.

    Args:
        name_server: the addresses of name servers, or None.
        broker_addr: the address of a broker to use without a name server, or None.
        group: the consumer group.

    Raises:
        OptionError: an address is not valid, or the credentials in the environment conflict.
    """

    def __init__(self, name_server: str | None, broker_addr: str | None = None, group: str = DEFAULT_GROUP) -> None:
        self.where = f"nameServer {name_server}" if name_server is not None else f"brokerAddr {broker_addr}"
        self._thread = LoopThread("flintmq-spark")
        try:
            self.instance = self._thread.run(self._make(name_server, broker_addr))
        except BaseException:
            self._thread.stop()
            raise
        self.api = BrokerApi(self.instance, group)
        self.admin = AdminClient(client=self.instance)

    @staticmethod
    async def _make(name_server: str | None, broker_addr: str | None) -> ClientInstance:
        try:
            instance = ClientInstance(name_server or broker_addr or "", **access_of(os.environ).options())
        except (ConfigError, ValueError) as error:
            raise OptionError(f"the value of option nameServer or brokerAddr cannot be used: {error}") from error
        if broker_addr is not None:
            instance.routes = DirectRoutes(instance, broker_addr)
        return instance

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the client's event loop, and return the result of the coroutine.

        Raises:
            SparkPluginError: a broker or name server refused a request, or did not answer. The error names this server.
        """
        return self.result(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the client's event loop, and return the future of the coroutine's result."""
        return self._thread.start(work)

    def result(self, future: concurrent.futures.Future[T]) -> T:
        """Wait for a coroutine that :meth:`start` started, and return its result. Raises SparkPluginError if a broker or name
        server refused a request, or did not answer."""
        try:
            return future.result()
        except SparkPluginError:
            raise
        except RefusedError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._check_kind(error)
            raise SparkPluginError(f"{self.where}: refused with code {error.code}: {error.remark}") from error
        except FlintError as error:
            raise SparkPluginError(f"{self.where}: {error}") from error

    def _check_kind(self, refused: RefusedError) -> None:
        """Raise OptionError if a broker's address was given as the address of a name server, or a name server's address as the
        address of a broker."""
        routes = self.instance.routes
        if isinstance(routes, DirectRoutes):
            address, meant, option = routes.address, "a name server", "nameServer"
            question = request(RequestCode.GET_BROKER_CLUSTER_INFO)
        else:
            address, meant, option = routes.name_servers[0], "a broker", "brokerAddr"
            question = request(RequestCode.GET_BROKER_CONFIG)
        try:
            self._thread.run(self.instance.ask(address, question))
        except FlintError:
            # Only a name server answers GET_BROKER_CLUSTER_INFO, and only a broker answers GET_BROKER_CONFIG.
            # If a server does not answer the request that only the other kind of server answers, the user's option is right.
            # If the user's option is right, result() raises a SparkPluginError with the code and text of the server's refusal.
            return
        raise OptionError(f"{self.where}: this is the address of {meant}: give it as option {option}") from refused

    # --- methods whose requests change nothing at the server and may be repeated ---

    async def topics(self) -> list[str]:
        """Return the names of all topics that the name server, or the single broker, knows."""
        routes = self.instance.routes
        if isinstance(routes, DirectRoutes):
            return await again(routes.topics)
        return await again(self.admin.topic_list)

    async def bounds(self, topic: str, away: Collection[str] = ()) -> TopicBounds:
        """Return the first and last offsets of a topic's readable queues.

        Args:
            topic: the topic.
            away: brokers that did not answer last time. A request to such a broker is not repeated, so that the answers of
                other brokers are not delayed.

        Raises:
            RefusedError: the topic does not exist.
            RemotingError: no name server answers with the topic's brokers.
        """
        attempts = 1 if away else ATTEMPTS
        route = await again(lambda: self.instance.routes.route(topic, max_age_s=0), attempts)
        found: dict[MessageQueue, TopicOffset] = {}
        silent: dict[str, str] = {}
        gone: set[str] = set()

        async def ask(broker_name: str) -> None:
            def stats() -> Awaitable[dict[MessageQueue, TopicOffset]]:
                return self.admin.topic_stats_at(topic, route.address(broker_name))

            try:
                found.update(await again(stats, 1 if broker_name in away else ATTEMPTS))
            except RemotingError as error:
                silent[broker_name] = str(error)
            except RefusedError as refused:
                if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                    gone.add(broker_name)
                elif refused.code in PASSING_CODES:
                    silent[broker_name] = str(refused)
                else:
                    raise

        names = sorted({queue.broker_name for queue in route.read_queues})
        await asyncio.gather(*map(ask, names))
        answered = frozenset(names) - silent.keys() - gone
        queues = (queue for queue in route.read_queues if queue.broker_name in answered)
        return TopicBounds({queue: found.get(queue, TopicOffset()) for queue in queues}, answered, silent)

    async def left(self, topic: str) -> list[str]:
        """Return the names of the brokers that had a topic and are not registered with the name server any more. Only FlintMQ's
        name server remembers these brokers; with RocketMQ's name server the list is empty. Raises RemotingError."""
        if isinstance(self.instance.routes, DirectRoutes):
            return []
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await again(lambda: self.instance.routes.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)))
        return [name for name in (answer.ext_fields or {}).get(LEFT_BROKERS, "").split(";") if name]

    async def earliest_ms(self, queue: MessageQueue) -> int:
        """Return the store time in ms of the first message in a queue; -1 if the queue has no message. Raises RemotingError,
        RefusedError."""
        route = await self.instance.routes.route(queue.topic)
        header = QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
        asked = request(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        answer = await self.instance.ask(route.address(queue.broker_name), asked)
        return decode_header(GetEarliestMsgStoretimeResponseHeader, answer.ext_fields).timestamp_ms

    async def registered(self) -> frozenset[str]:
        """Return the names of the brokers that are registered at the name server. Raises RemotingError, RefusedError."""
        if isinstance(self.instance.routes, DirectRoutes):
            return self.instance.routes.broker_names
        return frozenset((await again(self.admin.cluster_info)).broker_addr_table)

    async def is_gone(self, queue: MessageQueue) -> bool:
        """Return whether a queue or its topic was deleted. A queue was deleted if its broker is registered at the name server
        and does not have the queue. Raises RemotingError, RefusedError."""
        if not await self._lacks(queue) or queue.broker_name not in await self.registered():
            return False
        # Two lookups are needed, because the queue's broker may have registered after the first lookup.
        return await self._lacks(queue)

    async def _lacks(self, queue: MessageQueue) -> bool:
        """Return whether a queue is missing from the route of its topic, or the queue's broker does not know the topic."""
        try:
            route = await again(lambda: self.instance.routes.route(queue.topic, max_age_s=0))
        except RefusedError as refused:
            if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return True
        return queue not in route.read_queues or await self._is_unknown(queue.topic, route.address(queue.broker_name))

    async def _is_unknown(self, topic: str, address: str) -> bool:
        """Return whether a broker answers that it does not have a topic. The name server may still have a route of this topic
        to the broker."""
        try:
            await again(lambda: self.admin.topic_stats_at(topic, address))
        except RefusedError as refused:
            return refused.code == ResponseCode.TOPIC_NOT_EXIST
        return False

    def close(self) -> None:
        """Close the connections to brokers and name servers, and end the thread of the event loop. Idempotent."""
        if not self._thread.is_stopped:
            self._thread.run(self.instance.close())
            self._thread.stop()


async def again(ask: Callable[[], Awaitable[T]], attempts: int = ATTEMPTS, patience_ms: int = 0) -> T:
    """Repeat a request to a broker until the broker answers, and return the answer. An attempt may fail because a connection
    was idle too long, or because a broker is busy or restarts.

    Args:
        ask: makes one attempt.
        attempts: the least number of attempts before the request fails.
        patience_ms: the least time in ms before the request fails.

    Raises:
        RemotingError: the last attempt got no answer.
        RefusedError: the broker refused the last attempt, or refused an attempt for a reason that a retry does not remove.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + patience_ms / 1000
    for attempt in itertools.count():
        is_last = attempt >= attempts - 1 and loop.time() >= deadline_s
        try:
            return await ask()
        except RefusedError as refused:
            if is_last or refused.code not in PASSING_CODES:
                raise
        except RemotingError:
            if is_last:
                raise
        await asyncio.sleep(min(PAUSE_S * 2 ** min(attempt, 16), PAUSE_MAX_S))
    raise AssertionError("unreachable")


class DirectRoutes(RouteCache):
    """A route cache that asks a single broker for the routes of its topics, in place of a name server. Only the thread of the
    client's event loop may use the cache."""

    def __init__(self, instance: ClientInstance, address: str) -> None:
        super().__init__(instance.remoting, (), instance.clock)
        self._admin = AdminClient(client=instance)
        self.address = address
        self._broker_name: str | None = None

    @property
    def broker_names(self) -> frozenset[str]:
        """The name of the single broker, as a set. The set is empty until the name is known."""
        return frozenset() if self._broker_name is None else frozenset({self._broker_name})

    async def topics(self) -> list[str]:
        """Return the names of all topics of the single broker, sorted."""
        return sorted((await self._admin.topic_configs(self.address)).topic_config_table)

    async def fetch(self, topic: str, *, timeout_ms: float | None = None) -> TopicRouteData:
        """Return the route of a topic to the single broker. Each request has the default timeout of the client, because
        ``timeout_ms`` is ignored.

        Raises:
            RefusedError: the broker does not have the topic.
            RemotingError: the broker does not answer.
        """
        if self._broker_name is None:
            self._broker_name = (await self._admin.broker_config(self.address)).get("brokerName", "")
        config = (await self._admin.topic_configs(self.address)).topic_config_table.get(topic)
        if config is None:
            message = f"no topic {topic} at {self.address}"
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, message, reason="topic.unknown")
        return TopicRouteData(
            broker_datas=[BrokerData(broker_addrs={0: self.address}, broker_name=self._broker_name)],
            queue_datas=[
                QueueData(
                    broker_name=self._broker_name,
                    perm=config.perm,
                    read_queue_nums=config.read_queue_nums,
                    topic_sys_flag=config.topic_sys_flag,
                    write_queue_nums=config.write_queue_nums,
                )
            ],
        )
