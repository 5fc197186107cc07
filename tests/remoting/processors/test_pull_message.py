"""A pull finds what it may read, waits where nothing is there yet, and says exactly why it may not."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from flintmq.config.sections.models import BrokerConfig, BrokerSection
from flintmq.core.broker.perm import WRITE
from flintmq.core.broker.sink import MessageSink
from flintmq.core.kernel.ports.processor import Request
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors import pull_message
from flintmq.remoting.processors.pull_message import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageProcessor
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON, decode_command
from flintmq.testing.processor_kit import AnswerRecorder
from flintmq.testing.store import message, open_store

FIELDS = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": str(SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "15000", "subscription": "*",
    "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip


class Peer(AnswerRecorder):
    """A connection that remembers what was written, too."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Any] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def write_all(self, pieces: Any) -> None:
        self.written += pieces


class Pulls:
    """A pull processor over a store."""

    def __init__(self, bench: Any, root: Path) -> None:
        self.state = state = bench.state
        self.store = state.store = open_store(root)
        state.topics.create_in_send_back("T", 4)
        state.sink = MessageSink(state.store, state.stats, state.dispatch)
        self.server = state.server
        self.server.answers_as_bytes = False
        self.processor = PullMessageProcessor(state.api)
        self.peer = Peer()

    def pull(self, opaque: int = 1, **fields: str) -> Request:
        """A request, not processed yet."""
        peer: Any = self.peer
        return Request(peer, int(RequestCode.PULL_MESSAGE), opaque, 0, 407, "JAVA", JSON, FIELDS | fields, b"")

    def process(self, *requests: Request) -> list[Any]:
        """The answers to requests of one read."""

        async def run() -> None:
            self.state.loop = asyncio.get_running_loop()
            self.processor.process(list(requests))

        asyncio.run(run())
        return [answer for _opaque, answer in self.peer.answers]

    def put(self, *bodies: bytes) -> None:
        """Messages in the queue that is pulled."""
        self.state.sink.put([message("T", body=body) for body in bodies])


@pytest.fixture
def pulls(bench: Any, tmp_path: Path) -> Iterator[Pulls]:
    """A processor whose answers can be looked at as objects."""
    made = Pulls(bench, tmp_path / "store")
    yield made
    made.store.close()


def test_a_pull_is_answered_with_messages_from_its_queue_offset(pulls: Pulls) -> None:
    """The answer also has the offset of the next pull and the first and last offset of the queue."""
    pulls.put(b"first", b"second", b"third")
    (answer,) = pulls.process(pulls.pull(queueOffset="1"))
    assert answer.code == 0
    assert answer.ext_fields["nextBeginOffset"] == "3"
    assert (answer.ext_fields["minOffset"], answer.ext_fields["maxOffset"]) == ("0", "3")
    assert b"first" not in bytes(answer.body)
    assert bytes(answer.body).index(b"second") < bytes(answer.body).index(b"third")


def test_lite_pulls_of_rocketmq_5_are_answered_and_held(pulls: Pulls) -> None:
    """They are answered at once, and held, as others are."""
    pulls.put(b"first")
    lite = {"sysFlag": str(SUBSCRIPTION | 16)}
    (answer,) = pulls.process(as_lite(pulls.pull(**lite)))
    assert (answer.code, b"first" in bytes(answer.body)) == (0, True)
    held = as_lite(
        pulls.pull(2, queueOffset="1", suspendTimeoutMillis="1000", sysFlag=str(SUBSCRIPTION | SUSPEND | 16))
    )
    assert len(pulls.process(held)) == 1
    assert len(pulls.state.outlet.held) == 1


def as_lite(request: Request) -> Request:
    """The same request as client 5's lite pull consumer sends it."""
    request.code = int(RequestCode.LITE_PULL_MESSAGE)
    return request


def test_the_fast_encoder_and_the_general_encoder_write_the_same_pull_answer(pulls: Pulls) -> None:
    """The answers of the hot path are written by hand."""
    pulls.put(b"body")
    (answer,) = pulls.process(pulls.pull())
    pulls.server.answers_as_bytes = True
    pulls.process(pulls.pull(opaque=9))
    command = decode_command(b"".join(bytes(piece) for piece in pulls.peer.written)[4:])
    assert (command.code, command.opaque, command.body) == (0, 9, bytes(answer.body))
    assert command.ext_fields == answer.ext_fields


