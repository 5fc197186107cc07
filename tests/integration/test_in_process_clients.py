"""Clients of a broker in the same process do all that they do over the network, without a port, and leave no descriptor.

Somebody who embeds a broker gets the same objects either way; what works with one and not with the other would be found late.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.client import (
    AclSigner,
    AdminClient,
    ClientInstance,
    Consumer,
    Consumers,
    ConsumerSettings,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    TransactionProducer,
    TransactionState,
    make_reply,
    sync,
)
from flintmq.config import ConfigError
from flintmq.core.errors import RefusedError, RemotingConnectError, RemotingError
from flintmq.core.kernel.hookspecs import RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.client.blocking import shared_loop
from flintmq.remoting.client.transport import IN_PROCESS
from flintmq.remoting.wire.command import request as command

CODE = 9_001
ALONE = ("listen.enable=false", "listen.vip=true")
QUICK = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05)
ORDERLY = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=0.05, orderly=True)
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
Work = Callable[[flintmq.Broker], Coroutine[Any, Any, None]]


def sockets() -> set[str]:
    """The sockets of this process, as the system names them."""
    gc.collect()
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the listing's own
        if target.startswith("socket:"):
            found.add(target)
    return found


@contextmanager
def no_socket_left() -> Iterator[None]:
    shared_loop()  # it stays for the next user, with the two sockets that wake it
    before = sockets()
    yield
    assert not sockets() - before


def factories() -> list[Any]:
    try:
        import uvloop
    except ImportError:
        return [None]
    return [None, uvloop.new_event_loop]


def in_one_loop(config: Any, work: Work, factory: Any = None, **runner: Any) -> None:
    """Runs a test in the loop that the broker runs in, which must not be left with tasks."""

    async def run() -> None:
        async with asyncio.timeout(30), flintmq.Broker(config) as broker:
            await work(broker)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with no_socket_left(), asyncio.Runner(loop_factory=factory, **runner) as made:
        made.run(run())


def in_a_thread(config: Any, work: Work) -> None:
    """Runs a test in another loop than the broker's, which has a thread of its own."""

    async def run(broker: flintmq.Broker) -> None:
        async with asyncio.timeout(30):
            await work(broker)

    with no_socket_left(), flintmq.Broker(config) as broker:
        asyncio.run(run(broker))


@pytest.fixture(params=["one loop", "one uvloop", "two threads"])
def live(request: pytest.FixtureRequest) -> Callable[[Any, Work], None]:
    if request.param == "two threads":
        return in_a_thread
    if request.param == "one loop":
        return in_one_loop
    if len(factories()) == 1:
        pytest.skip("uvloop is not installed")
    return partial(in_one_loop, factory=factories()[1])


async def consumed(
    broker: flintmq.Broker, group: str, topic: str, count: int, settings: ConsumerSettings
) -> list[bytes]:
    """What a listener of a group gets, until there are so many."""
    seen: list[bytes] = []
    done = asyncio.Event()

    async def listen(message: MessageExt) -> None:
        seen.append(message.body)
        if len(seen) == count:
            done.set()

    async with Consumer(group, broker, listen, settings=settings) as consumer:
        await consumer.subscribe(topic)
        await done.wait()
    return seen


