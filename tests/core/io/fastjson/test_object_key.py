"""Maps of RocketMQ have objects as keys; these must be found by their members."""

from __future__ import annotations

from flintmq.core.io import fastjson
from flintmq.core.io.fastjson import ObjectKey


def test_reads_object_keys_into_something_hashable() -> None:
    body = fastjson.loads('{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}')
    assert body == {"offsetTable": {ObjectKey({"topic": "T", "queueId": 0, "brokerName": "a"}): 5}}
    assert fastjson.dumps(body) == '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}'


def test_members_count_and_not_their_order() -> None:
    """Two texts may name the members of one key in another order, and nest objects and lists in it."""
    one, other = ObjectKey({"a": 1, "b": {"c": [1]}}), ObjectKey({"b": {"c": [1]}, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one != ObjectKey({"a": 2, "b": {"c": [1]}})
    assert one != "a"
    assert (dict(one), len(one)) == ({"a": 1, "b": {"c": [1]}}, 2)
