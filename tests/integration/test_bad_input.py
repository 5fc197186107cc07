"""What a stranger may send to the port: none of it may hurt anybody else.

Each test ends with a healthy client whose message goes in and comes out, and with no exception that nobody foresaw.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from bare_wire import Wire, pull_fields, send_fields, sent, settings

import flintmq
from flintmq.core import limits
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.remoting.wire.codes import RequestCode, ResponseCode
from flintmq.remoting.wire.command import encode_command, request
from flintmq.testing.clock import ManualClock
from flintmq.tests.support.request_headers import REQUEST_HEADERS

MANY = 2_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flintmq.Broker]:
    with flintmq.Broker(settings(tmp_path_factory.mktemp("broker") / "store")) as one:
        yield one


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flintmq.NameServer]:
    with flintmq.NameServer(settings(tmp_path_factory.mktemp("namesrv"))) as one:
        yield one


@pytest.fixture
def broker(running: flintmq.Broker, connect: Any, unexpected: list[str]) -> Iterator[flintmq.Broker]:
    """A broker that must still serve when the test is over."""
    yield running
    assert connect(running).is_served()


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"Topic-{next(_numbers)}"


_numbers = itertools.count()


def frame(header: bytes, body: bytes = b"", *, codec: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), codec << 24 | len(header)) + header + body


def json_frame(text: str, body: bytes = b"") -> bytes:
    return frame(text.encode(), body)


# no frames at all


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"\xff" * 4096,
        bytes(4096),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", limits.FRAME_MAX_BYTES + 1),
        struct.pack(">II", 6, 100) + b"{}",
    ],
)
def test_bytes_that_form_no_frame_close_the_connection(broker: flintmq.Broker, connect: Any, data: bytes) -> None:
    """Scanners, TLS clients and attackers knock at every port."""
    wire = connect(broker)
    wire.socket.sendall(data)
    assert wire.is_closed_by_peer(2.0)


def test_a_broker_answers_valid_requests_after_many_connections_sent_random_bytes(
    broker: flintmq.Broker, unexpected: list[str]
) -> None:
    """Random bytes cover kinds of damage that the other tests do not name."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(200):
        wire = Wire(broker.address)
        wire.socket.sendall(chance.randbytes(chance.randrange(1, 3000)))
        wire.close()


@pytest.mark.parametrize(
    "text",
    [
        '{"code":34,"code":105,"opaque":7}',
        '{"code":"34","opaque":"7","flag":"0","version":"407"}',
        '{"code":34,"opaque":7,"extFields":{"a":1,"b":null,"c":[1],"d":{"e":2}}}',
        '{"code":34,"opaque":7,"extFields":{"a":' + "1" * 5_000 + "}}",
        '{"code":34,"opaque":7,"extFields":{"a":1e999}}',
        '{"code":34,"opaque":7,"language":999,"version":-1}',
        '{"code":34,"opaque":7,"remark":12}',
        '{"code":34,"opaque":7,"language":"KLINGON"}',
    ],
)
def test_each_request_with_a_nonstandard_json_header_is_answered_or_its_connection_is_closed(
    broker: flintmq.Broker, connect: Any, text: str
) -> None:
    """RocketMQ's JSON reader takes more than JSON; whatever ours makes of it, it must not be an accident."""
    wire = connect(broker)
    wire.socket.sendall(json_frame(text, b"{}"))
    wire.socket.settimeout(1.0)
    with contextlib.suppress(EOFError):  # no frame: closed at once
        assert wire.read().opaque == 7


def test_a_broker_ignores_responses_to_requests_that_it_did_not_send(broker: flintmq.Broker, connect: Any) -> None:
    """A confused peer answers; the connection lives on."""
    wire = connect(broker)
    for opaque in (0, 1, -1, 2**31 - 1):
        command = request(RequestCode.PULL_MESSAGE, {}, b"x", opaque=opaque)
        command.flag = 1
        wire.socket.sendall(encode_command(command))
    assert wire.is_served()