def test_in_process_clients_send_consume_and_pull_messages_and_administer_topics(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    """Every way to send and to consume, with a topic that is created, changed, found in the routes, and deleted."""

    async def work(broker: flintmq.Broker) -> None:
        async with AdminClient(broker) as admin, Producer("shop", broker, compress_over_bytes=500) as producer:
            await admin.create_topic("T", queues=2)
            assert len(await producer.queues("T")) == 2, "at once: no name server has to hear of it"
            await producer.send(Message("T", b"one", tags="A", keys="k1"))
            await producer.send_batch([Message("T", b"two"), Message("T", b"three")])
            await producer.send_oneway(Message("T", b"x" * 1_000))
            everything = sorted([b"one", b"two", b"three", b"x" * 1_000])
            assert sorted(await consumed(broker, "concurrent", "T", 4, QUICK)) == everything
            assert sorted(await consumed(broker, "orderly", "T", 4, ORDERLY)) == everything
            async with PullConsumer("by-hand", broker) as by_hand:
                await by_hand.assign("T", consume_from="CONSUME_FROM_FIRST_OFFSET")
                found: list[bytes] = []
                while len(found) < 4:
                    found += [message.body for message in await by_hand.poll()]
                assert sorted(found) == everything
                queue = next(iter(by_hand.positions))
                await by_hand.commit(queue, 1)
                assert await by_hand.committed(queue) == 1
            (by_key,) = await admin.query_by_key("T", "k1")
            assert await admin.view_message(by_key.offset_msg_id) == by_key
            assert by_key.born_host.startswith("127.0.0.1:")
            assert broker.config.broker.name in (await admin.cluster_info()).broker_addr_table
            await admin.create_topic("T", queues=6)
            route = await admin.topic_route("T")
            assert [queues.write_queue_nums for queues in route.queue_datas] == [6]
            await admin.delete_topic("T")
            assert "T" not in await admin.topic_list()
            with pytest.raises(RefusedError, match="No topic route"):
                await admin.topic_route("T")

    live(configure(*ALONE), work)


def test_the_first_in_process_send_creates_a_topic(configure: Any, live: Any, unexpected: list[str]) -> None:
    async def work(broker: flintmq.Broker) -> None:
        async with Producer("shop", broker) as producer:
            sent = await producer.send(Message("New", b"first"))
            assert sent.queue.broker_name == broker.config.broker.name
            assert await consumed(broker, "g", "New", 1, QUICK) == [b"first"]

    live(configure(*ALONE), work)


def test_an_in_process_client_receives_requests_from_the_broker(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    """A broker itself sends checks of transactions, replies and changed offsets to clients."""

    async def work(broker: flintmq.Broker) -> None:
        async def check(message: MessageExt) -> TransactionState:
            return COMMIT if message.body == b"kept" else ROLLBACK

        async def undecided(message: Message, transaction_id: str) -> TransactionState:
            return UNKNOWN

        async with TransactionProducer("bookings", broker, check=check) as producer, AdminClient(broker) as admin:
            await admin.create_topic("T", queues=1)
            for body in (b"dropped", b"kept"):
                await producer.send_in_transaction(Message("T", body), undecided)
            assert await consumed(broker, "g", "T", 1, QUICK) == [b"kept"]

            async def answer(message: MessageExt) -> None:
                await producer.send(make_reply(message, b"re: " + message.body))

            async with Consumer("answerers", broker, answer, settings=QUICK) as answerers:
                await answerers.subscribe("Q")
                reply = await producer.request(Message("Q", b"who"), timeout_ms=10_000)
                assert reply.body == b"re: who"

            slow = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=3_600)
            seen: asyncio.Queue[bytes] = asyncio.Queue()

            async def listen(message: MessageExt) -> None:
                seen.put_nowait(message.body)

            async with Consumer("again", broker, listen, settings=slow) as consumer:
                await consumer.subscribe("T")
                assert await seen.get() == b"kept"
                await consumer.commit()
                await admin.reset_offset("T", "again", 0)
                assert await seen.get() == b"kept", "the consumer was told of its new offset"

    live(configure(*ALONE, "transactions.check_interval_ms=100", "transactions.timeout_ms=100"), work)


def test_a_second_in_process_member_of_a_group_causes_a_rebalance_at_once(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    """Members that would look again only after an hour share the queues, because the broker tells them of one another."""
    seldom = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", rebalance_interval_s=3_600)

    async def work(broker: flintmq.Broker) -> None:
        by_member: tuple[set[int], set[int]] = (set(), set())

        async def listen(member: int, message: MessageExt) -> None:
            by_member[member].add(message.queue_id)

        async with AdminClient(broker) as admin, Producer("shop", broker) as producer:
            await admin.create_topic("T", queues=2)
            first, second = (
                Consumer("g", broker, partial(listen, member), settings=seldom, client_id=f"m{member}")
                for member in range(2)
            )
            async with first, second:
                await first.subscribe("T")
                await second.subscribe("T")
                while not all(by_member):
                    for queue in await producer.queues("T"):
                        await producer.send(Message("T", b"."), queue)

    live(configure(*ALONE), work)


def test_a_held_in_process_pull_is_answered_when_a_message_arrives(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    async def work(broker: flintmq.Broker) -> None:
        async with (
            AdminClient(broker) as admin,
            Producer("shop", broker) as producer,
            PullConsumer("g", broker) as consumer,
        ):
            await admin.create_topic("T", queues=1)
            (queue,) = await consumer.queues("T")
            held = asyncio.ensure_future(consumer.pull(queue, 0, suspend_ms=25_000))
            while not len(broker.state.outlet.held):  # noqa: ASYNC110
                await asyncio.sleep(0)
            await producer.send(Message("T", b"awaited"))
            assert [message.body for message in (await held).messages] == [b"awaited"]

    live(configure(*ALONE), work)


def test_an_in_process_producer_can_send_many_large_messages_concurrently_without_a_deadlock(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    """More than the system's buffers between the two ends holds, both ways at once: nothing is lost, nothing stands still."""

    async def work(broker: flintmq.Broker) -> None:
        bodies = [bytes([number]) * 900_000 for number in range(24)]
        async with Producer("shop", broker) as producer:
            await asyncio.gather(*(producer.send(Message("T", body), timeout_ms=20_000) for body in bodies))
            assert sorted(await consumed(broker, "g", "T", 24, QUICK)) == bodies

    live(configure(*ALONE), work)


def test_synchronous_in_process_clients_send_from_many_threads_and_consume_every_message(
    configure: Any, unexpected: list[str]
) -> None:
    """``flintmq.client.sync`` takes a broker as well, and one producer serves many threads."""
    with no_socket_left(), flintmq.Broker(configure(*ALONE)) as broker:
        with sync.AdminClient(broker) as admin:
            admin.create_topic("T", queues=4)
        with sync.Producer("shop", broker) as producer, ThreadPoolExecutor(8) as threads:
            sent = threads.map(lambda number: producer.send(Message("T", b"%d" % number)), range(64))
            assert len({result.offset_msg_id for result in sent}) == 64
        with sync.Consumer("g", broker, settings=QUICK) as consumer:
            consumer.subscribe("T")
            messages = consumer.messages()
            assert sorted(int(next(messages).body) for _ in range(64)) == [*range(64)]
        with sync.TransactionProducer("bookings", broker, check=lambda message: COMMIT) as bookings:
            done = bookings.send_in_transaction(Message("T", b"booked"), lambda message, transaction_id: COMMIT)
            assert done.state is COMMIT


def test_each_group_gets_the_message_if_a_clustering_and_a_broadcasting_group_share_one_client(
    configure: Any, live: Any, tmp_path: Path, unexpected: list[str]
) -> None:
    """Groups that broadcast make clients of their own, of what the shared one was made of."""

    async def work(broker: flintmq.Broker) -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()
        shared = ClientInstance(broker)
        consumers = Consumers(client=shared)
        broadcast = ConsumerSettings(
            consume_from="CONSUME_FROM_FIRST_OFFSET",
            rebalance_interval_s=0.05,
            message_model="BROADCASTING",
            offset_folder=tmp_path,
        )

        @consumers.handler("T", group="one", settings=QUICK)
        async def one(message: MessageExt) -> None:
            seen.put_nowait("one")

        @consumers.handler("T", group="all", settings=broadcast)
        async def everyone(message: MessageExt) -> None:
            seen.put_nowait("all")

        async with Producer("shop", client=shared) as producer:
            await producer.send(Message("T", b"."))
            async with consumers:
                assert {await seen.get(), await seen.get()} == {"one", "all"}
        await shared.close()

    live(configure(*ALONE), work)


def test_access_control_applies_to_in_process_clients(configure: Any, tmp_path: Path, unexpected: list[str]) -> None:
    """Otherwise a program would find out about a missing signature only where it runs over the network."""
    accounts = tmp_path / "acl.yml"
    accounts.touch(0o600)
    accounts.write_text("accounts:\n- {accessKey: writer01, secretKey: '12345678', defaultTopicPerm: PUB}\n", "utf-8")

    async def work(broker: flintmq.Broker) -> None:
        async with Producer("shop", broker) as producer:
            with pytest.raises(RefusedError, match="access key"):
                await producer.send(Message("T", b"unsigned"))
        async with Producer("shop", broker, hooks=[AclSigner("writer01", "12345678")]) as producer:
            await producer.send(Message("T", b"signed"))
        broker.put([Message("T", b"of the program itself")])

    in_one_loop(configure(*ALONE, "acl.enable=true", f"acl.file={accounts}"), work)


def test_a_broker_binds_no_port_if_the_setting_listen_enable_is_false(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``listen.enable: false`` binds nothing; with it the broker is to be reached from nowhere else."""
    monkeypatch.setattr(socket.socket, "bind", lambda *_: pytest.fail("a port is taken"))
    with flintmq.Broker(configure(*ALONE)) as broker:
        assert broker.port == 0
        with sync.Producer("shop", broker) as producer:
            producer.send(Message("T", b"."))


@pytest.mark.parametrize(
    "setting", ["namesrv.addresses=127.0.0.1:9876", "ha.enable=true", "broker.role=sync_master"], ids=lambda text: text
)
def test_a_broker_without_a_port_cannot_register_at_a_name_server(configure: Any, setting: str) -> None:
    """It would register under an address that nobody answers at."""
    with pytest.raises(ConfigError, match=r"listen\.enable"), flintmq.Broker(configure(*ALONE, setting)):
        pass


def test_an_in_process_consumer_gets_messages_sent_over_the_network_and_in_process(
    configure: Any, connect: Any, unexpected: list[str]
) -> None:
    with no_socket_left(), flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.send("T", b"over the wire").code == 0
        with sync.Producer("shop", broker) as producer:
            producer.send(Message("T", b"in process"))
        with sync.Consumer("g", broker, settings=QUICK) as consumer:
            consumer.subscribe("T")
            messages = consumer.messages()
            assert {next(messages).body, next(messages).body} == {b"over the wire", b"in process"}
        wire.close()


def test_in_process_clients_of_a_stopped_broker_get_a_connect_error(configure: Any) -> None:
    """A client of a broker that does not run is told so, as by an address where nobody listens."""
    broker = flintmq.Broker(configure(*ALONE))
    with no_socket_left():
        with pytest.raises(RemotingConnectError, match="does not run"):
            broker.connect(IN_PROCESS)
        with broker:
            producer = sync.Producer("shop", broker)
            producer.send(Message("T", b"."))
        with pytest.raises(RemotingError):
            producer.send(Message("T", b"."), timeout_ms=1_000)
        producer.close()


def test_stopping_the_broker_ends_all_pending_sends_of_in_process_clients(
    configure: Any, live: Any, unexpected: list[str]
) -> None:
    """Acknowledged messages are stored after the stop, and no other send waits for its timeout."""
    config = configure(*ALONE)
    acknowledged: list[bytes] = []
    stopped = threading.Event()

    async def work(broker: flintmq.Broker) -> None:
        enough = asyncio.Event()

        async def load(producer: Producer, sender: int) -> None:
            for number in range(1_000_000):
                body = b"%d-%d" % (sender, number)
                await producer.send(Message("T", body), timeout_ms=25_000)
                acknowledged.append(body)
                if len(acknowledged) > 200:
                    enough.set()

        async with Producer("shop", broker, retries=0) as producer:
            senders = [asyncio.ensure_future(load(producer, sender)) for sender in range(16)]
            await enough.wait()
            stop = asyncio.to_thread(broker.call, broker.stop) if broker.in_own_thread else broker.stop()
            await stop
            stopped.set()
            outcomes = await asyncio.gather(*senders, return_exceptions=True)
            assert all(isinstance(outcome, (RemotingError, RefusedError)) for outcome in outcomes), outcomes

    live(config, work)
    assert stopped.is_set()
    with flintmq.Broker(config) as again, sync.Consumer("g", again, settings=QUICK) as consumer:
        consumer.subscribe("T")
        messages = consumer.messages(timeout_ms=10_000)
        left = set(acknowledged)
        while left:
            left.discard(next(messages).body)


def test_in_process_clients_cause_no_warnings_in_asyncio_debug_mode(
    configure: Any, unexpected: list[str], recwarn: Any
) -> None:
    """``asyncio.run(debug=True)`` and ``-W error`` are what careful programs test with."""

    async def work(broker: flintmq.Broker) -> None:
        async with Producer("shop", broker) as producer:
            await producer.send(Message("T", b"."))
            assert await consumed(broker, "g", "T", 1, QUICK) == [b"."]

    def patient() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.slow_callback_duration = (
            5.0  # of a busy machine, on which any step may take the tenth of a second of the default
        )
        return loop

    in_one_loop(configure(*ALONE), work, patient, debug=True)
    gc.collect()
    assert not [str(one.message) for one in recwarn]


def test_an_in_process_client_sends_only_to_the_broker_object_passed_to_its_constructor(
    configure: Any, unexpected: list[str]
) -> None:
    """Each client speaks to the broker that it was given, although none has an address to tell them apart by."""
    with (
        no_socket_left(),
        flintmq.Broker(configure(*ALONE, store="a")) as first,
        flintmq.Broker(configure(*ALONE, store="b")) as second,
        sync.Producer("shop", first) as to_first,
        sync.Producer("shop", second) as to_second,
    ):
        to_first.send(Message("First", b"1"))
        to_second.send(Message("Second", b"2"))
        with sync.AdminClient(second) as admin:
            topics = admin.topic_list()
        assert "Second" in topics
        assert "First" not in topics


def test_a_process_forked_from_the_broker_process_cannot_connect_in_process(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flintmq.Broker(configure(*ALONE)) as broker:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RemotingConnectError, match="forked"):
            broker.connect(IN_PROCESS)
        monkeypatch.undo()


@pytest.mark.parametrize("wrong", [3, None, object()])
def test_a_client_refuses_an_invalid_broker_argument_when_it_is_created(wrong: Any) -> None:
    """Not with the first message, where the name of an attribute would be all there is to read."""
    with pytest.raises(TypeError):
        sync.Producer("shop", wrong)


class HangingPlugin:
    """Answers a code of its own when it is let, which it says when it has begun."""

    plugin_name = "hanging"

    def __init__(self) -> None:
        self.begun = threading.Event()

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("hanging", [CODE], lambda context: self)

    def handlers(self) -> dict[int, Any]:
        return {CODE: self.answer}

    async def answer(self, request: Request) -> Response:
        self.begun.set()
        await asyncio.Event().wait()
        return Response()


def test_an_unanswered_in_process_request_fails_as_soon_as_its_broker_has_stopped(configure: Any) -> None:
    """A request that is never answered ends with the connection, not with its client's timeout; and only at its own broker."""
    plugin = HangingPlugin()

    async def ask(broker: flintmq.Broker) -> Any:
        async with AdminClient(broker) as admin:
            return await admin.client.remoting.invoke(broker.address, command(CODE), 30_000)

    with no_socket_left(), ThreadPoolExecutor(1) as threads:
        config = configure(*ALONE, "broker.shutdown_timeout_ms=200", store="a")
        with flintmq.Broker(configure(*ALONE, store="b")) as plain:
            with flintmq.Broker(config, plugins=[plugin]) as hanging:
                asked = threads.submit(asyncio.run, ask(hanging))
                assert plugin.begun.wait(10)
                assert asyncio.run(ask(plain)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                begin_s = time.monotonic()
            assert time.monotonic() - begin_s < 10
            with pytest.raises(RemotingError, match="is lost"):
                asked.result(10)