def test_a_pull_without_messages_is_held_until_a_message_arrives(pulls: Pulls) -> None:
    """Once; without the flag it is answered at once."""
    (answer,) = pulls.process(pulls.pull())
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    pulls.peer.answers.clear()
    assert pulls.process(pulls.pull(sysFlag=str(SUBSCRIPTION | SUSPEND))) == []
    pulls.put(b"arrived")
    pulls.state.outlet.held.check()
    ((_opaque, held),) = pulls.peer.answers
    assert (held.code, b"arrived" in bytes(held.body)) == (0, True)


@pytest.mark.parametrize(
    ("queue_offset", "code"),
    [("2", ResponseCode.PULL_NOT_FOUND), ("9", ResponseCode.PULL_OFFSET_MOVED)],
)
def test_a_pull_at_or_beyond_the_end_of_a_queue_returns_the_next_valid_offset(
    pulls: Pulls, queue_offset: str, code: int
) -> None:
    """At the end one waits for more; further on the consumer is sent back, and that leaves a record."""
    pulls.put(b"1", b"2")
    (answer,) = pulls.process(pulls.pull(queueOffset=queue_offset))
    assert answer.code == code
    assert answer.ext_fields["nextBeginOffset"] == "2"


def test_a_pull_commits_its_offset_only_with_the_commit_offset_flag(pulls: Pulls) -> None:
    """Only where its flag says so."""
    pulls.put(b"1")
    pulls.process(pulls.pull(commitOffset="7"))
    assert pulls.state.offsets.query("T", "G", 0) == -1
    pulls.process(pulls.pull(commitOffset="7", sysFlag=str(SUBSCRIPTION | COMMIT_OFFSET)))
    assert pulls.state.offsets.query("T", "G", 0) == 7


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "4"}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": "-1"}, ResponseCode.SYSTEM_ERROR),
        ({"sysFlag": "0"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"subscription": "a ||", "expressionType": "SQL92"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_invalid_pull_is_refused_with_the_response_code_that_clients_expect(
    pulls: Pulls, fields: dict[str, str], code: int
) -> None:
    """Each with the code that clients act on."""
    (answer,) = pulls.process(pulls.pull(**fields))
    assert answer.code == code


def test_a_pull_is_refused_if_the_broker_or_the_topic_or_the_consumer_group_forbids_reading(pulls: Pulls) -> None:
    """An administrator can stop reading at each of these three places."""
    state = pulls.state
    config = state.topics.select("T")
    state.config = attrs.evolve(BrokerConfig(), broker=BrokerSection(permission=WRITE))
    (of_broker,) = pulls.process(pulls.pull())
    state.config = BrokerConfig()
    assert config is not None
    state.topics.put(msgspec.structs.replace(config, perm=WRITE))
    (_, of_topic) = pulls.process(pulls.pull())
    state.groups.put(msgspec.structs.replace(state.groups.select("G"), consume_enable=False))
    (*_, of_group) = pulls.process(pulls.pull())
    assert {answer.code for answer in (of_broker, of_topic, of_group)} == {ResponseCode.NO_PERMISSION}
    assert [word in answer.remark for word, answer in (("broker", of_broker), ("topic", of_topic))] == [True, True]


def test_pull_requests_after_the_first_are_postponed_while_the_event_loop_is_busy(pulls: Pulls) -> None:
    """The first is answered in any case."""
    pulls.put(b"1")
    pulls.server.busy = True
    first, *others = (pulls.pull(opaque=number) for number in range(3))
    assert len(pulls.process(first, *others)) == 1
    assert pulls.server.postponed == others


def test_the_pull_processor_module_has_at_most_150_code_lines_and_imports_only_listed_core_modules() -> None:
    """Whatever decides about a pull is the outlet's, for every protocol; no check and no look into the store is here."""
    source = Path(str(pull_message.__file__)).read_text(encoding="utf-8")
    assert code_lines(source) <= 150
    imported = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("flintmq.core")
    }
    assert imported == {
        "flintmq.core.broker.api",
        "flintmq.core.broker.hold",
        "flintmq.core.broker.outlet",
        "flintmq.core.errors",
        "flintmq.core.kernel.ports.processor",
        "flintmq.core.response_code",
    }
    touched = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self._api"
    }
    assert not touched


def code_lines(source: str) -> int:
    """How many lines are neither blank, nor comments, imports, docstrings and strings below attributes."""
    tree = ast.parse(source)
    other = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in other for number, line in lines
    )
