"""The synchronous client does what the asynchronous one does, for programs without an event loop, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import flintmq.client as aio
from flintmq.client import sync
from flintmq.remoting.client.blocking import shared_loop
from flintmq.remoting.client.instance import InstanceUser

CLASSES = ("AdminClient", "Consumer", "Consumers", "Producer", "PullConsumer", "TransactionProducer")
LOOP_ONLY = {"Consumer": {"process_queues"}}
"""What the asynchronous class has for those who are on its loop."""
FROM_FIRST = sync.ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
_numbers = itertools.count()


@pytest.fixture
def topic(create_topic: Callable[[str, int], None]) -> str:
    """Return a topic of its own for a test, of two queues."""
    name = f"Topic{next(_numbers)}"
    create_topic(name, 2)
    return name


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Return a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Have an interrupt raise KeyboardInterrupt: a shell has the jobs that it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# --- the classes are the same ---


def members(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", CLASSES)
def test_each_synchronous_client_class_has_the_methods_of_its_asynchronous_class(name: str) -> None:
    """A method that is added, or changed, there and not here is a failure of this test, not of somebody's program."""
    there, here = getattr(aio, name), getattr(sync, name)
    assert members(there) - members(here) == LOOP_ONLY.get(name, set())
    assert members(here) - members(there) <= {"client", "group", "settings", "messages"}
    for method in members(there) & members(here):
        awaited = getattr(there, method)
        if inspect.iscoroutinefunction(awaited):
            waiting = getattr(here, method)
            assert not inspect.iscoroutinefunction(waiting), method
            assert parameters(waiting) == parameters(awaited), method
    assert parameters(here) == parameters(there)


def test_every_asynchronous_client_class_has_a_synchronous_counterpart() -> None:
    """And everything else, such as messages and errors, is the very same object; what lives on a loop is left out."""
    every = {name: getattr(aio, name) for name in aio.__all__}
    clients = {name for name, one in every.items() if inspect.isclass(one) and issubclass(one, InstanceUser)}
    assert clients == set(CLASSES)
    others = set(aio.__all__) - clients - {"ClientInstance", "RemotingClient"}
    for name in others:
        assert getattr(sync, name) is getattr(aio, name)
    assert not hasattr(sync, "ClientInstance")


def test_synchronous_message_handlers_run_until_another_thread_closes_their_consumers(
    name_server: str, topic: str
) -> None:
    """``run`` is the main program's last line; it returns when the consumers are closed, and they have left their group."""
    consumers = sync.Consumers(name_server)
    came = threading.Semaphore(0)

    @consumers.handler(topic, group="declared", settings=FROM_FIRST)
    def handle(message: sync.MessageExt) -> None:
        came.release()

    running = threading.Thread(target=consumers.run)
    running.start()
    with sync.Producer("p", name_server) as producer:
        producer.send(sync.Message(topic, b"x"))
    assert came.acquire(timeout=30)
    consumers.close()
    running.join(30)
    assert not running.is_alive()


# --- sending ---


def test_synchronous_sends_of_every_kind_are_stored(name_server: str, topic: str) -> None:
    with sync.Producer("p", name_server) as producer, sync.PullConsumer("look", name_server) as consumer:
        one = producer.send(sync.Message(topic, b"one", tags="A"))
        assert one.status is sync.SendStatus.SEND_OK
        two = producer.send_batch([sync.Message(topic, b"two"), sync.Message(topic, b"three")], one.queue)
        assert two.queue == one.queue
        (four,) = producer.send_all([sync.Message(topic, b"four")], one.queue)
        producer.send_oneway(sync.Message(topic, b"five"), one.queue)
        consumer.assign([one.queue], consume_from="CONSUME_FROM_FIRST_OFFSET")
        found: list[bytes] = []
        while len(found) < 5:
            found += [message.body for message in consumer.poll()]
        assert found == [b"one", b"two", b"three", b"four", b"five"]
        assert four.queue_offset == 3
        assert set(producer.queues(topic)) == set(consumer.queues(topic))


