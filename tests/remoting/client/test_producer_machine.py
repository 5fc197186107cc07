"""Any call of a producer while any other is under way: what it says is stored, lies where it says, and once."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import reply_topic
from flintmq.core.errors import RefusedError, RemotingTimeoutError
from flintmq.core.record.batch import decode_batch
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.client.message import Message, decode_messages
from flintmq.remoting.client.producer import Producer
from flintmq.remoting.client.send_result import STORED, PartlySentError, SendResult
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.tests.support.client_machine import Call, OneProducerMachine, run_machine
from flintmq.tests.support.effort import examples
from flintmq.tests.support.fake_broker import FakeBroker, FakePeer

TOPICS = ("T", "New")
TIMEOUTS_MS = (300, 1_000, 3_000)
QUESTION_S = 3.0
"""How long a name server may take."""
BODY_BYTES = 100
"""Size of the bodies of ``send_all``; a batch holds three messages."""


@attrs.define(eq=False)
class Send:
    """One call that sends messages."""

    messages: Sequence[Message]
    queue: MessageQueue | None
    sharding_key: str | None
    is_alone: bool = False
    """Whether a batch cannot hold it, so that it is neither gathered nor kept in order."""
    is_oneway: bool = False
    requests: int = 0
    """How many requests held its first message."""
    call: Call = attrs.field(init=False)
    place: int = -1
    """The place among the calls in the order in which the loop began them."""

    @property
    def is_illegal(self) -> bool:
        return any(message.body.startswith(b"!") for message in self.messages)


class Watch:
    """Sees every request that sends, and its answer (``RpcHook``)."""

    def __init__(self, machine: ProducerMachine) -> None:
        self._machine = machine
        self._stored: set[bytes] = set()

    @staticmethod
    def _bodies(command: RemotingCommand) -> list[bytes]:
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            return [item.body for item in decode_batch(command.body)]
        return [command.body] if command.code == RequestCode.SEND_MESSAGE_V2 else []

    def before_request(self, _address: str, command: RemotingCommand) -> None:
        for body in self._bodies(command):
            if body in self._stored:
                self._machine.failures.append(f"{body!r} is sent again although its producer knows that it is stored")
            if body in self._machine.sends:
                self._machine.sends[body].requests += self._machine.sends[body].messages[0].body == body

    def after_response(self, _address: str, command: RemotingCommand, answer: RemotingCommand) -> None:
        if answer.code in STORED:
            self._stored.update(self._bodies(command))


class ProducerMachine(OneProducerMachine):
    """One producer, two brokers, one topic that there is and one that sending creates."""

    options: ClassVar[dict[str, Any]] = {"max_in_flight": 4}
    gathers: ClassVar[bool] = False

    async def start_client(self) -> None:
        self.cluster.topics |= {AUTO_CREATE_TOPIC, reply_topic("C")}
        self.sends: dict[bytes, Send] = {}
        """By the bodies of the messages."""
        self.order: list[Send] = []
        self.is_closing = False
        self.number = itertools.count()
        self.producer = self.made()
        await self.producer.start()

    def made(self) -> Producer:
        """Return the producer."""
        return Producer(
            "p",
            self.cluster.address,
            hooks=(Watch(self),),
            clock=self.cluster.clock,
            max_message_bytes=500,
            **self.options,
        )

    async def close_clients(self) -> None:
        """Close while messages are gathered: they are stored."""
        if self.gathers:
            self.send("T", -1, None, 3_000, "plain", 3)
            self.send("T", 1, None, 3_000, "plain", 2)
            while any(send.place < 0 for send in self.order):  # noqa: ASYNC110 - the next steps of the loop end it
                await asyncio.sleep(0)
            for _ in range(self.cluster.choices.below(12)):
                await asyncio.sleep(0)
        self.is_closing = True
        await self.producer.close()
        assert not len(self.producer.client.requests), "requests wait for replies after close"

    # --- rules ---

    def message(self, topic: str, illegal: bool = False, **fields: Any) -> Message:
        return Message(topic, b"%s%d" % (b"!" if illegal else b"", next(self.number)), **fields)

    def queue(self, at: int, topic: str) -> MessageQueue | None:
        return self.cluster.queues(topic)[at] if 0 <= at < len(self.cluster.queues(topic)) else None

    def begin_send(self, name: str, send: Send, work: Callable[[], Awaitable[Any]], within_s: float) -> Send:
        for message in send.messages:
            self.sends[message.body] = send
        self.order.append(send)

        async def begun() -> Any:
            send.place = next(self.number)
            return await work()

        send.call = self.call(name, begun(), within_s)
        send.call.is_disturbed |= self.is_closing
        return send

    @rule(
        topic=st.sampled_from(TOPICS),
        at=st.integers(-4, 3),
        key=st.sampled_from([None, None, "a", "b"]),
        timeout_ms=st.sampled_from(TIMEOUTS_MS),
        kind=st.sampled_from(["plain", "plain", "plain", "delayed", "illegal"]),
        count=st.integers(1, 4),
    )
    def send(self, topic: str, at: int, key: str | None, timeout_ms: int, kind: str, count: int) -> None:
        """Send some messages at the same time, each by a call of its own."""
        for number in range(count):
            kind = kind if number == 0 else "plain"
            fields = {"delay_level": 1} if kind == "delayed" else {}
            message = self.message(topic, kind == "illegal", **fields)
            queue = None if key else self.queue(at, topic)
            send = Send([message], queue, key, is_alone=kind == "delayed")
            work = partial(self.producer.send, message, queue, sharding_key=key, timeout_ms=timeout_ms)
            within_s = timeout_ms / 1000
            self.begin_send("send", send, work, within_s)

    @rule(count=st.integers(2, 4), steps=st.integers(0, 20))
    def send_and_cancel(self, count: int, steps: int) -> None:
        """Cancel one of some calls that send at the same time, while its request is under way: the others do not notice."""
        self.send("T", -1, None, 3_000, "plain", count)
        send = self.order[-1]
        self.loop.run_while(lambda: not (send.requests or send.call.task.done()))
        self.run_steps(steps)
        if not send.call.task.done():
            send.call.is_cancelled = True
            send.call.task.cancel()

    @rule(at=st.integers(0, 3))
    def send_to_silent(self, at: int) -> None:
        """Each call to a broker that says nothing ends in its own time, also where one that has longer came first."""
        queue = self.cluster.queues("T")[at]
        self.fail(1 + list(self.cluster.brokers).index(queue.broker_name), "silent")
        for timeout_ms in (3_000, 300):
            self.send("T", at, None, timeout_ms, "plain", 1)
            self.run_steps(20)
        self.pass_time(3.5)

    @rule(
        topic=st.sampled_from(TOPICS),
        at=st.integers(-4, 3),
        timeout_ms=st.sampled_from(TIMEOUTS_MS),
        illegal=st.booleans(),
        count=st.integers(1, 4),
        whole=st.booleans(),
    )
    def send_many(self, topic: str, at: int, timeout_ms: int, illegal: bool, count: int, whole: bool) -> None:
        """Send messages together, or in as few batches as hold them."""
        messages: list[Message] = []
        for _ in range(count):
            body = b"%s%d" % (b"!" if illegal else b"", next(self.number))
            messages.append(Message(topic, body.ljust(1 if whole else BODY_BYTES, b".")))
        queue = self.queue(at, topic)
        method: Any = self.producer.send_batch if whole else self.producer.send_all
        work = partial(method, messages, queue, timeout_ms=timeout_ms)
        within_s = (1 if whole else count) * (timeout_ms / 1000)
        self.begin_send("send_batch" if whole else "send_all", Send(messages, queue, None), work, within_s)

    @rule(topic=st.sampled_from(TOPICS), at=st.integers(-4, 3))
    def send_oneway(self, topic: str, at: int) -> None:
        message = self.message(topic)
        queue = self.queue(at, topic)
        work = partial(self.producer.send_oneway, message, queue)
        self.begin_send("send_oneway", Send([message], queue, None, is_oneway=True), work, 3.0)

    @rule(timeout_ms=st.sampled_from(TIMEOUTS_MS), illegal=st.booleans())
    def request(self, timeout_ms: int, illegal: bool = False) -> None:
        """Ask a consumer, which the broker plays."""
        message = self.message("T", illegal)
        send = Send([message], None, None)
        self.begin_send("request", send, partial(self._request, message, timeout_ms), timeout_ms / 1000)

    async def _request(self, message: Message, timeout_ms: int) -> None:
        reply = await self.producer.request(message, timeout_ms=timeout_ms)
        sent = [
            one for one in self.stored()[bytes(message.body)] if one.properties["CORRELATION_ID"].encode() == reply.body
        ]
        if not sent:
            self.failures.append(f"the reply {reply.body!r} answers another request than {message.body!r}")

    @rule(at=st.integers(0, 1), timeout_ms=st.sampled_from(TIMEOUTS_MS))
    def reply(self, at: int, timeout_ms: int) -> None:
        """Answer a request that was consumed at a broker: the reply goes there, where the requester is known."""
        self.call("reply", self._reply(list(self.cluster.brokers)[at], timeout_ms), timeout_ms / 1000)

    async def _reply(self, broker_name: str, timeout_ms: int) -> None:
        correlation_id = f"id-{next(self.number)}"
        named = {"CORRELATION_ID": correlation_id, "REPLY_TO_CLIENT": "requester", "CLUSTER": "C"}
        (asked,) = decode_messages(record_with(named), broker_name)
        was_there = broker_name not in self.cluster.gone
        await self.producer.reply(asked, b"the answer", timeout_ms=timeout_ms)
        if was_there and not self.is_disturbed:
            taken = [(name, *one) for name, broker in self.cluster.brokers.items() for one in broker.replies]
            if taken.count((broker_name, correlation_id, b"the answer")) != 1:
                self.failures.append(f"the reply {correlation_id} to {broker_name} is not among {taken}")

    @rule(topic=st.sampled_from(TOPICS))
    def queues(self, topic: str) -> None:
        self.call("queues", self.producer.queues(topic), 2 * QUESTION_S)  # for a topic and the auto-create topic

    # --- what must be so ---

    def stored(self) -> defaultdict[bytes, list[Any]]:
        """Return the messages that brokers have, by their bodies."""
        found: defaultdict[bytes, list[Any]] = defaultdict(list)
        for name, broker in self.cluster.brokers.items():
            for queue in broker.records.values():
                for message in decode_messages(b"".join(queue), name):
                    found[bytes(message.body)].append(message)
        return found

    def check_calls(self) -> None:
        super().check_calls()
        stored = self.stored()
        for send in self.order:
            self.check_failure(send)
            self.check_stored(send, stored)
            assert send.requests <= (1 if send.queue or send.sharding_key else 3) * (2 if self.gathers else 1), send
        self.check_order()
        self.order.clear()
        self.sends.clear()

    def check_failure(self, send: Send) -> None:
        """A call fails for a reason: a fault, its end, a short time, or because of what it sends."""
        call = send.call
        if call.task.cancelled() or (failure := call.task.exception()) is None:
            assert call.task.cancelled() or not send.is_illegal or send.is_oneway, f"{send} was to be refused"
            return
        if isinstance(failure, PartlySentError):
            failure = failure.__cause__
        if isinstance(failure, RefusedError) and failure.code == ResponseCode.MESSAGE_ILLEGAL:
            assert send.is_illegal, f"{send} was refused because of another message"
        elif not (call.is_disturbed or send.is_illegal):
            assert isinstance(failure, RemotingTimeoutError), f"{send} failed without a cause: {failure!r}"
            took_s = (call.ended_s or self.loop.time()) - call.begun_s
            assert took_s >= 0.25, f"{send} was out of time at once"

    def check_stored(self, send: Send, stored: defaultdict[bytes, list[Any]]) -> None:
        """What a call says is stored, lies where it says; and nothing is stored more often than it was sent."""
        for message in send.messages:
            assert len(stored[message.body]) <= max(1, send.requests), f"{message} is stored too often"
            if not send.call.is_disturbed and send.queue is not None:
                assert len(stored[message.body]) <= 1, f"{message} is stored twice"
        for result, message in results_of(send):
            queue, queue_offset = result.queue, result.queue_offset
            found = [(one.queue, one.queue_offset) for one in stored[message.body]]
            assert (queue, queue_offset) in found, f"{message} is not at {queue}, {queue_offset}: it is at {found}"
            assert send.queue in (None, queue), f"{message} went to {queue}, not to {send.queue}"

    def check_order(self) -> None:
        """Gathered messages for one queue, or of one key, lie in the order of their sends."""
        if not self.gathers:
            return
        last: dict[tuple[object, MessageQueue], int] = {}
        for send in sorted(self.order, key=lambda send: send.place):
            if (send.queue is None and send.sharding_key is None) or len(send.messages) > 1:
                continue
            result = send.call.result
            if isinstance(result, SendResult):
                lane = (send.sharding_key or send.queue, result.queue)
                assert result.queue_offset > last.get(lane, -1), f"{send} overtook one that was sent before"
                last[lane] = result.queue_offset

    def check_healed(self) -> None:
        """After the faults a producer sends again, in every way, at once; that one call is cancelled harms no other."""
        if self.is_closing:
            self.ends(self.producer.close())
            self.producer = self.made()
            self.ends(self.producer.start())
            self.is_closing = False
        self.pass_time(max(0.0, self.faulty_until_s - self.loop.time()))
        for topic in TOPICS:
            self.send(topic, -1, None, 3_000, "plain", 2)
            self.send(topic, 1, None, 3_000, "plain", 1)
            self.send(topic, -1, "a", 3_000, "plain", 1)
            self.send_many(topic, -1, 3_000, False, 2, True)
            self.send_oneway(topic, -1)
        self.request(3_000)
        self.reply(0, 3_000)
        self.send_and_cancel(2, 0)
        self.pass_time(20.0)
        sent = [call for call in self.calls if not call.is_cancelled]
        for call in sent:
            assert call.task.done(), call
            assert not call.task.cancelled(), call
            assert call.task.exception() is None, f"after the faults {call.name} fails: {call.task.exception()!r}"
        assert all(self.stored()[body] for body, send in self.sends.items() if send.call in sent)


def record_with(properties: dict[str, str]) -> bytes:
    """Return the record of a message that has these properties."""
    broker = FakeBroker(FakePeer())
    broker.put("T", 0, b"x", properties_to_string(properties))
    return broker.by_place[0]


def results_of(send: Send) -> list[tuple[SendResult, Message]]:
    """Return where each message of a call lies by its results."""
    result = send.call.result
    if send.call.task.done() and not send.call.task.cancelled():
        failure = send.call.task.exception()
        if isinstance(failure, PartlySentError):
            result = list(failure.results)
    results = result if isinstance(result, list) else [result] if isinstance(result, SendResult) else []
    told: list[tuple[SendResult, Message]] = []
    for one in results:
        for number in range(one.msg_id.count(",") + 1):
            told.append((attrs.evolve(one, queue_offset=one.queue_offset + number), send.messages[len(told)]))
    return told


class LingeringMachine(ProducerMachine):
    """Sends are gathered."""

    options: ClassVar[dict[str, Any]] = {"linger_ms": 20, "linger_max_bytes": 8}
    gathers = True


class TurnMachine(ProducerMachine):
    """Sends of one iteration of the loop are gathered; few requests may be under way; slow brokers are let alone."""

    options: ClassVar[dict[str, Any]] = {"linger_ms": 0, "max_in_flight": 4, "latency_backoff": True, "retries": 1}
    gathers = True


MACHINES: list[type[RuleBasedStateMachine]] = [ProducerMachine, LingeringMachine, TurnMachine]


@pytest.mark.parametrize("machine", MACHINES)
def test_producers_lose_no_acknowledged_message_and_every_call_returns_despite_random_faults(
    machine: type[ProducerMachine],
) -> None:
    """Nothing acknowledged is missing, nothing is stored twice without a cause, calls end in time, close leaves nothing."""
    run_machine(machine, examples(60))
