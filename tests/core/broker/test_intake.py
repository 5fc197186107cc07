"""What a send says becomes exactly one record, or exactly one refusal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.broker.intake import MessageIntake
from flintmq.core.broker.intake_steps import IntakeSteps
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import Sent
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import properties_to_string, string_to_properties
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.tests.support.state import state_of

CLUSTER = "CLUSTER\x01DefaultCluster"
SENDER: Any = SimpleNamespace(packed_host=b"\x0a\0\0\x01\0\0\x04\xd2", remote_address="10.0.0.1:1234")


class Intake:
    """An intake over topic tables, and the topics that it made."""

    def __init__(self, *steps: Any, max_message_bytes: int = 1000) -> None:
        whole = BrokerConfig()
        config = attrs.evolve(whole, store=attrs.evolve(whole.store, max_message_bytes=max_message_bytes))
        self.state = state_of(config)
        self.state.topics.create_in_send_back("T", 4)
        self.intake = MessageIntake(self.state, IntakeSteps(steps), choose=lambda queues: queues - 1)

    def single(self, properties: dict[str, str] | str = "", body: bytes = b"body", **fields: Any) -> Any:
        """A message of a send with these fields."""
        text = properties if isinstance(properties, str) else properties_to_string(properties)
        return self.intake.single(header(properties=text, **fields), body, SENDER, 407)

    def refusal(self, *arguments: Any, **fields: Any) -> tuple[int, str]:
        """The code and the reason of a send that is refused."""
        with pytest.raises(RefusedError) as refused:
            self.single(*arguments, **fields)
        return refused.value.code, refused.value.reason


def header(**fields: Any) -> Any:
    """A send's header."""
    plain = {
        "topic": "T", "queue_id": 2, "properties": "", "default_topic": "TBW102", "default_topic_queue_nums": 4,
        "sys_flag": 0, "born_timestamp_ms": 17, "flag": 5, "reconsume_times": 0, "max_reconsume_times": None,
        "unit_mode": False,
    }  # fmt: skip
    return SimpleNamespace(**plain | fields)


def test_a_send_request_becomes_a_message_with_the_senders_address_and_time_and_the_cluster_name() -> None:
    """Tools show the address and time of the sender, and consumers read the cluster from the properties."""
    message = Intake().single({"KEYS": "k", "TAGS": "a"})
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"body")
    assert (message.born_timestamp_ms, message.flag, message.born_host) == (17, 5, SENDER.packed_host)
    assert message.properties_bytes.decode() == f"KEYS\x01k\x02TAGS\x01a\x02{CLUSTER}"
    assert message.wait


@pytest.mark.parametrize(
    ("text", "stored", "waits"),
    [
        ("", CLUSTER, True),
        ("A\x011\x02", f"A\x011\x02{CLUSTER}", True),
        ("A\x011", f"A\x011\x02{CLUSTER}", True),
        ("WAIT\x01true", CLUSTER, True),
        ("A\x011\x02WAIT\x01true\x02", f"A\x011\x02{CLUSTER}", True),
        ("WAIT\x01true\x02A\x011\x02", f"A\x011\x02{CLUSTER}", True),
        ("WAIT\x01false\x02A\x011\x02", f"A\x011\x02{CLUSTER}", False),
        ("CLUSTER\x01other\x02A\x011\x02", f"A\x011\x02{CLUSTER}", True),
    ],
)
def test_messages_are_stored_without_the_wait_property_and_with_the_cluster_property(
    text: str, stored: str, waits: bool
) -> None:
    """The bytes are RocketMQ's, and the same whether the property string has been seen before or not."""
    intake = Intake()
    for _ in range(3):
        message = intake.single(text)
        assert string_to_properties(message.properties_bytes.decode()) == string_to_properties(stored)
        assert message.properties_bytes.decode().rstrip("\x02") == stored
        assert message.wait == waits
        assert message.properties.get("CLUSTER") == "DefaultCluster"


def test_a_negative_queue_id_selects_a_random_queue() -> None:
    """A negative queue id means any; one that is not there is refused."""
    intake = Intake()
    assert intake.single(queue_id=-1).queue_id == 3
    assert intake.single(queue_id=3).queue_id == 3
    assert intake.refusal(queue_id=4) == (ResponseCode.SYSTEM_ERROR, "queue.illegal")


