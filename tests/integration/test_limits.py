"""Each limit of ``core/limits.py`` that a client can meet, met: what is refused, what goes on, and what is given back."""

from __future__ import annotations

import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bare_wire import Wire, pull_fields, pulled, send_fields, settings

import flintmq
from flintmq.config import BrokerConfig
from flintmq.core import limits
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.store import message_reader
from flintmq.dispatchers.index import index_file
from flintmq.remoting.wire.bodies import RegisterBrokerBody
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import encode_command, request
from flintmq.remoting.wire.headers_route import encode_register_broker_body


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flintmq.Broker]:
    folder = tmp_path_factory.mktemp("limits") / "store"
    with flintmq.Broker(settings(folder, "pull.property_filter=true", "listen.max_connections_per_address=40")) as one:
        yield one


def until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True


def is_cut(peer: socket.socket) -> bool:
    """Whether the server has ended a connection."""
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


def heartbeat(client_id: str = "c", consumers: list[Any] | None = None, producers: list[str] | None = None) -> bytes:
    return json.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": consumers or [],
            "producerDataSet": [{"groupName": name} for name in producers or []],
        }
    ).encode()


def test_the_default_limits_for_connections_and_buffers_and_frames_equal_constants_in_the_code() -> None:
    """The limit tells the reason, the setting's default is its number."""
    listen = BrokerConfig().listen
    assert listen.max_connections_per_address == limits.CONNECTIONS_PER_ADDRESS_MAX < listen.max_connections
    assert listen.max_buffered_bytes == limits.BUFFERED_MAX_BYTES
    assert listen.max_frame_bytes == limits.FRAME_MAX_BYTES


@pytest.mark.parametrize("codec", [0, 1])
def test_headers_with_too_many_fields_are_refused(broker: flintmq.Broker, connect: Any, codec: int) -> None:
    """A header with exactly the limit of fields is accepted, and a header with another field is refused."""
    fields = {f"f{number}": "" for number in range(limits.HEADER_FIELDS_MAX - 2)} | {"topic": "T", "queueId": "0"}
    assert connect(broker).ask(Code.GET_MIN_OFFSET, fields, codec=codec).code == 0
    wire = connect(broker)
    answer = wire.ask(Code.GET_TOPIC_STATS_INFO, fields | {"more": ""}, codec=codec)
    assert "header.too_many_fields" in (answer.remark or "")
    assert wire.is_served()


def test_the_number_of_connections_from_one_client_address_is_bounded(broker: flintmq.Broker, connect: Any) -> None:
    """Its further ones are closed, another address comes in, and places that became free are given again."""
    made = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(40)]
    try:
        assert until(lambda: len(broker.server.connections.channels) >= 40)
        assert connect(broker).is_closed_by_peer()
        other = socket.create_connection(("127.0.0.1", broker.port), source_address=("127.0.0.2", 0), timeout=5)
        made.append(other)
        other.sendall(encode_command(request(Code.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})))
        assert other.recv(1000)
    finally:
        for one in made:
            one.close()
    assert until(lambda: not broker.server.connections.channels)
    assert not broker.server.connections.of_address
    assert connect(broker).is_served()


def test_the_sum_of_buffered_bytes_of_all_connections_is_bounded(configure: Any, connect: Any) -> None:
    """Each half frame is within its own limit; together they are not, and whoever holds most goes."""
    with flintmq.Broker(configure("listen.max_buffered_bytes=64MiB")) as broker:
        halves: list[socket.socket] = []
        for size_mib in (12, 15, 13, 12):
            one = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
            halves.append(one)
            one.sendall(struct.pack(">i", limits.FRAME_MAX_BYTES) + bytes(size_mib * 1024 * 1024))
        assert until(lambda: broker.server.connections.buffered_bytes > 51 * 1024 * 1024)
        assert len(broker.server.connections.channels) == 4
        more = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        halves.append(more)
        more.sendall(struct.pack(">i", limits.FRAME_MAX_BYTES) + bytes(14 * 1024 * 1024))
        assert until(lambda: len(broker.server.connections.channels) == 4)
        assert is_cut(halves[1])
        assert connect(broker).is_served()
        for one in halves:
            one.close()
        assert until(lambda: broker.server.connections.buffered_bytes == 0)


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (heartbeat(producers=["g" * 256]), "longer than 255"),
        (heartbeat("c" * 1_025, producers=["P"]), "client id"),
        (heartbeat(producers=[f"g{number}" for number in range(4_097)]), "too many producer groups"),
        (heartbeat(producers=["p"] * 17_000), "objects"),
        (heartbeat("x" * 1_100_000), "at most 1048576"),
        (b"{clientID:'" + b"x" * 40_000 + b"'}", "not standard JSON"),
        (b'{"clientID":"c","a":[' + b"1," * 8_000 + b'1],"b":[' + b'{"$ref":"$.a"},' * 900 + b"1]}", "references expand to"),
        (heartbeat(consumers=[{"groupName": "G", "subscriptionDataSet": [{"topic": "T"}] * 10_001}]), "10000 topics"),
    ],
    ids=range(8),
)  # fmt: skip
def test_oversized_heartbeats_are_refused(broker: flintmq.Broker, connect: Any, body: bytes, remark: str) -> None:
    """The broker keeps the data of a heartbeat in memory, and must forget it when the client leaves."""
    wire = connect(broker)
    answer = wire.ask(Code.HEART_BEAT, {}, body)
    assert answer.code == 1
    assert remark in (answer.remark or "")
    wire.close()
    assert until(lambda: not len(broker.state.producers) and not len(broker.state.consumers))