def test_requests_with_negative_opaque_numbers_or_unknown_codes_are_answered(
    broker: flintmq.Broker, connect: Any
) -> None:
    """Clients count opaques up to where they wrap; tools of other versions ask for what is not there."""
    wire = connect(broker)
    for code, opaque in ((RequestCode.GET_MAX_OFFSET, -5), (0, 8), (-1, 9), (32_767, 10), (2**31 - 1, 11)):
        wire.socket.sendall(encode_command(request(code, {"topic": "T", "queueId": "0"}, opaque=opaque)))
        answer = wire.read()
        assert answer.opaque == opaque
        assert answer.code == (0 if opaque == -5 else ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    wire.post(32_767, {}, oneway=True)
    assert wire.is_served()


# every code there is

BROKER_CODES = sorted({int(code) for code in RequestCode})


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("fields", ["none", "empty", "junk", "numbers"])
def test_requests_of_every_code_are_answered_although_their_header_fields_are_missing(
    broker: flintmq.Broker, namesrv: flintmq.NameServer, connect: Any, codec: int, fields: str
) -> None:
    """A request that lacks what it needs is refused by its processor, never an accident and never silence."""
    for server in (broker, namesrv):
        wire = connect(server)
        for code in BROKER_CODES:
            for body in (b"", b"{}", b"[]", b"null", b"\xff\x00", b"{0:1,", b'"text"', b'{"a":{"a":{"a":[]}}}'):
                answer = wire.ask(code, _fields(code, fields), body, 1.0, codec=codec)
                assert answer.is_response, code
    assert wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == ResponseCode.TOPIC_NOT_EXIST


def _fields(code: int, kind: str) -> dict[str, str] | None:
    if kind == "none":
        return None
    if kind == "empty":
        return {}
    model = REQUEST_HEADERS.get(code)
    names = [] if model is None else [field.encode_name for field in msgspec.structs.fields(model)]
    return dict.fromkeys(names, "\x00../é" if kind == "junk" else "-9223372036854775808")


HOSTILE_NUMBERS = ("-1", "0", "1", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808")
HOSTILE_TEXTS = (
    "",
    "T",
    "../../../etc/passwd",
    "a" * 128,
    "a" * 30_000,
    "nul\x00",
    "ünïcödé",
    "%RETRY%",
    "*",
    "{}",
    "@",
)


@pytest.mark.parametrize("value", [*HOSTILE_NUMBERS, *HOSTILE_TEXTS], ids=lambda value: repr(value[:20]))
def test_requests_of_every_code_with_extreme_values_of_header_fields_are_answered(
    broker: flintmq.Broker, namesrv: flintmq.NameServer, connect: Any, value: str
) -> None:
    """Extremes in each field alone, the others being reasonable."""
    body = b'{"clientId":"x","consumerGroup":"C"}'
    for server in (broker, namesrv):
        wire = connect(server)
        for code, model in REQUEST_HEADERS.items():
            names = [field.encode_name for field in msgspec.structs.fields(model)]
            good = {name: "T" if "opic" in name or "roup" in name or name in "abc" else "0" for name in names}
            for name in names:
                assert wire.ask(code, good | {name: value}, body, 1.0).is_response, (code, name)


JSON_BOMBS = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"{" * 100_000,
    b"[[" * 5_000 + b"]]" * 5_000,
    b'{"consumerDataSet":[{"groupName":' + b"9" * 5_000 + b"}]}",
    b'{"clientID":' + b"1" * 5_000 + b"}",
    b'{"clientID":NaN,"mqSet":[{"queueId":Infinity}]}',
    b'{"clientID":1e400}',
    b'{"clientID":"a","clientID":"b","clientID":["c"]}',
    b'{"clientID":"\\ud800","consumerDataSet":[{"groupName":"\\udfff"}],"producerDataSet":[{"groupName":"\\ud800"}]}',
    b'{"consumerDataSet":{"$ref":"$"},"producerDataSet":{"$ref":"$.consumerDataSet"}}',
    b'{"consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":{"a":1},"codeSet":["x"],"subVersion":"y"}]}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":null,"subString":null}]}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"queueId":99999999999999999999,"topic":"T"}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[1,null,"x",[]]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"readQueueNums":99999999999999999999}}}}',
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"x"},"topicConfigTable":[]},"filterServerList":[[]]}',
    b"{{{{{{}:1}:1}:1}:1}:1}",
    b"'" * 1000,
    b'{"a":"' + b"\\" * 10_000,
    b"\xef\xbb\xbf{}",
    b"\x00" * 1000,
]

