"""Groups of 121 to 255 characters consume; tools must be able to look at them, and to remove them, as they can with others."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from bare_wire import Wire

from flintmq.plugins.registration.registration import Registration
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.testing.embedded import EmbeddedBroker

TOPIC = "Orders"


def heartbeat(wire: Wire, group: str) -> int:
    retry = f"%RETRY%{group}"
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": one, "subString": "*", "subVersion": 1} for one in (TOPIC, retry)],
    }
    body = json.dumps({"clientID": "one", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    return wire.ask(Code.HEART_BEAT, body=body).code


@pytest.mark.parametrize("length", [120, 121, 200, 255])
def test_admin_requests_about_a_consumer_group_with_a_very_long_name_are_accepted(length: int) -> None:
    """mqadmin and the console begin with the route of the group's retry topic, and end with deleting it."""
    group = "g" * length
    retry = f"%RETRY%{group}"
    with EmbeddedBroker() as broker, closing(Wire(broker.address)) as wire:
        broker.create_topic(TOPIC, 1)
        assert heartbeat(wire, group) == 0
        assert wire.send(TOPIC, b"x").code == 0

        async def known() -> None:
            await broker.broker.state.service(Registration).register_all()

        broker.broker.call(known)
        with closing(Wire(broker.name_server_address)) as names:
            assert names.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": retry}).code == 0
        commit = {"consumerGroup": group, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
        assert wire.ask(Code.UPDATE_CONSUMER_OFFSET, commit).code == 0
        assert wire.ask(Code.UPDATE_CONSUMER_OFFSET, commit | {"topic": retry, "commitOffset": 0}).code == 0
        for code, fields in (
            (Code.GET_CONSUME_STATS, {"consumerGroup": group}),
            (Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}),
            (Code.GET_TOPIC_STATS_INFO, {"topic": retry}),
            (Code.QUERY_CONSUME_TIME_SPAN, {"topic": retry, "group": group}),
            (Code.CLONE_GROUP_OFFSET, {"srcGroup": group, "destGroup": "h", "topic": TOPIC, "offline": "true"}),
            (Code.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": TOPIC, "group": group, "timestamp": -1, "isForce": "true"}),
            (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": group, "removeOffset": "true"}),
            (Code.DELETE_TOPIC_IN_BROKER, {"topic": retry}),
        ):
            answer = wire.ask(code, fields)
            assert answer.code == 0, (code.name, answer.remark)
        assert retry not in broker.broker.state.topics
        refused = wire.send(retry, b"too long for a record") if length > 120 else None
        assert refused is None or (refused.code, "[topic.too_long" in refused.remark) == (1, True)


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_the_name_server_lists_topics_of_unit_mode(kind: str) -> None:
    """311 lists those of producers, 312 those of consumers' retries, 313 the latter without the former."""
    with EmbeddedBroker() as broker, closing(Wire(broker.address)) as wire:
        if kind == "producer":
            assert wire.send("UnitTopic", b"x", k="true").code == 0
            assert wire.send("PlainTopic", b"x").code == 0
        else:
            assert wire.send("%RETRY%units", b"x", k="true").code == 0

        async def known() -> None:
            await broker.broker.state.service(Registration).register_all()

        broker.broker.call(known)
        found = {}
        with closing(Wire(broker.name_server_address)) as names:
            for code in (
                Code.GET_UNIT_TOPIC_LIST,
                Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
                Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            ):
                answer = names.ask(code)
                assert answer.code == 0, answer.remark
                found[int(code)] = json.loads(answer.body)["topicList"]
        if kind == "producer":
            assert found == {311: ["UnitTopic"], 312: [], 313: []}
        else:
            assert found == {311: [], 312: ["%RETRY%units"], 313: ["%RETRY%units"]}