def test_several_threads_can_share_a_producer(name_server: str, topic: str) -> None:
    """Nothing is lost, nothing is stored twice, and every thread gets its own answer."""
    with sync.Producer("p", name_server) as producer, ThreadPoolExecutor(8) as threads:
        bodies = [b"%d" % number for number in range(200)]
        results = list(threads.map(lambda body: producer.send(sync.Message(topic, body)), bodies))
    with sync.AdminClient(name_server) as admin:
        stored = {result.offset_msg_id: body for result, body in zip(results, bodies, strict=True)}
        assert len(stored) == 200
        sample = results[::40]
        assert [admin.view_message(one.offset_msg_id).body for one in sample] == bodies[::40]


def test_a_listener_of_a_synchronous_consumer_can_reply_to_a_request(name_server: str, topic: str) -> None:
    """The listener runs in a thread, where it may use any other client."""
    with sync.Producer("asks", name_server) as producer:

        def listen(message: sync.MessageExt) -> None:
            producer.reply(message, message.body.upper())

        with sync.Consumer("replies", name_server, listen, settings=FROM_FIRST) as consumer:
            consumer.subscribe(topic)
            assert producer.request(sync.Message(topic, b"hello"), timeout_ms=20_000).body == b"HELLO"


def test_synchronous_clients_raise_the_same_error_classes_as_asynchronous_clients(name_server: str) -> None:
    with sync.AdminClient(name_server) as admin, pytest.raises(aio.RefusedError, match="No topic route"):
        admin.topic_stats("NobodyKnowsIt")
    with sync.Producer("p", "127.0.0.1:1") as producer, pytest.raises(aio.RemotingConnectError):
        producer.send(sync.Message("T", b""))


def test_a_synchronous_producer_and_a_synchronous_admin_client_can_share_a_connection(
    name_server: str, topic: str
) -> None:
    """One id and one connection for all clients of a program; closing the second leaves the first its own."""
    with sync.Producer("p", name_server) as producer:
        with sync.AdminClient(client=producer.client) as admin:
            assert topic in admin.topic_list()
            assert admin.client is producer.client
        producer.send(sync.Message(topic, b""))
    with pytest.raises(sync.RemotingError, match="closed"):
        producer.send(sync.Message(topic, b""))
    producer.close()


# --- consuming ---


def test_a_synchronous_listener_runs_in_several_threads(name_server: str, topic: str) -> None:
    """What it raises brings the message again; as many threads call it at a time as the settings say."""
    together = threading.Barrier(24)  # more than the loop's own threads on a small machine
    seen: list[bytes] = []
    everything = threading.Event()

    def listen(message: sync.MessageExt) -> sync.ConsumeResult:
        together.wait(20)
        seen.append(message.body)
        if len(seen) == 24:
            everything.set()
        return sync.ConsumeResult.SUCCESS

    settings = sync.ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", concurrency=24)
    with sync.Producer("p", name_server) as producer:
        producer.send_all([sync.Message(topic, b"%d" % number) for number in range(24)])
    with sync.Consumer(f"g-{topic}", name_server, listen, settings=settings) as consumer:
        consumer.subscribe(topic)
        assert everything.wait(30)
        assert consumer.subscriptions[topic].sub_string == "*"
        with pytest.raises(TypeError, match="listener"):
            next(iter(consumer))
    assert sorted(seen) == sorted(b"%d" % number for number in range(24))


