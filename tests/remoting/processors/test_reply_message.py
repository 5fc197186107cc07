"""A reply must reach who asked, with nothing changed but the time of passing on; who replied must learn when not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from flintmq.core.broker.sink import MessageSink
from flintmq.core.errors import RemotingError, RemotingTimeoutError
from flintmq.core.kernel.ports import DispatchRequest, FlushStatus
from flintmq.core.record.properties import properties_to_string, string_to_properties
from flintmq.remoting.processors.reply_message import ReplyMessageProcessor
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import request as command
from flintmq.remoting.wire.command import response

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "MSG_TYPE": "reply", "p": "ü"}


class Waiter:
    def __init__(self, status: FlushStatus = FlushStatus.FLUSHED) -> None:
        self.status = status


class PutStore:
    """Takes messages; ``outcome`` is what became of the next."""

    def __init__(self) -> None:
        self.put_messages: list[Any] = []
        self.status = FlushStatus.FLUSHED
        self.outcome: Any = DispatchRequest(TOPIC, 0, 0x2A, 100, 0, 0, 7, "", "", 0, 0, {})

    def put(self, messages: list[Any]) -> Any:
        self.put_messages += messages
        kept = [self.outcome] if isinstance(self.outcome, DispatchRequest) else []
        return SimpleNamespace(
            results=[self.outcome], records=kept, messages=len(kept), waiter=Waiter(self.status), took_s=0.0
        )

    def dispatch(self) -> bool:
        return False


@pytest.fixture
def replying(bench: Any, new_channel: Any) -> Any:
    """A bench whose requester is connected and takes replies; ``send`` sends one."""
    state = bench.state
    state.store = PutStore()
    state.sink = MessageSink(state.store, state.stats, state.dispatch)
    bench.channel.packed_host = state.store_host
    bench.asker = new_channel("10.0.0.9:5")
    bench.asker.answers.append(response(command(326), 0))
    state.producers.register("askers", bench.asker, "asker")
    handlers = ReplyMessageProcessor(state.api).handlers()

    def send(properties: dict[str, str] = PROPERTIES, code: int = RequestCode.SEND_REPLY_MESSAGE, **more: str) -> Any:
        names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag")
        names += ("bornTimestamp", "flag", "properties")
        values = ("repliers", TOPIC, "TBW102", "4", "0", "0", "123", "5", properties_to_string(properties))
        if code == RequestCode.SEND_REPLY_MESSAGE_V2:
            names = tuple("abcdefghi")
        fields = dict(zip(names, values, strict=True)) | more
        return asyncio.run(bench.later(handlers, bench.request(code, fields, b"pong")))

    bench.send = send
    return bench


@pytest.fixture(autouse=True)
def _later(bench: Any, ask_later: Any) -> None:
    bench.later = ask_later


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_the_broker_stores_a_reply_and_pushes_it_to_the_requester(replying: Any, code: int) -> None:
    """Both names of the code; what is pushed has everything the sender said."""
    answer = replying.send(code=code)
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "7F00000100002A9F000000000000002A")
    assert (answer.ext_fields["queueOffset"], answer.ext_fields["queueId"]) == ("7", "0")
    assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")
    ((pushed_code, fields, body),) = replying.asker.asked
    assert (pushed_code, body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"pong")
    properties = string_to_properties(fields.pop("properties"))
    assert properties.pop("PUSH_REPLY_TIME") == str(replying.clock.now_ms())
    assert properties == PROPERTIES
    assert fields["bornHost"] == replying.channel.remote_address
    assert fields["storeHost"] == "127.0.0.1:10911"
    assert fields["storeTimestamp"] == str(replying.clock.now_ms())
    assert (fields["producerGroup"], fields["topic"], fields["bornTimestamp"], fields["flag"]) == (
        "repliers",
        TOPIC,
        "123",
        "5",
    )
    (stored,) = replying.state.store.put_messages
    assert (stored.topic, stored.body) == (TOPIC, b"pong")
    assert "PUSH_REPLY_TIME" in stored.properties


def test_no_replies_are_stored_if_the_setting_store_reply_is_false(replying: Any) -> None:
    """``topics.store_reply: false`` passes replies on and keeps none."""
    config = replying.state.config
    replying.state.config = attrs.evolve(config, topics=attrs.evolve(config.topics, store_reply=False))
    answer = replying.send()
    assert (answer.code, answer.ext_fields["msgId"], answer.ext_fields["queueOffset"]) == (0, "0", "0")
    assert replying.state.store.put_messages == []


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (RemotingTimeoutError("10 s"), "reply.not_taken"),
        (RemotingError("closed"), "reply.not_taken"),
        (response(command(326), 1, "no"), "reply.refused"),
    ],
)
def test_a_replier_gets_an_error_if_the_requester_did_not_accept_the_reply(
    replying: Any, outcome: Any, said: str
) -> None:
    """A requester that is silent, gone or unwilling: the replier is told, and the reply is stored all the same."""
    replying.asker.answers[:] = [outcome]
    answer = replying.send()
    assert answer.code == 1
    assert said in answer.remark
    assert len(replying.state.store.put_messages) == 1


def test_a_reply_to_an_unknown_requester_is_refused(replying: Any) -> None:
    """Unknown, disconnected, or not named at all."""
    assert "reply.offline" in replying.send({**PROPERTIES, "REPLY_TO_CLIENT": "nobody"}).remark
    assert "REPLY_TO_CLIENT" in replying.send({"MSG_TYPE": "reply"}).remark
    replying.asker.is_open = False
    assert replying.send().code == 1
    assert replying.asker.asked == []


@pytest.mark.parametrize(("status", "code"), [(FlushStatus.TIMEOUT, 10), (FlushStatus.FENCED, 14)])
def test_a_reply_that_is_not_stored_durably_gets_the_response_code_that_a_send_would_get(
    replying: Any, status: FlushStatus, code: int
) -> None:
    replying.state.store.status = status
    assert replying.send().code == code


def test_a_reply_with_an_unknown_topic_or_queue_is_refused_and_not_pushed(replying: Any) -> None:
    """Nothing is pushed then."""
    assert replying.send(topic="no such topic").code == 1
    assert replying.send(queueId="9").code == 1
    assert replying.asker.asked == []
