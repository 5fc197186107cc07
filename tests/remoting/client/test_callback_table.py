"""Each function of a user raises each kind of exception, and the result is that of the table in docs/client-advanced.md.

The loop's order, time and threads are simulated: an exception that got out of a callback would end the test.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.errors import FlintError
from flintmq.remoting.client.allocation import allocate_averagely
from flintmq.remoting.client.consumer import Consumer
from flintmq.remoting.client.consumer_settings import FROM_FIRST, ConsumerSettings
from flintmq.remoting.client.handlers import Consumers
from flintmq.remoting.client.instance import ClientInstance
from flintmq.remoting.client.message import Message
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.pull_consumer import PullConsumer
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

PAGE = Path(str(flintmq.__file__)).parent / "docs" / "client-advanced.md"
QUEUE = MessageQueue("broker-0", 0, "T")


class SpeechlessError(Exception):
    """Even its text cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no text")


class ManyErrors(BaseExceptionGroup[BaseException]):
    """As a task group of the user's may raise."""

    def __new__(cls, *_: object) -> ManyErrors:
        return super().__new__(cls, "many", [SystemExit(3), ValueError("no")])


ORDINARY: list[type[BaseException]] = [ValueError, OSError, TimeoutError, FlintError, SpeechlessError]
ENDING: list[type[BaseException]] = [
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    ManyErrors,
]


class Raiser:
    """Raises at its first calls, then returns something."""

    def __init__(self, failure: type[BaseException], times: int = 1, then: Any = None) -> None:
        self.failure, self.times, self.then = failure, times, then
        self.calls: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        if len(self.calls) <= self.times:
            raise self.failure("no")
        return self.then(*args) if callable(self.then) else self.then

    async def later(self, *args: Any) -> Any:
        await asyncio.sleep(0.01)
        return self(*args)


class Setting:
    """A cluster and a kind of exception."""

    def __init__(self, cluster: FakeCluster, failure: type[BaseException], log: pytest.LogCaptureFixture) -> None:
        self.cluster, self.failure, self.log = cluster, failure, log

    @property
    def raised_to_caller(self) -> tuple[type[BaseException], ...]:
        """What a call raises in which the exception was raised: ``CallbackError``, or Python's own for ``StopIteration``."""
        return (RuntimeError,) if self.failure in ENDING else (self.failure,)

    def consumer(self, listener: Any = None, **options: Any) -> Consumer:
        settings = ConsumerSettings(consume_from=FROM_FIRST, concurrency=2, **options.pop("settings", {}))
        return Consumer("g", self.cluster.address, listener, settings=settings, clock=self.cluster.clock, **options)

    def put(self, count: int = 3) -> None:
        for number in range(count):
            self.cluster.put(QUEUE, b"%d" % number)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(200):
            while not condition():  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.1)


async def consumed_by(setting: Setting, **options: Any) -> list[bytes]:
    """Return the bodies that a listener got, of three messages; the first call raises, and a producer works meanwhile."""
    setting.put()
    async with setting.consumer(**options) as consumer, Producer("p", setting.cluster.address) as other:
        await consumer.subscribe("T")
        listener = options.get("listener") or options["batch_listener"]
        raiser: Raiser = getattr(listener, "__self__", listener)

        def bodies() -> list[bytes]:
            return [message.body for (got,) in raiser.calls for message in (got if isinstance(got, list) else [got])]

        await setting.until(lambda: len(bodies()) >= 4)
        assert len(await other.queues("T")) == 4
        assert "failed" in setting.log.text
        return bodies()


async def listener(setting: Setting, *, is_async: bool = False, orderly: bool = False) -> None:
    raiser = Raiser(setting.failure)
    bodies = await consumed_by(setting, listener=raiser.later if is_async else raiser, settings={"orderly": orderly})
    if orderly:
        assert bodies == [b"0", b"0", b"1", b"2"]
    else:
        assert sorted(bodies) == sorted([bodies[0], b"0", b"1", b"2"])


