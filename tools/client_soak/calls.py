"""The calls that clients make in the soak test. For each class of client, asynchronous or synchronous, one function makes a
client and another function chooses its next call.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

import flintmq.client as loop_face
from client_soak.ledger import Ledger, word_of
from flintmq.client import (
    ConsumeResult,
    ConsumerSettings,
    Message,
    MessageExt,
    SendStatus,
    TransactionState,
)
from flintmq.client import sync as waiting_face

ASK_S: Final = 3.0
"""Longest time for one request to a server, including connecting to the server, in seconds."""
LONG_S: Final = 40.0
"""Longest time for a call that sends several requests one after the other and takes no timeout, in seconds."""
CLOSE_S: Final = 20.0


class PlannedError(Exception):
    """The exception that listeners of the soak test raise on purpose."""


@attrs.frozen
class World:
    """The servers, the folder, and the record of acknowledgements and deliveries that the clients of a round of the soak test
    share."""

    name_server: str
    broker: str
    ledger: Ledger
    folder: Path


@attrs.frozen
class Call:
    """One call of a client.

    Args:
        name: the call's name in the report.
        work: a function that makes the call; the function's result is awaited if it is awaitable.
        bound_s: the time within which the call must end.
        done: a function that is called with the call's result if the call raised no exception.
        expected: exceptions that the call may raise besides ``FlintError``.
    """

    name: str
    work: Callable[[], Any]
    bound_s: float
    done: Callable[[Any], object] = lambda result: None
    expected: tuple[type[BaseException], ...] = ()


@attrs.frozen
class Kind:
    """A class of client, asynchronous or synchronous. It has a function that makes a client, and a function that chooses the
    next call of the client at random."""

    name: str
    is_waiting: bool
    """Whether the client is a synchronous client of ``flintmq.client.sync``."""
    make: Callable[[World, random.Random], Any]
    call: Callable[[Any, World, random.Random], Call]


def kinds() -> list[Kind]:
    """Return every kind of client that the soak test uses, asynchronous and synchronous."""
    made: list[Kind] = []
    for face, is_waiting in ((loop_face, False), (waiting_face, True)):
        suffix = " (sync)" if is_waiting else ""
        made += [
            Kind(f"Producer{suffix}", is_waiting, _makes_producer(face), _producer_call),
            Kind(f"TransactionProducer{suffix}", is_waiting, _makes_transactions(face, is_waiting), _transaction_call),
            Kind(f"PullConsumer{suffix}", is_waiting, _makes_pull_consumer(face), _pull_call),
            Kind(f"AdminClient{suffix}", is_waiting, _makes_admin(face), _admin_call),
            Kind(
                f"Consumer, iterated{suffix}", is_waiting, _makes_consumer(face, "iterated"), _iterated_call(is_waiting)
            ),
            Kind(f"Consumers{suffix}", is_waiting, _makes_consumers(face, is_waiting), _consumers_call),
        ]
        for way in ("plain", "batch", "orderly", "broadcast"):
            make = _makes_consumer(face, way)
            made.append(Kind(f"Consumer, {way}{suffix}", is_waiting, make, _consumer_call))
    return made


# --- producers ---


def _makes_producer(face: Any) -> Callable[[World, random.Random], Any]:
    def make(world: World, chance: random.Random) -> Any:
        return face.Producer(
            f"soak-producer-{world.ledger.name}",
            world.name_server,
            linger_ms=chance.choice((None, 0, 5)),
            compress_over_bytes=chance.choice((None, 1_000)),
            latency_backoff=chance.random() < 0.5,
            route_interval_s=5.0,
        )

    return make


def _producer_call(client: Any, world: World, chance: random.Random) -> Call:
    ledger = world.ledger
    message = ledger.message(chance)
    several = [ledger.message(chance) for _ in range(chance.randint(1, 20))]
    timeout_ms = chance.choice((300, 1_000, 3_000))
    # The time limit of a call, including send_all(), is the timeout of one send: send_all() sends its messages in one batch.
    bound_s = timeout_ms / 1000

    def acknowledged(result: Any) -> None:
        ledger.stored([message])

    def all_acknowledged(results: Any) -> None:
        ledger.stored(several)

    more: dict[str, Any] = {"timeout_ms": timeout_ms}
    if chance.random() < 0.3:
        more["sharding_key"] = chance.choice("abc")
    return chance.choice(
        (
            Call("send", lambda: client.send(message, **more), bound_s, acknowledged),
            Call("send", lambda: client.send(message, **more), bound_s, acknowledged),
            Call("send", lambda: client.send(message, **more), bound_s, acknowledged),
            Call("send_batch", lambda: client.send_batch(several, **more), bound_s, all_acknowledged),
            Call("send_all", lambda: client.send_all(several, **more), bound_s, all_acknowledged),
            Call("send_oneway", lambda: client.send_oneway(message), 3 * ASK_S),
            Call("queues", lambda: client.queues(ledger.topic), 2 * ASK_S),
            Call("request", lambda: client.request(message, timeout_ms=timeout_ms), bound_s),
        )
    )


def _makes_transactions(face: Any, is_waiting: bool) -> Callable[[World, random.Random], Any]:
    def make(world: World, chance: random.Random) -> Any:
        ledger = world.ledger
        check = ledger.check if is_waiting else ledger.check_later
        return face.TransactionProducer(
            transaction_group(ledger), world.name_server, check=check, heartbeat_interval_s=2.0
        )

    return make


def transaction_group(ledger: Ledger) -> str:
    """Return the name of the producer group that the broker asks about the transactions of a round of the soak test."""
    return f"soak-transactions-{ledger.name}"


def _transaction_call(client: Any, world: World, chance: random.Random) -> Call:
    ledger = world.ledger
    message = ledger.message(chance, ledger.transaction_topic)
    timeout_ms = chance.choice((300, 1_000, 3_000))
    states = [TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN]
    (state,) = chance.choices(states, (7, 2, 1))

    def local(given: Message, transaction_id: str) -> TransactionState:
        # If the transaction's state is UNKNOWN, the broker later asks the producer, whose check function returns COMMIT.
        is_rolled_back = state is TransactionState.ROLLBACK
        ledger.decided[word_of(given)] = TransactionState.ROLLBACK if is_rolled_back else TransactionState.COMMIT
        return state

    async def local_later(given: Message, transaction_id: str) -> TransactionState:
        await asyncio.sleep(0)
        return local(given, transaction_id)

    def ended(result: Any) -> None:
        if result.sent.status is SendStatus.SEND_OK:
            ledger.ended.add(word_of(message))
        else:
            ledger.decided.pop(word_of(message), None)

    execute = local if isinstance(client, waiting_face.TransactionProducer) else local_later
    # The timeout limits only the send. The commit or rollback may take longer, because a new connection may be needed.
    bound_s = timeout_ms / 1000 + 2 * ASK_S
    return Call(
        "send_in_transaction",
        lambda: client.send_in_transaction(message, execute, timeout_ms=timeout_ms),
        bound_s,
        ended,
    )


# --- consumers ---


def settings_of(way: str, world: World) -> ConsumerSettings:
    """Return the settings of the members of a consumer group in the soak test, also of the member that consumes the remaining
    messages at the end of a round."""
    return ConsumerSettings(
        consume_from="CONSUME_FROM_FIRST_OFFSET",
        message_model="BROADCASTING" if way == "broadcast" else "CLUSTERING",
        orderly=way == "orderly",
        concurrency=4,
        suspend_ms=2_000,
        rebalance_interval_s=2.0,
        commit_interval_s=1.0,
        lock_interval_s=2.0,
        error_delay_s=0.5,
        retry_delay_s=0.2,
        max_cached_messages=200,
        offset_folder=world.folder / "offsets",
    )


def group_of(way: str, ledger: Ledger) -> str:
    """Return the name of the consumer group to which all consumers of one kind belong in a round."""
    return f"soak-{way}-{ledger.name}"


def _makes_consumer(face: Any, way: str) -> Callable[[World, random.Random], Any]:
    def make(world: World, chance: random.Random) -> Any:
        listeners: dict[str, Any] = {}
        group = group_of(way, world.ledger)
        if way == "batch":
            listeners["batch_listener"] = _batch_listener(world, group, chance)
        elif way != "iterated":
            listeners["listener"] = _listener(world, group, chance, is_waiting=face is waiting_face)
        return face.Consumer(
            group,
            world.name_server,
            settings=settings_of(way, world),
            heartbeat_interval_s=2.0,
            route_interval_s=5.0,
            **listeners,
        )

    return make


def _listener(world: World, group: str, chance: random.Random, *, is_waiting: bool) -> Callable[[MessageExt], Any]:
    """Return a listener that consumes most messages, and sometimes raises an exception, asks for a later delivery, or waits."""

    def outcome(message: MessageExt) -> ConsumeResult:
        world.ledger.heard(group, [message])
        number = chance.random()
        if number < 0.01:
            raise PlannedError("the listener fails on purpose")
        return ConsumeResult.LATER if number < 0.02 else ConsumeResult.SUCCESS

    def consume(message: MessageExt) -> ConsumeResult:
        if chance.random() < 0.01:
            time.sleep(0.3)
        return outcome(message)

    async def consume_later(message: MessageExt) -> ConsumeResult:
        if chance.random() < 0.01:
            await asyncio.sleep(0.3)
        return outcome(message)

    return consume if is_waiting else consume_later


def _batch_listener(world: World, group: str, chance: random.Random) -> Callable[[list[MessageExt]], int]:
    def consume(messages: list[MessageExt]) -> int:
        world.ledger.heard(group, messages)
        if chance.random() < 0.01:
            raise PlannedError("the listener fails on purpose")
        return len(messages) if chance.random() < 0.95 else chance.randint(0, len(messages))

    return consume


def _consumer_call(client: Any, world: World, chance: random.Random) -> Call:
    topic = world.ledger.topic
    calls = (
        Call("subscribe", lambda: client.subscribe(topic), ASK_S),
        Call("subscribe", lambda: client.subscribe(topic), ASK_S),
        Call("subscribe", lambda: client.subscribe(topic), ASK_S),
        Call("commit", client.commit, LONG_S),
        Call("rebalance", client.rebalance, LONG_S),
        Call("suspend", client.suspend, 0.5),
        Call("resume", client.resume, 0.5),
        Call("resume", client.resume, 0.5),
        Call("subscriptions", lambda: client.subscriptions, 0.5),
        Call("is_started", lambda: client.is_started, 0.5),
        Call("unsubscribe", lambda: client.unsubscribe(topic), LONG_S),
    )
    return chance.choice(calls)


def _iterated_call(is_waiting: bool) -> Callable[[Any, World, random.Random], Call]:
    def call(client: Any, world: World, chance: random.Random) -> Call:
        if chance.random() < 0.4:
            return _consumer_call(client, world, chance)
        count, ledger = chance.randint(1, 20), world.ledger
        group = group_of("iterated", ledger)

        def take() -> None:
            for message in itertools.islice(client.messages(timeout_ms=300), count):
                ledger.heard(group, [message])

        async def take_later() -> None:
            taken = 0
            try:
                async with asyncio.timeout(0.3):
                    async for message in client:
                        ledger.heard(group, [message])
                        taken += 1
                        if taken == count:
                            break
            except TimeoutError:
                return

        # RuntimeError is expected, because a closed consumer raises it.
        bound_s = 0.3 * count + 0.5 if is_waiting else 0.5
        return Call("messages", take if is_waiting else take_later, bound_s, expected=(RuntimeError,))

    return call


def _makes_consumers(face: Any, is_waiting: bool) -> Callable[[World, random.Random], Any]:
    def make(world: World, chance: random.Random) -> Any:
        consumers = face.Consumers(world.name_server, heartbeat_interval_s=2.0, route_interval_s=5.0)
        for way in ("handler-a", "handler-b"):
            group = group_of(way, world.ledger)
            listener = _listener(world, group, chance, is_waiting=is_waiting)
            consumers.handler(world.ledger.topic, group=group, settings=settings_of(way, world))(listener)
        return consumers

    return make


def _consumers_call(client: Any, world: World, chance: random.Random) -> Call:
    return Call("client", lambda: client.client, 0.5)


# --- calls of pull consumers and administrators ---


def _makes_pull_consumer(face: Any) -> Callable[[World, random.Random], Any]:
    def make(world: World, chance: random.Random) -> Any:
        return face.PullConsumer(f"soak-pull-{world.ledger.name}", world.name_server, route_interval_s=5.0)

    return make


def _pull_call(client: Any, world: World, chance: random.Random) -> Call:
    topic = world.ledger.topic
    queue = loop_face.MessageQueue("broker-a", chance.randrange(4), topic)
    timeout_ms = chance.choice((0, 200, 1_000))
    not_assigned = (ValueError,)
    calls = (
        Call("assign", lambda: client.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET"), LONG_S),
        Call("poll", lambda: client.poll(timeout_ms=timeout_ms), timeout_ms / 1000, expected=not_assigned),
        Call("poll", lambda: client.poll(timeout_ms=timeout_ms), timeout_ms / 1000, expected=not_assigned),
        Call("poll", lambda: client.poll(timeout_ms=timeout_ms), timeout_ms / 1000, expected=not_assigned),
        Call("seek", lambda: client.seek(queue, chance.randrange(100)), LONG_S, expected=not_assigned),
        Call("seek_to_time", lambda: client.seek_to_time(int(time.time() * 1000) - 5_000), LONG_S),
        Call("positions", lambda: client.positions, 0.5),
        Call("commit", client.commit, LONG_S),
        Call("committed", lambda: client.committed(queue), 2 * ASK_S),
        Call("min_offset", lambda: client.min_offset(queue), 2 * ASK_S),
        Call("max_offset", lambda: client.max_offset(queue), 2 * ASK_S),
        Call("pull", lambda: client.pull(queue, 0), ASK_S + 10),
    )
    return chance.choice(calls)


def _makes_admin(face: Any) -> Callable[[World, random.Random], Any]:
    return lambda world, chance: face.AdminClient(world.name_server)


def _admin_call(client: Any, world: World, chance: random.Random) -> Call:
    ledger = world.ledger
    key = f"{ledger.name}/{chance.randrange(1_000)}"
    broker = world.broker
    asked: dict[str, Callable[[], Any]] = {
        "topic_list": client.topic_list,
        "cluster_info": client.cluster_info,
        "masters": client.masters,
        "topic_route": lambda: client.topic_route(ledger.topic),
        "topic_stats": lambda: client.topic_stats(ledger.topic),
        "topic_configs": lambda: client.topic_configs(broker),
        "consume_stats": lambda: client.consume_stats(group_of("plain", ledger), ledger.topic),
        "consumer_connections": lambda: client.consumer_connections(group_of("plain", ledger), broker),
        "query_by_key": lambda: client.query_by_key(ledger.topic, key),
        "producers": lambda: client.producers(broker),
        "runtime_info": lambda: client.runtime_info(broker),
        "create_topic": lambda: client.create_topic(f"{ledger.topic}-more", queues=1),
    }
    name = chance.choice(list(asked))
    return Call(name, asked[name], LONG_S)
