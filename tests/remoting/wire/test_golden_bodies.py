"""Every JSON body that RocketMQ wrote is read by the typed reader of its code, and nothing of it is lost."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.core.broker.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from flintmq.core.broker.topic_config import TopicConfigSerializeWrapper
from flintmq.core.io import fastjson
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.route.route_data import ClusterInfo, TopicRouteData
from flintmq.remoting.client.admin_messages import DelayOffsets
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.json_body import decode_body, dumps

READERS: dict[tuple[int, str], type[Any]] = {
    (21, "response"): TopicConfigSerializeWrapper,
    (28, "response"): bodies.KVTable,
    (34, "request"): bodies.HeartbeatData,
    (38, "response"): bodies.ConsumerIdList,
    (41, "request"): bodies.LockBatchRequestBody,
    (41, "response"): bodies.LockBatchResponseBody,
    (42, "request"): bodies.UnlockBatchRequestBody,
    (45, "response"): DelayOffsets,
    (46, "request"): bodies.CheckClientRequestBody,
    (103, "request"): bodies.RegisterBrokerBody,
    (103, "response"): bodies.KVTable,
    (105, "response"): TopicRouteData,
    (106, "response"): ClusterInfo,
    (200, "request"): SubscriptionGroupConfig,
    (201, "response"): SubscriptionGroupWrapper,
    (202, "response"): bodies.TopicStatsTable,
    (203, "response"): bodies.ConsumerConnection,
    (206, "response"): bodies.TopicList,
    (208, "response"): bodies.ConsumeStats,
    (219, "response"): bodies.KVTable,
    (220, "request"): bodies.ResetOffsetBody,
    (221, "response"): bodies.GetConsumerStatusBody,
    (222, "response"): bodies.ResetOffsetBody,
    (223, "response"): bodies.GetConsumerStatusBody,
    (224, "response"): bodies.TopicList,
    (300, "response"): bodies.GroupList,
    (304, "response"): bodies.TopicList,
    (305, "response"): bodies.TopicList,
    (308, "response"): bodies.CorrectionOffsets,
    (311, "response"): bodies.TopicList,
    (312, "response"): bodies.TopicList,
    (313, "response"): bodies.TopicList,
    (315, "response"): bodies.BrokerStatsData,
    (317, "response"): bodies.ConsumeStatsList,
    (322, "request"): DataVersion,
    (322, "response"): DataVersion,
    (328, "response"): bodies.ProducerTableInfo,
}
NOBODY_READS = {(43, "response"), (204, "response"), (303, "response")}
"""What only the tests of the broker's own answers and of replication look at."""


def json_bodies(frames: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, str], bytes]]:
    """Yield the code and side of each frame with a JSON body, and the body."""
    for frame in frames:
        for side in ("request", "response"):
            data = bytes.fromhex(frame.get(f"{side}_hex") or "")
            if data:
                body = data[8 + (struct.unpack(">I", data[4:8])[0] & 0xFFFFFF) :]
                if body[:1] in (b"{", b"["):
                    yield (frame["code"], side), body


def plain(value: Any) -> Any:
    """Return a JSON value for a comparison: texts as keys, no nulls, no empty members, lists in order."""
    if isinstance(value, dict):
        made = {str(key): plain(member) for key, member in value.items()}
        return {key: member for key, member in made.items() if member not in (None, [], {}, "")}
    if isinstance(value, list):
        return sorted((plain(item) for item in value), key=repr)
    return value


def test_every_json_body_recorded_from_rocketmq_is_decoded_without_loss(golden_frames: list[dict[str, Any]]) -> None:
    """A code that is new among the golden frames needs an entry."""
    read = set()
    for which, body in json_bodies(golden_frames):
        read.add(which)
        if which in NOBODY_READS:
            continue
        model = READERS[which]
        found = model.decode(body) if hasattr(model, "decode") else decode_body(body, model)
        again = plain(fastjson.loads(dumps(found)))
        told = plain(fastjson.loads(body))
        assert again | told == again, which  # what is written again has all that was told
    assert read == READERS.keys() | NOBODY_READS


@pytest.mark.parametrize(
    ("model", "body", "field", "wanted"),
    [
        (DelayOffsets, b'{"offsetTable":{1:5,18:7}}', "offset_table", {1: 5, 18: 7}),
        (DelayOffsets, b'{"offsetTable":{"1":5}}', "offset_table", {1: 5}),
        (bodies.CorrectionOffsets, b'{"correctionOffsets":{"0":1}}', "correction_offsets", {0: 1}),
        (
            bodies.KVTable,
            b'{"table":{1:"a",-2:"b",1.5:"c",true:"d"}}',
            "table",
            {"1": "a", "-2": "b", "1.5": "c", "true": "d"},
        ),
        (bodies.ProducerTableInfo, b'{"data":{12:[]}}', "data", {"12": []}),
        (bodies.ConsumeStatsList, b'{"consumeStatsList":[{7:[]}]}', "consume_stats_list", [{"7": []}]),
    ],
)
def test_unquoted_numeric_json_keys_are_decoded(model: type[Any], body: bytes, field: str, wanted: object) -> None:
    """fastjson writes a key that is a number without quotes, whatever the reader declares; a group may be named 12."""
    assert getattr(model.decode(body), field) == wanted
