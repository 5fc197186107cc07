"""Clients know a broker from name servers alone: each change that concerns them must get there, and stay there.

Everything here is done over the wire, and looked at through the name server, as a producer does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from bare_wire import Sent, Wire, send_fields, sent
from replicas import eventually

import flintmq
from flintmq.core.io import fastjson
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.plugins.registration.registration import Registration
from flintmq.remoting.client.message import Message
from flintmq.remoting.wire.codes import RequestCode, ResponseCode

ORDER = "ORDER_TOPIC_CONFIG"


@attrs.frozen
class Routed:
    """A name server, a broker that registers there, and a connection to each."""

    names: flintmq.NameServer
    broker: flintmq.Broker
    to_names: Wire
    to_broker: Wire

    def ask(self, wire: Wire, code: int, body: bytes = b"", **fields: object) -> Any:
        """Ask, and insist on success."""
        answer = wire.ask(code, fields, body)
        assert answer.code == 0, answer.remark
        return answer

    def configure(self, text: str) -> None:
        """Change settings of the broker while it runs (updateBrokerConfig)."""
        self.ask(self.to_broker, RequestCode.UPDATE_BROKER_CONFIG, text.encode())

    def topic(self, topic: str, queues: int = 4, *, order: bool = False, perm: int = 6) -> None:
        """Make or change a topic (updateTopic)."""
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": str(order).lower(),
        }  # fmt: skip
        self.ask(self.to_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)

    def delete(self, topic: str) -> None:
        """Delete a topic as mqadmin does (deleteTopic): at the broker, then at the name server."""
        self.ask(self.to_broker, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        self.ask(self.to_names, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic, clusterName="DefaultCluster")

    def route(self, topic: str) -> Any:
        """What a producer is told of a topic; None where nothing is known."""
        answer = self.to_names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return fastjson.loads(answer.body) if answer.code == 0 else None

    def perm(self, topic: str) -> int:
        """The permission in the route of a topic; -1 where there is no route."""
        found = self.route(topic)
        return int(found["queueDatas"][0]["perm"]) if found is not None else -1

    def perm_becomes(self, topic: str, perm: int) -> None:
        eventually(lambda: self.perm(topic) == perm, f"the route of {topic} says {perm}")

    def registered(self) -> None:
        """Wait until the name server knows the table that the broker has now."""
        version, address = self.broker.state.topics.data_version, self.broker.address
        eventually(lambda: self.names.routes.data_version(address) == version, "the broker's table is registered")


@pytest.fixture
def routed(configure: Callable[..., Any], connect: Callable[[Any], Wire], unexpected: list[str]) -> Iterator[Routed]:
    with flintmq.NameServer(configure("nameserver.order_message_enable=true", store="names")) as names:
        settings = (f"namesrv.addresses={names.address}", "groups.auto_create=true", "pull.property_filter=true")
        with flintmq.Broker(configure(*settings)) as broker:
            yield Routed(names, broker, connect(names), connect(broker))


def test_a_changed_broker_permission_appears_in_routes(routed: Routed) -> None:
    """Producers learn from the route alone that they shall go elsewhere; nothing else of the broker changes meanwhile."""
    routed.topic("T")
    routed.perm_becomes("T", 6)
    for permission in (4, 2, 6):
        routed.configure(f"brokerPermission={permission}")
        routed.perm_becomes("T", permission)
        routed.registered()
        routed.topic(f"With{permission}")
        routed.perm_becomes(f"With{permission}", permission)
    routed.configure("brokerPermission=4")
    routed.perm_becomes("T", 4)
    routed.configure("broker.permission=6")
    routed.perm_becomes("T", 6)


def test_changes_of_topics_and_broker_settings_appear_in_routes(routed: Routed) -> None:
    """Topics made, changed and deleted, the template of topics, and the configuration of ordered ones."""
    routed.topic("T", 4)
    routed.perm_becomes("T", 6)
    routed.topic("T", 7, perm=4)
    routed.perm_becomes("T", 4)
    assert routed.route("T")["queueDatas"][0]["writeQueueNums"] == 7
    routed.configure("autoCreateTopicEnable=true")
    assert routed.to_broker.send("BySending", b"x").code == 0
    routed.perm_becomes("BySending", 6)
    routed.ask(routed.to_names, RequestCode.PUT_KV_CONFIG, namespace=ORDER, key="T", value="broker-a:7")
    assert routed.route("T")["orderTopicConf"] == "broker-a:7"
    routed.ask(routed.to_names, RequestCode.DELETE_KV_CONFIG, namespace=ORDER, key="T")
    assert routed.route("T").get("orderTopicConf") is None
    routed.delete("T")
    assert routed.route("T") is None


def test_enabling_automatic_topic_creation_adds_the_default_topic_tbw102_to_the_routes(
    configure: Any, connect: Any, unexpected: list[str]
) -> None:
    """A producer of a topic that there is not yet asks for the route of the template."""
    with flintmq.NameServer(configure(store="names")) as names:
        settings = (f"namesrv.addresses={names.address}", "topics.auto_create=false")
        with flintmq.Broker(configure(*settings)) as broker:
            routed = Routed(names, broker, connect(names), connect(broker))
            assert routed.perm("TBW102") == -1
            routed.configure("autoCreateTopicEnable=true")
            routed.perm_becomes("TBW102", 7)


def test_creating_topics_does_not_restore_the_wiped_write_permission_of_a_broker(routed: Routed) -> None:
    """wipeWritePerm empties a broker before it goes: nothing but addWritePerm, or a broker that starts anew, ends it."""
    routed.topic("T")
    routed.perm_becomes("T", 6)
    routed.ask(routed.to_names, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert routed.perm("T") == 4
    routed.topic("ByAdministration")
    assert routed.to_broker.send("BySending", b"x").code == 0
    routed.perm_becomes("BySending", 4)
    routed.topic("T", 8)
    routed.configure("brokerPermission=4")
    routed.configure("brokerPermission=6")
    routed.registered()
    assert [routed.perm(topic) for topic in ("T", "ByAdministration", "BySending")] == [4, 4, 4]
    assert routed.route("T")["queueDatas"][0]["writeQueueNums"] == 8
    routed.ask(routed.to_names, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert [routed.perm(topic) for topic in ("T", "ByAdministration", "BySending")] == [6, 6, 6]
    routed.topic("U")
    routed.registered()
    assert (routed.perm("T"), routed.perm("U")) == (6, 6)


def batch_of(topic: str, count: int = 2) -> tuple[dict[str, str], bytes]:
    """The header and the body of a batch send."""
    return send_fields(topic, batch=True), encode_batch(BatchItem(0, b"%d" % number, b"") for number in range(count))


def ways_in(routed: Routed, topic: str) -> dict[str, Sent]:
    """Send one message on every way that there is, and return what each was answered."""
    wire, v2 = routed.to_broker, send_fields(topic)
    names = dict(
        zip("abcdefghijkm", ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
            "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch"), strict=True)
    )  # fmt: skip
    header, body = batch_of(topic)
    half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "K"}
    found = {
        "10": sent(wire.ask(RequestCode.SEND_MESSAGE, {names[key]: value for key, value in v2.items()}, b"x")),
        "310": wire.send(topic, b"x"),
        "320": sent(wire.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)),
        "310 with a batch": sent(wire.ask(RequestCode.SEND_MESSAGE_V2, header, body)),
        "half": wire.send(topic, b"x", properties=half),
        "delayed": wire.send(topic, b"x", properties={"DELAY": "3"}),
        "reply": sent(wire.ask(RequestCode.SEND_REPLY_MESSAGE_V2, v2, b"x")),
    }

    async def put() -> Sent:
        try:
            await routed.broker.put([Message(topic, b"x")])
        except flintmq.RefusedError as error:
            return Sent(error.code, str(error))
        return Sent(0, "")

    found["in process"] = routed.broker.call(put)
    return found


def test_a_broker_without_write_permission_refuses_every_kind_of_send_to_an_ordered_topic(routed: Routed) -> None:
    """A message of an ordered topic that goes to another broker than the one before it has lost its order: so the refusal must
    not depend on the way in. Other topics are taken, because their producers go elsewhere when they learn it."""
    routed.topic("Ordered", order=True)
    routed.topic("Plain")
    nobody = {"reply": ResponseCode.SYSTEM_ERROR}  # nobody has asked
    assert {way: answer.code for way, answer in ways_in(routed, "Ordered").items() if answer.code} == nobody
    routed.configure("brokerPermission=4")
    refused = ways_in(routed, "Ordered")
    assert {answer.code for answer in refused.values()} == {ResponseCode.NO_PERMISSION}
    assert all("sending message is forbidden" in answer.remark for answer in refused.values())
    assert {way: answer.code for way, answer in ways_in(routed, "Plain").items() if answer.code} == nobody
    routed.configure("brokerPermission=6")
    assert {way: answer.code for way, answer in ways_in(routed, "Ordered").items() if answer.code} == nobody


def test_a_broker_does_not_register_endlessly_if_name_servers_differ_in_ordered_topic_settings(
    configure: Any, unexpected: list[str]
) -> None:
    """One was away when the order of a topic was configured: each answer would undo the other one's, with a registration."""
    with (
        flintmq.NameServer(configure(store="n1")) as first,
        flintmq.NameServer(configure(store="n2")) as second,
        flintmq.Broker(configure(f"namesrv.addresses={first.address};{second.address}")) as broker,
    ):

        async def contradict() -> list[int]:
            topics = broker.state.topics
            topics.create_in_send_back("T", 1)
            first.kv.put(ORDER, "T", "broker-a:1")
            second.kv.put(ORDER, "U", "broker-a:1")
            registration = broker.state.service(Registration)
            found = []
            for _ in range(4):
                await registration.register_all()
                found.append(topics.data_version.counter)
            return found

        counters = broker.call(contradict)
        assert len(set(counters)) == 1, "the first one counts, each time"
        config = broker.state.topics.select("T")
        assert config is not None
        assert config.order


def test_a_concurrent_broker_registration_does_not_restore_a_deleted_topic(routed: Routed) -> None:
    """A registration that still has the topic may be under way while it is deleted: its answer is waited for."""
    for number in range(20):
        topic = f"Brief{number}"
        routed.topic(topic)
        routed.delete(topic)
        assert routed.route(topic) is None
    routed.registered()
    known = json.loads(routed.to_names.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}).body)["topicList"]
    assert [topic for topic in known if topic.startswith("Brief")] == []
    routed.topic("Brief1")
    routed.perm_becomes("Brief1", 6)


def test_deleting_a_topic_at_the_broker_removes_its_route(routed: Routed) -> None:
    """A tool that knows only the broker, or a name server that was down, must leave no route behind."""
    routed.topic("T")
    routed.perm_becomes("T", 6)
    routed.ask(routed.to_broker, RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    eventually(lambda: routed.route("T") is None, "the route is gone")