def test_the_first_send_creates_a_topic_only_if_the_default_topic_of_the_request_exists() -> None:
    """With the queues that the sender asked for, after the default topic; where that is forbidden it is refused."""
    intake = Intake()
    assert intake.single(topic="New", queue_id=1, default_topic_queue_nums=2).topic == "New"
    assert intake.state.topics.select("New").write_queue_nums == 2
    assert intake.refusal(topic="Newer", default_topic="Nobody")[0] == ResponseCode.TOPIC_NOT_EXIST
    assert intake.refusal(topic="Not A Name")[0] == ResponseCode.SYSTEM_ERROR
    assert intake.refusal(topic="")[0] == ResponseCode.SYSTEM_ERROR


def test_bodies_and_properties_above_the_limits_are_refused() -> None:
    """Before a byte of it is appended; the limits themselves are allowed."""
    intake = Intake(max_message_bytes=1000)
    assert len(intake.single(body=b"x" * 1000).body) == 1000
    assert intake.refusal(body=b"x" * 1001) == (ResponseCode.MESSAGE_ILLEGAL, "message.body_too_long")
    assert intake.refusal({"A": "x" * 40_000}) == (ResponseCode.MESSAGE_ILLEGAL, "message.properties_too_long")


class Redirect:
    """A step that is concerned with a property, and with topics of a prefix."""

    property_names = frozenset({"REDIRECT"})
    topic_prefixes = ("%R%",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sent | None]] = []

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Moves every message that it is asked about."""
        self.asked.append((message.topic, sent))
        message.topic = "ELSEWHERE"
        return True


def test_a_plugin_is_called_only_for_incoming_messages_with_a_property_or_topic_that_it_declared() -> None:
    """The rule must also hold for a property string that was seen before, as producers repeat theirs."""
    step = Redirect()
    intake = Intake(step)
    intake.state.topics.create_in_send_back("%R%g", 1)
    for _ in range(3):
        assert intake.single({"KEYS": "k"}).topic == "T"
    assert step.asked == []
    for _ in range(2):
        assert intake.single({"REDIRECT": "1"}, max_reconsume_times=4).topic == "ELSEWHERE"
        assert intake.single({"KEYS": "k"}, topic="%R%g", queue_id=0).topic == "ELSEWHERE"
    assert step.asked == [("T", Sent(407, 4)), ("%R%g", Sent(407, None))] * 2


def test_an_incoming_message_that_a_plugin_redirects_gets_a_queue_of_its_new_topic() -> None:
    """A step names a topic; the queue is still the one that the sender chose in another."""
    intake = Intake(Redirect())
    intake.state.topics.create_in_send_back("ELSEWHERE", 2)
    queues = [intake.single({"REDIRECT": "1"}, queue_id=queue_id).queue_id for queue_id in range(4)]
    assert queues == [0, 1, 0, 1]


def test_a_half_message_is_refused_if_no_plugin_handles_transactions() -> None:
    """Stored as an ordinary message it would be delivered before it is committed."""
    intake = Intake()
    assert intake.refusal({"TRAN_MSG": "true"}) == (ResponseCode.NO_PERMISSION, "transaction.unsupported")
    assert intake.single({"TRAN_MSG": "false"}).topic == "T"


@pytest.mark.parametrize(
    ("fields", "body", "reason"),
    [
        ({}, b"", "batch.empty"),
        ({}, b"no batch", "batch.malformed"),
        ({}, b"x" * 1001, "batch.too_long"),
        ({"sys_flag": 4}, b"", "batch.transaction"),
    ],
)
def test_a_malformed_batch_is_refused_as_a_whole(fields: dict[str, Any], body: bytes, reason: str) -> None:
    """The messages of a batch share one answer, so no part of it may be stored."""
    with pytest.raises(RefusedError) as refused:
        Intake().intake.batch(header(**fields), body, SENDER)
    assert (refused.value.code, refused.value.reason) == (ResponseCode.MESSAGE_ILLEGAL, reason)


def test_an_ordered_topic_refuses_sends_while_the_broker_is_not_writable() -> None:
    """Single messages and batches alike; other topics are taken, until their producers know."""
    intake = Intake()
    intake.state.topics.put(TopicConfig(topic_name="O", read_queue_nums=4, write_queue_nums=4, order=True))
    assert intake.single(topic="O").topic == "O"
    config = intake.state.config
    intake.state.config = attrs.evolve(config, broker=attrs.evolve(config.broker, permission=4))
    assert intake.refusal(topic="O") == (ResponseCode.NO_PERMISSION, "broker.not_writeable")
    assert intake.single(topic="T").topic == "T"
    with pytest.raises(RefusedError, match="sending message is forbidden"):
        intake.intake.batch(header(topic="O"), encode_batch([BatchItem(0, b"x", b"")]), SENDER)
