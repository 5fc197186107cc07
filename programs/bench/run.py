"""Runs one benchmark of the brokers of a topic. A run gets the topic's route, connects to its brokers, loads them for the
warm-up, and then measures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeVar

import attrs

from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import RefusedError, RemotingConnectError
from flintmq.programs.bench.figures import percentile_ms
from flintmq.programs.bench.frames import PullFrame, SendFrame, body_of
from flintmq.programs.bench.load import LoadConnection, PullConnection, SendConnection, Tally, WindowConnection
from flintmq.programs.bench.machine import CpuUse, machine_facts
from flintmq.remoting.client.access import ANYONE, Access
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.route import TopicRoute
from flintmq.remoting.client.transport import parse_address

ROUTE_TRIES: Final = 1_000
ROUTE_PAUSE_S: Final = 0.005
"""Pause in seconds between two requests for the route of a new topic. The pause is short because it is part of the measured
time from a broker's start to its first acknowledged send."""
CONNECT_TIMEOUT_S: Final = 5.0


@attrs.frozen(kw_only=True)
class BenchSettings:
    """The settings of the load that a benchmark makes."""

    bench: Literal["send", "consume"]
    topic: str
    seconds: float = 5.0
    """Duration of the measurement in seconds; ignored if ``count`` is set."""
    warmup_s: float = 1.0
    """Duration in seconds of the load before the measurement."""
    count: int | None = None
    """Number of messages after which the measurement ends; None if the measurement ends after ``seconds``."""
    connections: int = 4
    """Number of connections to each broker that has queues of the topic."""
    inflight: int = 32
    """Number of sends in flight per connection. A connection that consumes has one pull in flight per queue instead."""
    size_bytes: int = 1024
    batch: int = 1
    """Number of messages per send, or maximum number of messages per pull."""
    queues: int = 8
    """Number of queues with which the benchmark creates the topic if the topic does not exist."""
    access: Access = ANYONE
    """Credentials of the benchmark's requests. Signing a request takes the client about 20 µs, and verifying takes the broker
    as long."""


@attrs.frozen
class BenchResult:
    """The measured figures of one benchmark run, such as rate, latencies, errors and processor time, and the settings of the
    load."""

    bench: str
    """The kind of benchmark: ``send`` or ``consume``."""
    target: str
    """Address of the name server of the measured brokers."""
    topic: str
    messages: int
    requests: int
    seconds: float
    rate: float
    """Messages per second that were sent or consumed."""
    p50_ms: float
    """Median latency of a request in ms, from writing the request to reading its answer."""
    p99_ms: float
    p999_ms: float
    errors: int
    error_codes: dict[str, int]
    """Number of refused requests, keyed by response code."""
    client_cpu_us: float
    """Processor time of this client per message, in µs."""
    broker_cpu_us: float | None
    """Processor time of the broker's process and its children per message, in µs; None if unknown."""
    connections: int
    """Number of connections to each broker that has queues of the topic."""
    inflight: int
    """Number of requests in flight per connection."""
    size_bytes: int
    """Size of a message's body."""
    batch: int

    def as_json(self) -> dict[str, Any]:
        """Return the result of a benchmark run as JSON."""
        return attrs.asdict(self) | {"machine": machine_facts()}


async def run_bench(settings: BenchSettings, name_server: str, pid: int | None) -> BenchResult:
    """Measure the brokers of a topic together.

    Args:
        settings: the load.
        name_server: ``host:port`` of the name server.
        pid: the broker's process, or the parent process of several brokers, whose processor time is measured; None to measure
            none.

    Raises:
        RemotingError: no broker answers, or a connection was lost.
        RefusedError: the topic cannot be created, or has no queues.
    """
    async with AdminClient(name_server, **settings.access.options()) as admin:
        route = await bench_route(admin, settings)
        makers = _senders(settings, route) if settings.bench == "send" else await _pullers(settings, admin, route)
    tally = Tally()
    connections = []
    async with contextlib.AsyncExitStack() as stack:
        for broker_name, make in makers.items():
            for number in range(settings.connections):
                connection = make(tally, number)
                await connect(connection, route.address(broker_name), settings.access)
                stack.push_async_callback(connection.close)
                connections.append(connection)
        return await _measure(settings, name_server, pid, tally, connections)


async def bench_route(admin: AdminClient, settings: BenchSettings) -> TopicRoute:
    """Return the route of the benchmark's topic. A topic that does not exist is created, and the route then includes every
    broker."""
    brokers = 1
    for attempt in range(ROUTE_TRIES):
        try:
            route = await admin.client.routes.route(settings.topic, max_age_s=0)
            if len(route.broker_addrs) >= brokers:
                return route
        except RefusedError:
            if attempt == ROUTE_TRIES - 1:
                raise
        if attempt == 0:
            await admin.create_topic(settings.topic, queues=settings.queues)
            brokers = len(await admin.masters())
        await asyncio.sleep(ROUTE_PAUSE_S)
    raise RefusedError(
        17, f"topic {settings.topic} is not known at each of the {brokers} brokers", reason="route.incomplete"
    )