def test_a_large_heartbeat_within_the_limits_is_accepted(broker: flintmq.Broker, connect: Any) -> None:
    """A thousand subscriptions in a hundred groups."""
    tags = {"subString": "A || B", "tagsSet": ["A", "B"], "codeSet": [65, 66]}
    wanted = [{"topic": f"Topic-{number}", **tags} for number in range(10)]
    consumers = [{"groupName": f"group-{number}", "subscriptionDataSet": wanted} for number in range(100)]
    wire = connect(broker)
    assert wire.ask(Code.HEART_BEAT, {}, heartbeat("a", consumers, ["P"])).code == 0
    assert wire.is_served()


def test_broker_registrations_that_decompress_to_too_many_topics_or_bytes_are_refused(
    connect: Any, configure: Any
) -> None:
    """A few kilobytes that unpack to millions of topics, or to more than a frame, are refused before they are made."""
    fields = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0",
              "compressed": "true", "bodyCrc32": "0"}  # fmt: skip

    def sized(part: bytes) -> bytes:
        return struct.pack(">i", len(part)) + part

    line = sized(b"T 1 1 6 S")
    many = zlib.compress(sized(b"{}") + struct.pack(">i", 1_000_000) + line * 1_000_000 + sized(b"[]"))
    with flintmq.NameServer(configure()) as names:
        wire = connect(names)
        for body in (many, zlib.compress(bytes(64 * 1024 * 1024))):
            assert len(body) < 100_000
            begin_s = time.process_time()
            answer = wire.ask(Code.REGISTER_BROKER, fields, body)
            assert answer.code == 1
            assert time.process_time() - begin_s < 1.0
        assert "topics are registered" in (wire.ask(Code.REGISTER_BROKER, fields, many).remark or "")
        plain = encode_register_broker_body(RegisterBrokerBody(), compressed=True)
        assert wire.ask(Code.REGISTER_BROKER, fields, plain).code == 0


def test_a_slow_filtered_pull_is_answered_early_with_the_offset_at_which_the_next_pull_continues(
    broker: flintmq.Broker, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Properties and expression are strangers': a pull that takes long is answered with how far it came, and the next one
    goes on there, so that every match is found in the end."""
    wire = connect(broker)
    for number in range(60):
        assert wire.send("Sparse", b"%d" % number, properties={"n": str(number)}).code == 0
    monkeypatch.setattr(message_reader, "_READ_S", -1.0)
    offset, pulls, found = 0, 0, []
    while offset < 60:
        fields = pull_fields("Sparse", 0, offset, subscription="n > 50", expressionType="SQL92")
        answer = pulled(wire.ask(Code.PULL_MESSAGE, fields))
        assert answer.next_offset > offset
        offset, pulls = answer.next_offset, pulls + 1
        found += answer.bodies
    assert pulls > 5
    assert found == [b"%d" % number for number in range(51, 60)]


def test_a_query_by_key_that_reads_index_entries_in_many_steps_returns_every_message(
    broker: flintmq.Broker, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that every message has: whoever asks for an old one keeps nobody waiting, and is still answered."""
    monkeypatch.setattr(index_file, "STEP_ENTRIES", 2)
    wire = connect(broker)
    for number in range(40):
        assert wire.send("Keyed", b"%d" % number, properties={"KEYS": "same"}).code == 0
    fields = {"topic": "Keyed", "key": "same", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    answer = wire.ask(Code.QUERY_MESSAGE, fields)
    assert answer.code == 0
    assert answer.body.count(b"same") == 40


def test_a_client_that_exceeds_no_limit_is_answered(broker: flintmq.Broker) -> None:
    """A client within every limit is served."""
    wire = Wire(broker.address)
    assert wire.is_served()
    wire.close()


def test_a_batch_with_the_maximum_number_of_messages_is_answered(broker: flintmq.Broker) -> None:
    """Its answer names every message, in a header longer than any other: our own clients read it."""

    items = [BatchItem(0, b"", b"")] * limits.BATCH_MAX_MESSAGES
    wire = Wire(broker.address)
    answer = wire.ask(Code.SEND_BATCH_MESSAGE, send_fields("Large", batch=True), encode_batch(items), 30)
    wire.close()
    assert answer.code == 0
    ids = (answer.ext_fields or {})["msgId"].split(",")
    assert len(set(ids)) == limits.BATCH_MAX_MESSAGES
    assert len(",".join(ids)) > 64 * 1024


def test_a_request_header_longer_than_the_limit_is_refused(broker: flintmq.Broker, connect: Any) -> None:
    """A request is a stranger's: what would keep the loop for long is not read, and its connection goes on."""
    fields = {"topic": "T", "queueId": "0", "x": "y" * limits.HEADER_MAX_BYTES}
    wire = connect(broker)
    answer = wire.ask(Code.GET_MIN_OFFSET, fields)
    assert answer.code == 13
    assert "header.too_long; measured" in (answer.remark or "")
    assert wire.is_served()


def test_oversized_config_updates_are_refused(broker: flintmq.Broker, connect: Any) -> None:
    """A change of settings is parsed in Python, line by line: as long as all of them, and no longer."""
    wire = connect(broker)
    answer = wire.ask(Code.UPDATE_BROKER_CONFIG, {}, b"traceOn=true\n" * 3_000)
    assert answer.code == 1
    assert "config.too_long" in (answer.remark or "")
    assert wire.ask(Code.UPDATE_BROKER_CONFIG, {}, b"traceOn=true\n" * 100).code == 0
