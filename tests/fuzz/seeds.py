"""What is bent: a request of every code as a client would send it, and the golden frames where they are at hand."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Final

import attrs
import msgspec

import flintmq
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON, ROCKETMQ, encode_command, request, split_frame
from flintmq.tests.support.request_headers import REQUEST_HEADERS

_SUBSCRIPTION: Final = {
    "classFilterMode": False,
    "codeSet": [65],
    "expressionType": "SQL92",
    "subString": "a > 1 AND b IN ('x', 'y') OR c BETWEEN 1 AND 9",
    "subVersion": 1700000000000,
    "tagsSet": ["A"],
    "topic": "T",
}
_QUEUE: Final = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
_REGISTRATION: Final = {
    "filterServerList": [],
    "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 3, "timestamp": 1700000000000},
        "topicConfigTable": {
            "T": {"order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": "T",
                  "topicSysFlag": 0, "writeQueueNums": 4}
        },
    },
}  # fmt: skip
_BATCH: Final = encode_batch(
    BatchItem(0, b"body-%d" % number, b"KEYS\x01k%d\x02TAGS\x01A" % number) for number in range(3)
)
BODIES: Final[dict[int, bytes]] = {
    int(code): body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    for code, body in {
        RequestCode.SEND_MESSAGE: b"hello",
        RequestCode.SEND_MESSAGE_V2: b"hello",
        RequestCode.SEND_BATCH_MESSAGE: _BATCH,
        RequestCode.SEND_REPLY_MESSAGE: b"reply",
        RequestCode.SEND_REPLY_MESSAGE_V2: b"reply",
        RequestCode.HEART_BEAT: {
            "clientID": "10.0.0.1@1#1",
            "consumerDataSet": [
                {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": "G",
                 "messageModel": "CLUSTERING", "subscriptionDataSet": [_SUBSCRIPTION], "unitMode": False}
            ],
            "producerDataSet": [{"groupName": "P"}],
        },
        RequestCode.LOCK_BATCH_MQ: {"clientId": "c", "consumerGroup": "G", "mqSet": [_QUEUE]},
        RequestCode.UNLOCK_BATCH_MQ: {"clientId": "c", "consumerGroup": "G", "mqSet": [_QUEUE]},
        RequestCode.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": "G", "subscriptionData": _SUBSCRIPTION},
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {
            "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
            "groupName": "G", "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1,
            "whichBrokerWhenConsumeSlowly": 1,
        },
        RequestCode.REGISTER_BROKER: _REGISTRATION,
        RequestCode.QUERY_DATA_VERSION: {"counter": 3, "timestamp": 1700000000000},
        RequestCode.UPDATE_BROKER_CONFIG: b"traceOn=true\nmaxMessageSize=4194304\n",
        RequestCode.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true\n",
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:7}}',
    }.items()
}  # fmt: skip
_TEXTS: Final = {
    "topic": "T", "b": "T", "producerGroup": "P", "a": "P", "consumerGroup": "G", "group": "G", "groupName": "G",
    "defaultTopic": "TBW102", "c": "TBW102", "properties": properties_to_string({"KEYS": "k", "TAGS": "A", "DELAY": "1"}),
    "i": properties_to_string({"KEYS": "k1 k2", "UNIQ_KEY": "7F0000010001000000000001", "WAIT": "true"}),
    "topicFilterType": "SINGLE_TAG", "subscription": "a > 1 OR b IS NULL", "expressionType": "SQL92", "key": "k",
    "brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911", "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "namespace": "ORDER_TOPIC_CONFIG", "value": "broker-a:4", "clientID": "10.0.0.1@1#1", "clientId": "10.0.0.1@1#1",
    "msgId": "7F00000100002A9F0000000000000000", "originMsgId": "7F00000100002A9F0000000000000000", "originTopic": "T",
    "statsName": "TOPIC_PUT_NUMS", "statsKey": "T", "srcGroup": "G", "destGroup": "H", "compareGroup": "G", "perm": "6",
    "accessKey": "somebody-key", "secretKey": "a secret", "topicPerms": "T=PUB,U=SUB", "globalWhiteAddrs": "10.0.0.*,1.2.3.4",
    "bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:2", "cluster": "DefaultCluster", "maxMsgNums": "32", "sysFlag": "4",
    "readQueueNums": "4", "writeQueueNums": "4", "d": "4", "brokerId": "0", "endTimestamp": "9000000000000",
}  # fmt: skip
"""What fields usually hold; the others hold 0."""


@attrs.frozen
class Seed:
    """A request, taken apart."""

    codec: int
    header: bytes
    body: bytes
    values: tuple[tuple[int, int], ...]
    """Where in the header values lie that may be replaced; none in a binary header."""


def seeds() -> list[Seed]:
    """A request of every code in both codecs, and what real clients and brokers sent."""
    return [seed_of(frame) for frame in (*_made(), *_golden())]


def _made() -> list[bytes]:
    found = []
    for code in RequestCode:
        model = REQUEST_HEADERS.get(code)
        names = [] if model is None else [field.encode_name for field in msgspec.structs.fields(model)]
        fields = {name: _TEXTS.get(name, "0") for name in names}
        body = BODIES.get(code, b"")
        found += [
            encode_command(request(code, fields, body, codec=codec, language="JAVA", version=407))[4:]
            for codec in (JSON, ROCKETMQ)
        ]
        if code == RequestCode.REGISTER_BROKER:
            found.append(encode_command(request(code, fields | {"compressed": "true"}, _packed_registration()))[4:])
    return found


def _packed_registration() -> bytes:
    def sized(part: bytes) -> bytes:
        return len(part).to_bytes(4, "big") + part

    parts = (sized(b'{"counter":3,"timestamp":1}'), b"\0\0\0\1", sized(b"T 4 4 6 SINGLE_TAG"), sized(b"[]"))
    return zlib.compress(b"".join(parts))


def golden_frames() -> list[dict[str, str]]:
    """The recorded exchanges; none where the golden data is not beside the checkout."""
    root = Path(os.environ.get("FLINTMQ_SHARED", str(Path(str(flintmq.__file__)).parent.parent / "shared")))
    path = root / "golden" / "frames" / "frames.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def _golden() -> list[bytes]:
    frames = (bytes.fromhex(entry["request_hex"])[4:] for entry in golden_frames())
    return [frame for frame in frames if len(frame) < 8_192]


def seed_of(frame: bytes) -> Seed:
    """Takes a frame (what follows its length) apart."""
    codec, header, body = split_frame(frame)
    return Seed(codec, header, body, _values(header) if codec == JSON else ())


def _values(header: bytes) -> tuple[tuple[int, int], ...]:
    """Where the values in a JSON header lie: what stands between a colon and the next comma or brace outside of quotes."""
    found: list[tuple[int, int]] = []
    at, start, quoted = 0, -1, False
    while at < len(header):
        byte = header[at : at + 1]
        if quoted:
            at += byte == b"\\"
            quoted = byte != b'"'
        elif byte == b'"':
            quoted = True
        elif byte == b":":
            start = at + 1
        elif byte in b",}" and start >= 0:
            found.append((start, at))
            start = -1
        elif byte == b"{":
            start = -1
        at += 1
    return tuple(found)