MakeConnection = Callable[[Tally, int], WindowConnection]


def _senders(settings: BenchSettings, route: TopicRoute) -> dict[str, MakeConnection]:
    body = body_of(settings.size_bytes)

    def of_broker(queues: list[MessageQueue]) -> MakeConnection:
        def make(tally: Tally, number: int) -> WindowConnection:
            first = number * settings.inflight
            frames = [
                SendFrame(slot, queues[(first + slot) % len(queues)], body, settings.batch, settings.access)
                for slot in range(settings.inflight)
            ]
            return SendConnection(tally, frames, settings.batch)

        return make

    return {name: of_broker(queues) for name, queues in queues_by_broker(route.write_queues).items()}


async def _pullers(settings: BenchSettings, admin: AdminClient, route: TopicRoute) -> dict[str, MakeConnection]:
    by_broker = queues_by_broker(route.read_queues)
    offsets = {queue: await admin.min_offset(queue) for queues in by_broker.values() for queue in queues}
    filled = [queue for queue in offsets if await admin.max_offset(queue) > offsets[queue]]
    if not filled:
        raise RefusedError(17, f"topic {settings.topic} has no messages to consume", reason="topic.empty")

    def of_broker(filled: list[MessageQueue]) -> MakeConnection:
        def make(tally: Tally, number: int) -> WindowConnection:
            # The queues are divided among the connections, so that only one connection pulls each queue.
            # If there are more connections than queues, several connections pull the same queue.
            mine = filled[number :: settings.connections] or [filled[number % len(filled)]]
            frames = [PullFrame(slot, queue, settings.batch, settings.access) for slot, queue in enumerate(mine)]
            return PullConnection(tally, frames, [offsets[queue] for queue in mine])

        return make

    return {name: of_broker(queues) for name, queues in queues_by_broker(filled).items()}


def queues_by_broker(queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return the queues of a topic in order, keyed by broker. Raises RefusedError if the topic has no queues."""
    if not queues:
        raise RefusedError(16, "the topic has no queue that the benchmark can use", reason="route.no-queue")
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


C = TypeVar("C", bound=LoadConnection)


async def connect(connection: C, address: str, access: Access = ANYONE) -> C:
    """Connect to a broker at ``host:port``. Raises RemotingConnectError."""
    host, port = parse_address(address)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().create_connection(lambda: connection, host, port, ssl=access.ssl_context)
    except (OSError, TimeoutError) as error:
        raise RemotingConnectError(f"nobody answers at {address}: {error}") from error
    return connection


async def _measure(
    settings: BenchSettings, name_server: str, pid: int | None, tally: Tally, connections: Sequence[WindowConnection]
) -> BenchResult:
    for connection in connections:
        connection.begin()
    await _until(tally, settings.warmup_s)
    cpu = CpuUse(pid)
    tally.limit = settings.count
    begin_s = time.perf_counter()
    tally.counting = True
    await _until(tally, None if settings.count is not None else settings.seconds)
    tally.counting = False
    seconds = time.perf_counter() - begin_s
    client_cpu_us, broker_cpu_us = cpu.per_message_us(tally.messages)
    latencies_s = array("d", sorted(tally.latencies_s))
    return BenchResult(
        bench=settings.bench,
        target=name_server,
        topic=settings.topic,
        messages=tally.messages,
        requests=tally.requests,
        seconds=round(seconds, 4),
        rate=round(tally.messages / seconds, 1),
        p50_ms=percentile_ms(latencies_s, 0.5),
        p99_ms=percentile_ms(latencies_s, 0.99),
        p999_ms=percentile_ms(latencies_s, 0.999),
        errors=sum(tally.errors.values()),
        error_codes={str(code): times for code, times in tally.errors.items()},
        client_cpu_us=client_cpu_us,
        broker_cpu_us=broker_cpu_us,
        connections=settings.connections,
        inflight=settings.inflight,
        size_bytes=settings.size_bytes,
        batch=settings.batch,
    )


async def _until(tally: Tally, seconds: float | None) -> None:
    """Wait for some seconds, or until the benchmark run has ended. Raises the error that ended the run."""
    try:
        async with asyncio.timeout(seconds):
            await tally.ended.wait()
    except TimeoutError:
        return
    if tally.failure is not None:
        raise tally.failure