ZIP_BOMB = zlib.compress(bytes(64 * 1024 * 1024))


@pytest.mark.parametrize("number", range(len(JSON_BOMBS)))
def test_json_bombs_in_bodies_are_answered_within_a_second(
    broker: flintmq.Broker, namesrv: flintmq.NameServer, connect: Any, number: int
) -> None:
    """Depth, size and nonsense in every body that is JSON: an answer within a second, whatever it is."""
    body = JSON_BOMBS[number]
    register = {
        "brokerName": "b",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "c",
        "haServerAddr": "",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    for server in (broker, namesrv):
        wire = connect(server)
        for code in (34, 41, 42, 46, 103, 200, 318, 25, 322):
            fields = register if code in (103, 322) else {}
            assert wire.ask(code, fields, body, 1.0).is_response
        for junk in (body, ZIP_BOMB):
            assert wire.ask(103, register | {"compressed": "true"}, junk, 1.0).is_response


# messages


@pytest.mark.parametrize(
    "topic",
    ["../x", "..", "a/b", "t" * 128, "nul\x00byte", "ünïcödé", " ", "", "a b", "SCHEDULE_TOPIC_XXXX", "\x01\x02"],
)
def test_illegal_topic_names_are_refused_and_create_no_file(broker: flintmq.Broker, connect: Any, topic: str) -> None:
    """A topic becomes a folder: names that lead elsewhere are refused by sends and pulls, and make no file."""
    wire = connect(broker)
    before = {path.name for path in (broker.store_path / "consumequeue").glob("*")}
    for answer in (
        sent(wire.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x")),
        sent(wire.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields(topic, batch=True), b"x")),
        sent(wire.ask(RequestCode.SEND_MESSAGE, {}, b"x")),
    ):
        assert answer.code != 0
    assert topic == "SCHEDULE_TOPIC_XXXX" or wire.pull(topic).code != 0
    assert {path.name for path in (broker.store_path / "consumequeue").glob("*")} == before


def test_too_long_bodies_and_properties_are_refused(broker: flintmq.Broker, connect: Any, topic: str) -> None:
    """The largest message is taken, one byte more is refused with a reason."""
    wire = connect(broker)
    limit = 4 * 1024 * 1024
    refused = wire.send(topic, b"x" * (limit + 1))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "store.max_message_bytes" in refused.remark
    refused = wire.send(topic, b"x", properties={"K": "v" * 32_767})
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "message.properties_too_long" in refused.remark
    # This broker's log files are smaller than the largest message: that is told, too.
    refused = wire.send(topic, b"x" * (1024 * 1024))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "commit_log_file_bytes" in refused.remark
    assert wire.send(topic, b"x" * 1_000_000).code == 0


@pytest.mark.parametrize("properties", ["\x01\x02", "\x02" * 1000, "\x01" * 1000, "A\x01", "\x01B", "DELAY\x01x", "DELAY\x01-1",
                                        "DELAY\x01" + "9" * 5_000, "WAIT\x01", "TAGS\x01\ud83d", "KEYS\x01 " + " " * 1000,
                                        "REAL_TOPIC\x01../x\x02REAL_QID\x01-1\x02DELAY\x011", "TRAN_MSG\x01true"])  # fmt: skip
def test_unusual_message_properties_are_stored_or_refused_and_never_stop_the_dispatch(
    broker: flintmq.Broker, connect: Any, properties: str, topic: str
) -> None:
    """Properties are free text: whatever is stored must be handed out again, and never stop the dispatch."""
    wire = connect(broker)
    text = properties.encode("utf-8", "replace").decode()
    result = wire.send(topic, b"odd", properties=text)
    if result.code == 0:
        assert wire.send(topic, b"after").code == 0
        assert wire.pull_all(topic)[-1].body == b"after"
    else:
        is_no_level = "[delay.malformed" in result.remark and result.code == ResponseCode.SYSTEM_ERROR
        assert is_no_level or result.code in (ResponseCode.NO_PERMISSION, ResponseCode.MESSAGE_ILLEGAL)


def test_sends_of_malformed_message_batches_are_answered(broker: flintmq.Broker, connect: Any, topic: str) -> None:
    """Lengths inside a batch's body are a stranger's: cut, stretched and flipped at every place."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    good = encode_batch([BatchItem(0, b"body-%d" % number, b"K\x01v") for number in range(3)])
    wire = connect(broker)
    bodies = [good[:length] for length in range(len(good))]
    for at in range(0, len(good)):
        bodies.append(good[:at] + bytes([chance.randrange(256)]) + good[at + 1 :])
        bodies.append(good[:at] + struct.pack(">i", chance.choice((-1, 2**31 - 1, -(2**31), 0))) + good[at + 4 :])
    bodies += [good + b"\0" * extra for extra in range(1, 30)]
    bodies.append(encode_batch([BatchItem(0, b"", b"")] * (limits.BATCH_MAX_MESSAGES + 1)))
    taken = 0
    opaques = [wire.post(RequestCode.SEND_BATCH_MESSAGE, send_fields(topic, batch=True), body) for body in bodies]
    for opaque in opaques:
        answer = wire.answer(opaque)
        assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL)
        taken += answer.code == 0
    assert wire.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields(topic, batch=True), good).code == 0
    assert len(wire.pull_all(topic)) >= 3
    assert taken < len(bodies) // 2


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 2**31])
@pytest.mark.parametrize("max_nums", [2**31 - 1, -1, 0, -(2**31)])
def test_pulls_with_extreme_offsets_and_counts_are_answered(
    broker: flintmq.Broker, connect: Any, offset: int, max_nums: int, topic: str
) -> None:
    """Offsets and counts of a pull are a stranger's."""
    wire = connect(broker)
    assert wire.pull(topic, offset, maxMsgNums=max_nums).code != 0
    for _ in range(50):
        assert wire.send(topic, b"x" * 100).code == 0
    assert wire.pull(topic, offset, maxMsgNums=max_nums).code == ResponseCode.PULL_OFFSET_MOVED
    found = wire.pull(topic, 0, maxMsgNums=max_nums)
    assert found.code == 0
    assert 1 <= len(found.records) <= 32
    for queue_id in (-1, 2**31 - 1, 4):
        assert wire.pull(topic, 0, queue_id=queue_id).code == ResponseCode.SYSTEM_ERROR
    assert wire.pull(topic, 50, _suspend_ms=1, suspendTimeoutMillis=-(2**63)).code == ResponseCode.PULL_NOT_FOUND


# connections


def test_silent_and_slow_connections_are_closed(configure: Any, connect: Any, unexpected: list[str]) -> None:
    """Three ways to hold a descriptor for nothing; the sweep ends them, and only them."""
    clock = ManualClock()
    with flintmq.Broker(configure("listen.idle_timeout_ms=120000"), clock=clock) as broker:

        async def sweep() -> None:
            broker.server.connections.sweep(clock.monotonic_s())

        def pass_time(seconds: float) -> None:
            clock.advance_ms(int(seconds * 1000))
            broker.call(sweep)

        silent, half, loris, idle, healthy = (connect(broker) for _ in range(5))
        whole = encode_command(request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=1))
        assert idle.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).code == 0
        assert healthy.is_served()
        half.socket.sendall(whole + whole[: len(whole) // 2])
        assert half.read().code == 0
        loris.socket.sendall(whole)
        assert loris.read().code == 0
        for number in range(7):
            loris.socket.sendall(whole[number : number + 1])
            assert healthy.is_served()
            pass_time(10)
        assert is_open(broker, silent), "as long as any other that is idle"
        assert half.is_closed_by_peer(0.5)
        assert loris.is_closed_by_peer(0.5)
        assert healthy.is_served()
        pass_time(60)
        assert idle.is_closed_by_peer(0.5)
        assert silent.is_closed_by_peer(0.5)
        assert healthy.is_served()


def is_open(broker: flintmq.Broker, wire: Wire) -> bool:
    """Whether the server still holds a connection."""
    port = wire.socket.getsockname()[1]
    return any(channel.remote_port == port and channel.is_open for channel in list(broker.server.connections.channels))


def test_a_connection_stays_open_if_each_read_completes_one_frame_and_starts_another_frame(
    configure: Any, connect: Any
) -> None:
    """A producer whose every read ends within a frame is the healthiest of all, however long it goes on."""
    clock = ManualClock()
    with flintmq.Broker(configure(), clock=clock) as broker:

        async def sweep() -> None:
            broker.server.connections.sweep(clock.monotonic_s())

        wire = connect(broker)
        whole = encode_command(request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=1))
        wire.socket.sendall(whole[:9])
        for _ in range(20):
            wire.socket.sendall(whole[9:] + whole[:9])
            assert wire.read().code == 0
            clock.advance_ms(10_000)
            broker.call(sweep)
        wire.socket.sendall(whole[9:])
        assert wire.read().code == 0


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_connection_of_a_peer_that_does_not_read_pulled_messages_is_closed(
    broker: flintmq.Broker, connect: Any, topic: str
) -> None:
    """Pulls are small and their answers large: what waits for such a peer is bounded, then it is cut off."""
    healthy = connect(broker)
    for _ in range(64):
        assert healthy.send(topic, b"x" * 8_000).code == 0
    greedy = Wire(broker.address, receive_buffer_bytes=4096)
    pull = encode_command(request(RequestCode.PULL_MESSAGE, pull_fields(topic), opaque=1))
    before = resident_bytes()
    peak = 0
    greedy.socket.settimeout(0.2)
    try:
        for _ in range(400):
            greedy.socket.sendall(pull * 50)
            peak = max(peak, resident_bytes() - before)
    except (TimeoutError, ConnectionError):
        pass  # not read from any more, or cut off
    assert healthy.is_served()
    peak = max(peak, resident_bytes() - before)
    assert peak < 2 * limits.SEND_BUFFER_MAX_BYTES + 32 * 1024 * 1024, peak
    greedy.close()


def test_a_broker_stops_reading_sends_from_a_peer_that_does_not_read_answers(
    broker: flintmq.Broker, connect: Any
) -> None:
    """Its sends stop being read once too many answers wait; the broker keeps serving others."""
    greedy = Wire(broker.address, receive_buffer_bytes=4096)
    send = encode_command(request(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x", opaque=1))
    greedy.socket.settimeout(0.3)

    def flood() -> None:
        for _ in range(10_000):
            greedy.socket.sendall(send * 100)

    with pytest.raises(TimeoutError):
        flood()
    healthy = connect(broker)
    assert healthy.is_served()

    async def buffered() -> int:
        return max(channel._transport.get_write_buffer_size() for channel in broker.server.connections.channels)

    assert broker.call(buffered) < limits.SEND_BUFFER_MAX_BYTES
    greedy.close()


def test_the_stop_of_a_broker_does_not_wait_for_a_peer_that_does_not_read_answers(configure: Any, connect: Any) -> None:
    """Otherwise anybody could keep a broker from stopping."""
    with flintmq.Broker(configure("broker.shutdown_timeout_ms=100")) as broker:
        greedy = Wire(broker.address, receive_buffer_bytes=4096)
        for _ in range(32):
            assert connect(broker).send("T", b"x" * 30_000).code == 0
        pull = encode_command(request(RequestCode.PULL_MESSAGE, pull_fields("T"), opaque=1))
        greedy.socket.sendall(pull * 40)
        assert connect(broker).is_served()
        started_s = time.monotonic()
    assert time.monotonic() - started_s < 20
    greedy.close()


def test_a_broker_with_thousands_of_idle_connections_answers_requests(broker: flintmq.Broker, connect: Any) -> None:
    """Consumers mostly wait: a broker holds many of them and still answers at once."""
    idle = []
    try:
        for _ in range(MANY):
            one = socket.socket()
            idle.append(one)
            one.connect(("127.0.0.1", broker.port))
        started_s = time.monotonic()
        assert connect(broker).is_served()
        assert time.monotonic() - started_s < 10
        assert len(broker.server.connections.channels) >= MANY
    finally:
        for one in idle:
            one.close()


def test_connections_above_max_connections_are_closed(configure: Any, connect: Any) -> None:
    """Beyond the limit new ones are closed at once; those there are, and their places later, are not touched."""
    with flintmq.Broker(configure("listen.max_connections=3")) as broker:
        first = [connect(broker) for _ in range(3)]
        assert all(wire.is_served() for wire in first)
        assert connect(broker).is_closed_by_peer()
        assert all(wire.is_served() for wire in first)
        first[0].close()
        deadline_s = time.monotonic() + 5
        while len(broker.server.connections.channels) > 2 and time.monotonic() < deadline_s:
            first[1].is_served()
        assert connect(broker).is_served()