async def batch_listener(setting: Setting) -> None:
    for orderly in (False, True):
        raiser = Raiser(setting.failure)
        bodies = await consumed_by(
            setting, batch_listener=raiser, settings={"consume_batch_size": 2, "orderly": orderly}
        )
        assert set(bodies) == {b"0", b"1", b"2"}


async def listeners(setting: Setting) -> None:
    """Plain and awaited, concurrently and in order; single messages and lists; of a Consumer and of Consumers."""
    for is_async in (False, True):
        for orderly in (False, True):
            await listener(setting, is_async=is_async, orderly=orderly)
            forget(setting.cluster)


def forget(cluster: FakeCluster) -> None:
    """Empty the topic and what was stored of the group."""
    for broker in cluster.brokers.values():
        broker.records.clear()
        broker.offsets.clear()


async def handlers(setting: Setting) -> None:
    setting.put()
    raiser = Raiser(setting.failure)
    consumers = Consumers(setting.cluster.address, clock=setting.cluster.clock)
    consumers.handler("T", group="g", settings=ConsumerSettings(consume_from=FROM_FIRST))(raiser)
    async with consumers:
        await setting.until(lambda: len(raiser.calls) >= 4)


async def direct(setting: Setting) -> None:
    """A message that an administrator has one member consume: the answer says what the listener raised."""
    setting.put(1)
    raiser = Raiser(setting.failure, times=99)
    broker = setting.cluster.brokers["broker-0"]
    async with setting.consumer(raiser) as consumer:
        await setting.until(lambda: bool(broker.connections))
        push = request(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g", "clientId": "x", "msgId": "y"})
        push.body = broker.records["T", 0][0]
        broker.connections[consumer.client.client_id].write(encode_command(push))
        await setting.until(lambda: bool(broker.peer.responses))
    assert b"CR_THROW_EXCEPTION" in broker.peer.responses[0].body
    assert setting.failure.__name__.encode() in broker.peer.responses[0].body


async def loop_body(setting: Setting) -> None:
    """The loop is the program's own: the exception is, too, and the message is the next one of another loop."""
    setting.put(2)
    async with setting.consumer() as consumer:
        await consumer.subscribe("T")

        async def first() -> None:
            async for message in consumer:
                assert message.body == b"0"
                raise FlintError("of the program")

        with pytest.raises(FlintError):
            await first()
        async for message in consumer:
            assert message.body == b"0"
            break


async def allocate(setting: Setting) -> None:
    setting.put()
    got: list[bytes] = []
    strategy = Raiser(setting.failure, times=2, then=allocate_averagely)

    async def take(message: Any) -> None:
        got.append(message.body)

    async with setting.consumer(take, settings={"allocate": strategy}) as consumer:
        await consumer.subscribe("T")
        await setting.until(lambda: len(got) == 3)


class Offsets:
    """Keeps offsets; one method raises."""

    def __init__(self, method: str, raiser: Raiser) -> None:
        self.stored: dict[MessageQueue, int] = {}
        self.method, self.raiser = method, raiser

    async def load(self, queue: MessageQueue) -> int | None:
        if self.method == "load":
            self.raiser(queue)
        return self.stored.get(queue)

    async def save(self, offsets: dict[MessageQueue, int]) -> None:
        if self.method == "save":
            self.raiser(offsets)
        self.stored |= offsets


async def load(setting: Setting) -> None:
    setting.put()
    setting.cluster.put(MessageQueue("broker-0", 1, "T"), b"of another queue")
    got: list[bytes] = []

    async def take(message: Any) -> None:
        got.append(message.body)

    store = Offsets("load", Raiser(setting.failure, times=1))
    async with setting.consumer(take, offset_store=store) as consumer:
        await consumer.subscribe("T")
        await setting.until(lambda: len(got) == 4)
    assert store.stored[QUEUE] == 3


async def save(setting: Setting) -> None:
    setting.put()
    got: list[bytes] = []

    async def take(message: Any) -> None:
        got.append(message.body)

    raiser = Raiser(setting.failure, times=2)
    store = Offsets("save", raiser)
    async with setting.consumer(take, offset_store=store, settings={"orderly": True}) as consumer:
        await consumer.subscribe("T")
        await setting.until(lambda: len(got) == 3)
        with pytest.raises(setting.raised_to_caller):
            await consumer.commit()
        await setting.until(lambda: store.stored.get(QUEUE) == 3)
        raiser.times = len(raiser.calls) + 1
        setting.put(1)
        await setting.until(lambda: len(got) == 4)
    assert len(raiser.calls) >= raiser.times
    assert not setting.cluster.brokers["broker-0"].locks, "the queue was unlocked all the same"


async def check(setting: Setting) -> None:
    for is_async in (False, True):
        raiser = Raiser(setting.failure, times=2, then=TransactionState.COMMIT)
        answer = raiser.later if is_async else raiser
        async with TransactionProducer(
            "p", setting.cluster.address, check=answer, clock=setting.cluster.clock
        ) as producer:
            await producer.send_in_transaction(Message("T", b"x"), lambda *_: TransactionState.UNKNOWN, QUEUE)
            await setting.until(lambda: setting.cluster.length(QUEUE) == 1)
        assert "the broker will ask again" in setting.log.text
        forget(setting.cluster)


async def local(setting: Setting) -> None:
    """Raised as it is to the caller, whose function it is; and the broker asks."""
    check_, work = Raiser(setting.failure, times=0, then=TransactionState.COMMIT), Raiser(setting.failure)
    async with TransactionProducer("p", setting.cluster.address, check=check_, clock=setting.cluster.clock) as producer:
        of_coroutine = RuntimeError if setting.failure is StopIteration else setting.failure
        with pytest.raises(of_coroutine):
            await producer.send_in_transaction(Message("T", b"x"), work, QUEUE)
        assert setting.cluster.length(QUEUE) == 0
        await setting.until(lambda: setting.cluster.length(QUEUE) == 1)
    assert len(check_.calls) == 1


class Hook:
    """Raises for requests of one code."""

    def __init__(self, method: str, code: int, raiser: Raiser) -> None:
        self.method, self.code, self.raiser = method, code, raiser

    def before_request(self, _address: str, command: Any) -> None:
        if self.method == "before" and command.code == self.code:
            self.raiser()

    def after_response(self, _address: str, command: Any, _answer: Any) -> None:
        if self.method == "after" and command.code == self.code:
            self.raiser()


async def before_request(setting: Setting) -> None:
    for options in ({}, {"linger_ms": 0}, {"linger_ms": 5, "trace": True}):
        hook = Hook("before", RequestCode.SEND_MESSAGE_V2, Raiser(setting.failure, times=1))
        async with Producer(
            "p", setting.cluster.address, hooks=[hook], clock=setting.cluster.clock, retries=0, **options
        ) as producer:
            with pytest.raises(setting.raised_to_caller):
                await producer.send(Message("T", b"x"), QUEUE)
            assert setting.cluster.length(QUEUE) == 0
            await producer.send(Message("T", b"x"), QUEUE)
        forget(setting.cluster)
    for code in (RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE, RequestCode.GET_CONSUMER_LIST_BY_GROUP):
        setting.put()
        got: list[bytes] = []
        hook = Hook("before", code, Raiser(setting.failure, times=2))
        async with setting.consumer(lambda message: got.append(message.body), hooks=[hook]) as consumer:  # noqa: B023
            await consumer.subscribe("T")
            await setting.until(lambda: len(got) >= 3)  # noqa: B023
        forget(setting.cluster)


async def after_response(setting: Setting) -> None:
    hook = Hook("after", RequestCode.SEND_MESSAGE_V2, Raiser(setting.failure, times=1))
    async with Producer("p", setting.cluster.address, hooks=[hook], clock=setting.cluster.clock, retries=0) as producer:
        with pytest.raises(setting.raised_to_caller):
            await producer.send(Message("T", b"x"), QUEUE)
        assert setting.cluster.length(QUEUE) == 1
    forget(setting.cluster)
    setting.put()
    hook = Hook("after", RequestCode.PULL_MESSAGE, Raiser(setting.failure, times=1))
    async with PullConsumer("g", setting.cluster.address, hooks=[hook], clock=setting.cluster.clock) as puller:
        await puller.assign([QUEUE], consume_from=FROM_FIRST)
        with pytest.raises(setting.raised_to_caller):
            await puller.poll()
        assert [message.body for message in await puller.poll()] == [b"0", b"1", b"2"]


async def closing_hook(setting: Setting) -> None:
    """A close ends, and closes, although a hook raises at what it says in the end."""
    hook = Hook("before", RequestCode.UNREGISTER_CLIENT, Raiser(setting.failure, times=9))
    async with setting.consumer(lambda _message: None, hooks=[hook]) as consumer:
        await consumer.subscribe("T")
        await setting.until(lambda: bool(consumer.process_queues))
    assert hook.raiser.calls


async def handler_of_requests(setting: Setting) -> None:
    """What a server pushes is answered with an error, and the connection lives on."""
    broker = setting.cluster.brokers["broker-0"]
    for is_async in (False, True):
        client = ClientInstance(setting.cluster.address, clock=setting.cluster.clock)
        raiser = Raiser(setting.failure, times=9)
        client.remoting.register_processor(990, raiser.later if is_async else raiser)
        await client.ask(broker.peer.address, request(RequestCode.HEART_BEAT, body=b'{"clientID":"c"}'))
        broker.peer.push(request(990, {}))
        await setting.until(lambda: bool(broker.peer.responses))
        answer = broker.peer.responses.pop()
        assert answer.code == 1
        assert setting.failure.__name__ in (answer.remark or "")
        await client.ask(broker.peer.address, request(RequestCode.HEART_BEAT, body=b'{"clientID":"c"}'))
        await client.close()


TABLE: dict[str, list[Callable[[Setting], Awaitable[None]]]] = {
    "a listener, a batch listener, a function of `Consumers`": [listeners, batch_listener, handlers, direct],
    "the body of `for message in consumer`": [loop_body],
    "`check` of a transaction producer": [check],
    "`local` of `send_in_transaction`": [local],
    "`allocate` of the settings": [allocate],
    "`load` of an offset store": [load],
    "`save` of an offset store": [save],
    "`before_request` of a hook": [before_request, closing_hook],
    "`after_response` of a hook": [after_response],
    "a handler of `register_processor`": [handler_of_requests],
}
"""The first column of the table in docs/client-advanced.md → what shows that the row holds."""
CASES = [(row, case, failure) for row, cases in TABLE.items() for case in cases for failure in (*ORDINARY, *ENDING)]


def test_the_documentation_lists_every_tested_client_callback() -> None:
    section = PAGE.read_text("utf-8").partition("## Exceptions in your functions\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", section, re.M)
    assert rows[0] == "your function"
    assert rows[1:] == list(TABLE)


@pytest.mark.parametrize(
    ("case", "failure"),
    [pytest.param(case, failure, id=f"{case.__name__}-{failure.__name__}") for _, case, failure in CASES],
)
def test_each_failing_client_callback_has_the_effect_that_the_documentation_lists(
    case: Callable[[Setting], Awaitable[None]], failure: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flintmq.client")
    cluster = FakeCluster(Choices(11), brokers=1, queue_nums=4)

    async def main() -> None:
        await cluster.start()
        begun_s = cluster.loop.time()
        await case(Setting(cluster, failure, caplog))
        assert cluster.loop.time() - begun_s < 400
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"these go on after the close: {left}"

    cluster.loop.run(main())
    assert not cluster.loop.errors, cluster.loop.errors