def test_a_synchronous_consumer_can_be_iterated(name_server: str, topic: str) -> None:
    """Until none came for a while; the message that a loop was broken at comes again, also to the next member."""
    with sync.Producer("p", name_server) as producer:
        for number in range(4):
            producer.send(sync.Message(topic, b"%d" % number), sharding_key="one queue")
    group = f"g-{topic}"
    with sync.Consumer(group, name_server, settings=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        messages = iter(consumer)
        assert [next(messages).body, next(messages).body] == [b"0", b"1"]
        del messages
        assert next(iter(consumer)).body == b"1"
    with sync.Consumer(group, name_server, settings=FROM_FIRST) as consumer:
        consumer.subscribe(topic)
        assert next(iter(consumer)).body == b"1"
        assert [message.body for message in consumer.messages(timeout_ms=300)] == [b"1", b"2", b"3"]
        assert list(consumer.messages(timeout_ms=1)) == []
    with sync.PullConsumer(group, name_server) as pulling:
        assert sorted(filter(None, (pulling.committed(queue) for queue in pulling.queues(topic)))) == [4]


@pytest.mark.parametrize("orderly", [False, True])
def test_closing_a_synchronous_consumer_ends_the_iteration_over_its_messages_in_another_thread(
    name_server: str, topic: str, orderly: bool
) -> None:
    """Or the thread would wait for a message that nobody brings; and a message that nobody takes must not hold up closing."""
    settings = sync.ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", orderly=orderly)
    with sync.Producer("p", name_server) as producer:
        producer.send(sync.Message(topic, b"only one"))
    consumer = sync.Consumer(f"g-{topic}", name_server, settings=settings)
    with pytest.raises(RuntimeError, match="not started"):
        next(iter(consumer))
    consumer.start()
    consumer.subscribe(topic)
    assert next(consumer.messages()).body == b"only one"
    waiting = threading.Event()

    def iterate() -> list[bytes]:
        messages = consumer.messages()
        found = [next(messages).body]
        waiting.set()
        return [*found, *(message.body for message in messages)]

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(iterate)
        assert waiting.wait(20)
        consumer.close()
        assert found.result(20) == [b"only one"]


def test_a_synchronous_pull_consumer_can_poll_and_commit_and_seek(name_server: str, topic: str) -> None:
    with sync.Producer("p", name_server) as producer:
        sent = [producer.send(sync.Message(topic, b"%d" % number)) for number in range(6)]
    with sync.PullConsumer("polls", name_server) as consumer:
        consumer.assign(topic, consume_from="CONSUME_FROM_FIRST_OFFSET")
        found: list[bytes] = []
        while len(found) < 6:
            found += [message.body for message in consumer.poll(max_messages=4)]
        assert sorted(found) == [b"%d" % number for number in range(6)]
        assert set(consumer.positions.values()) == {3}
        consumer.commit()
        assert [consumer.committed(queue) for queue in consumer.positions] == [3, 3]
        consumer.seek(sent[0].queue, 2)
        assert [message.queue_offset for message in consumer.poll()] == [2]
        consumer.seek_to_time(0)
        assert set(consumer.positions.values()) == {0}


# --- transactions ---


def test_local_transactions_run_in_the_thread_of_the_caller(name_server: str, topic: str) -> None:
    """A connection to a database often belongs to its thread; the check is asked in another, and may take its time."""
    ran_in: list[threading.Thread] = []

    def book(message: sync.Message, transaction_id: str) -> sync.TransactionState:
        ran_in.append(threading.current_thread())
        assert transaction_id
        return sync.TransactionState.COMMIT if message.body == b"yes" else sync.TransactionState.ROLLBACK

    def check(message: sync.MessageExt) -> sync.TransactionState:
        raise AssertionError(f"{message.msg_id} was decided")

    with sync.TransactionProducer("books", name_server, check=check) as producer:
        queue = producer.queues(topic)[0]
        no = producer.send_in_transaction(sync.Message(topic, b"no"), book, queue)
        yes = producer.send_in_transaction(sync.Message(topic, b"yes"), book, queue)
        with pytest.raises(ZeroDivisionError):
            producer.send_in_transaction(sync.Message(topic, b"no"), lambda message, _id: 1 // 0, queue)  # type: ignore[arg-type, return-value]
    assert (no.state, yes.state) == (sync.TransactionState.ROLLBACK, sync.TransactionState.COMMIT)
    assert set(ran_in) == {threading.current_thread()}
    with sync.PullConsumer("look", name_server) as consumer:
        consumer.assign([queue], consume_from="CONSUME_FROM_FIRST_OFFSET")
        assert [message.body for message in consumer.poll()] == [b"yes"]


def test_the_transaction_check_of_a_synchronous_producer_is_called_in_a_thread() -> None:
    """On the loop's thread it would hold up every client of the program, and could use none of them."""
    asked: list[threading.Thread] = []

    def check(message: Any) -> sync.TransactionState:
        asked.append(threading.current_thread())
        return sync.TransactionState.COMMIT

    producer = sync.TransactionProducer("books", "127.0.0.1:1", check=check)
    answer = producer._inner._check(None)  # type: ignore[arg-type]
    assert shared_loop().run(answer) is sync.TransactionState.COMMIT  # type: ignore[arg-type]
    assert asked[0] not in (threading.current_thread(), shared_loop()._thread)


# --- waiting ---


def test_the_error_of_a_synchronous_call_in_a_running_event_loop_names_the_asynchronous_class() -> None:
    """The call would stop the loop that it is called from, perhaps for good."""

    async def call() -> None:
        producer = sync.Producer("p", "127.0.0.1:1")
        with pytest.raises(RuntimeError, match=r"await flintmq\.client\.Producer there"):
            producer.send(sync.Message("T", b""))
        with pytest.raises(sync.RemotingConnectError):
            await asyncio.to_thread(producer.send, sync.Message("T", b""))

    asyncio.run(call())


def test_a_synchronous_call_ends_at_its_timeout(silent_server: socket.socket) -> None:
    with sync.PullConsumer("g", f"127.0.0.1:{silent_server.getsockname()[1]}") as consumer:
        consumer.client.routes._timeout_ms = 30
        with pytest.raises(sync.RemotingTimeoutError, match="30 ms"):
            consumer.queues("T")


@pytest.mark.usefixtures("ctrl_c")
def test_a_keyboard_interrupt_ends_a_synchronous_call_and_its_request(silent_server: socket.socket) -> None:
    """Ctrl-C in a call that waits for a server: the caller gets KeyboardInterrupt, and no request is left behind."""
    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def interrupt() -> None:
        connection, _ = silent_server.accept()
        with connection:
            assert connection.recv(1)  # the request is under way
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            ended.wait(20)

    ended = threading.Event()
    with (
        sync.PullConsumer("g", f"127.0.0.1:{silent_server.getsockname()[1]}") as consumer,
        ThreadPoolExecutor(1) as threads,
    ):
        interrupted = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.queues("T")
        (connection,) = consumer.client.remoting._connections.values()

        async def step() -> None:
            """Come after what the loop has to do now; the cancellation takes some steps."""

        for _ in range(1_000):
            shared_loop().run(step())
            if not connection.waiting:
                break
        assert not connection.waiting
        ended.set()
        interrupted.result(20)


def test_a_program_that_does_not_close_its_clients_exits_without_a_traceback() -> None:
    """The loop's thread is a daemon, its tasks are cancelled, and nothing is said about them."""
    script = (
        "from flintmq.client.sync import Consumer, Producer\n"
        "consumer = Consumer('g', '127.0.0.1:1', print)\n"
        "consumer.start()\nconsumer.subscribe('T')\n"
        "Producer('p', '127.0.0.1:1').start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
    assert "pending" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_forked_process_cannot_use_clients_of_its_parent() -> None:
    """The thread of the loop is not there: a call would wait for ever. What is made there works."""
    script = (
        "import os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from flintmq.client.sync import Producer, RemotingConnectError, Message\n"
        "made_before = Producer('p', '127.0.0.1:1')\n"
        "child = os.fork()\n"
        "for producer in (made_before, Producer('p', '127.0.0.1:1')):\n"
        "    try:\n"
        "        producer.send(Message('T', b''))\n"
        "    except Exception as failure:\n"
        '        os.write(1, f\'{"parent" if child else "child"} {type(failure).__name__}\\n\'.encode())\n'
        "if child:\n"
        "    os.write(1, str(os.waitpid(child, 0)[1]).encode())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert sorted(done.stdout.split("\n")) == sorted(
        [
            "child RuntimeError",
            "child RemotingConnectError",
            "parent RemotingConnectError",
            "parent RemotingConnectError",
            str(os.EX_OK),
        ]
    ), done.stderr
