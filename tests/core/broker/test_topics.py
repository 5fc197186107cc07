"""Which topics exist, and who may make them, decides whether an unmodified client can send at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from flintmq.core.broker import perm
from flintmq.core.broker import topic_name as names
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.broker.topics import TopicConfigManager, boot_topics
from flintmq.core.errors import RefusedError, StoreError, StoreFormatError
from flintmq.core.io import fastjson
from flintmq.core.io.config_journal import ConfigJournal
from flintmq.core.io.config_manager import JsonFile
from flintmq.core.kernel.ports import SystemTopic
from flintmq.core.response_code import ResponseCode
from flintmq.testing.clock import ManualClock


def manager(file: JsonFile | None = None, *, auto_create: bool = True) -> TopicConfigManager:
    boot = boot_topics(
        cluster="C",
        broker_name="b-a",
        auto_create=auto_create,
        trace_topic="RMQ_SYS_TRACE_TOPIC",
        features=(SystemTopic("SCHEDULE_TOPIC_XXXX", queue_nums=18),),
    )
    journal = ConfigJournal(file.path.parent / "flint" / "new-topics") if file is not None else None
    return TopicConfigManager(file, ManualClock(), boot, auto_create=auto_create, journal=journal)


def test_a_new_broker_has_rocketmqs_system_topics() -> None:
    table = {config.topic_name: (config.write_queue_nums, config.perm) for config in manager()}
    assert table == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "RMQ_SYS_TRACE_TOPIC": (1, 6),
        "C_REPLY_TOPIC": (1, 6),
    }
    assert boot_topics(cluster="C", broker_name="b", cluster_topic=False)["C"].perm == 1


def test_the_first_send_creates_a_topic_from_the_template_topic() -> None:
    topics = manager()
    calls: list[int] = []
    topics.changed.subscribe(lambda: calls.append(topics.data_version.counter))
    made = topics.create_in_send("T", "TBW102", "1.2.3.4:5", 4)
    assert made == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert topics.create_in_send("T", "TBW102", "1.2.3.4:5", 4) is made
    assert calls == [1]
    big = topics.create_in_send("U", "TBW102", "1.2.3.4:5", 100)
    assert big is not None
    assert big.write_queue_nums == 8


def test_a_send_creates_no_topic_if_its_template_topic_does_not_exist() -> None:
    topics = manager()
    assert topics.create_in_send("T", "NO_SUCH", "x", 4) is None
    assert topics.create_in_send("T", "SELF_TEST_TOPIC", "x", 4) is None
    retry = topics.create_in_send("%RETRY%g", "NO_SUCH", "x", 4)
    assert retry == TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=1, perm=6)


def test_a_send_creates_no_topic_if_auto_creation_is_off_even_if_the_template_topic_exists(
    tmp_path: Path,
) -> None:
    file = JsonFile(tmp_path / "topics.json")
    manager(file).persist()
    topics = manager(file, auto_create=False)
    assert topics.load()
    assert "TBW102" in topics
    assert topics.create_in_send("T", "TBW102", "x", 4) is None


def test_a_topic_change_is_durable_when_the_call_returns(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "topics.json")
    topics = manager(file)
    topics.put(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=5, perm=6, order=True, topic_sys_flag=1))
    again = manager(file)
    again.load()
    assert again.select("T") == TopicConfig(
        topic_name="T", read_queue_nums=3, write_queue_nums=5, perm=6, order=True, topic_sys_flag=1
    )
    assert again.data_version == topics.data_version
    assert topics.delete("T")
    assert not topics.delete("T")
    third = manager(file)
    third.load()
    assert "T" not in third


def test_topics_created_by_sends_are_journaled_before_the_topics_file_is_written(tmp_path: Path) -> None:
    """Ten thousand topics are not written for each further one; and a killed broker knows every one it answered for."""
    file = JsonFile(tmp_path / "topics.json")
    notes = tmp_path / "flint" / "new-topics"
    topics = manager(file)
    topics.persist()
    written = file.path.read_bytes()
    for number in range(3):
        topics.create_in_send(f"T{number}", "TBW102", "x", 4)
    topics.create_in_send_back("%RETRY%g", 1)
    assert file.path.read_bytes() == written
    killed = manager(file)
    assert killed.load()
    assert killed.to_wire() == topics.to_wire()
    assert killed.noted == topics.noted == 4
    asyncio.run(topics.compact())
    assert not notes.exists()
    assert topics.noted == 0
    again = manager(file)
    again.load()
    assert again.to_wire() == topics.to_wire()


@pytest.mark.parametrize("has_file", [False, True])
def test_a_topic_journal_with_a_torn_line_is_read_even_if_the_topics_file_is_missing(
    tmp_path: Path, has_file: bool
) -> None:
    """The first topic of a new broker; a crash, or a full disk, in the midst of a line."""
    file = JsonFile(tmp_path / "topics.json")
    topics = manager(file)
    if has_file:
        topics.persist()
    topics.create_in_send("A", "TBW102", "x", 4)
    notes = tmp_path / "flint" / "new-topics"
    whole = notes.read_bytes()
    notes.write_bytes(whole + whole[: len(whole) // 2])
    topics.create_in_send("B", "TBW102", "x", 4)
    again = manager(file)
    assert again.load() is has_file
    assert "A" in again
    assert "B" in again


def test_a_deleted_topic_does_not_return_from_the_journal(tmp_path: Path) -> None:
    """A crash may leave the notes behind after the file was written, and a topic may be made again after it was deleted."""
    file = JsonFile(tmp_path / "topics.json")
    topics = manager(file)
    topics.create_in_send("A", "TBW102", "x", 4)
    notes = tmp_path / "flint" / "new-topics"
    left = notes.read_bytes()
    topics.delete("A")
    killed = manager(file)
    killed.load()
    assert "A" not in killed
    assert killed.data_version == topics.data_version
    topics.persist()
    assert not notes.exists()
    notes.write_bytes(left)
    again = manager(file)
    again.load()
    assert "A" not in again
    again.create_in_send("A", "TBW102", "x", 2)
    third = manager(file)
    third.load()
    assert third.select("A") == again.select("A")


@pytest.mark.parametrize("wrong", ['"A"', "[1]", '{"A": 1}'])
def test_the_error_about_a_journal_entry_of_the_wrong_type_names_the_file(tmp_path: Path, wrong: str) -> None:
    """A start that went on would forget what was acknowledged."""
    (tmp_path / "flint").mkdir()
    (tmp_path / "flint" / "new-topics").write_text(f'{{"dataVersion":{{"counter":9}},"deleted":{wrong}}}\n')
    with pytest.raises(StoreFormatError, match=r"new-topics: deleted"):
        manager(JsonFile(tmp_path / "topics.json")).load()


def test_a_send_is_refused_if_its_new_topic_cannot_be_journaled(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    topics = manager(JsonFile(tmp_path / "x" / "topics.json"))
    with pytest.raises(StoreError, match=r"new-topics: cannot be written"):
        topics.create_in_send("A", "TBW102", "x", 4)


def test_a_topic_change_that_cannot_be_written_is_undone(tmp_path: Path) -> None:
    """The answer is an error: neither clients nor name servers may see what a restart would not."""
    (tmp_path / "x").write_text("")
    topics = manager(JsonFile(tmp_path / "x" / "topics.json"))
    before, calls = topics.to_wire(), []
    topics.changed.subscribe(lambda: calls.append("changed"))
    for change in (
        lambda: topics.put(TopicConfig(topic_name="T")),
        lambda: topics.delete("TBW102"),
        lambda: topics.update_order_topics({"TBW102"}),
    ):
        with pytest.raises(StoreError):
            change()
    assert topics.to_wire() == before
    assert not calls


def test_retry_topics_and_replicated_topics_are_created_even_if_the_topics_file_cannot_be_written(
    tmp_path: Path,
) -> None:
    """A full disk shall not keep consumers from joining; the topic gets to the disk with the next writing of the table."""
    (tmp_path / "x").write_text("")
    topics = manager(JsonFile(tmp_path / "x" / "topics.json"))
    calls: list[str] = []
    topics.changed.subscribe(lambda: calls.append("changed"))
    topics.create_in_send_back("%RETRY%g", 1)
    assert topics.learn("Copied", 2)
    assert {"%RETRY%g", "Copied"} <= {config.topic_name for config in topics}
    assert topics.noted
    assert calls == ["changed"] * 2


def test_a_broker_without_write_permission_registers_its_topics_without_write_permission() -> None:
    topics = manager()
    topics.put(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=5, perm=6, order=True))
    assert topics.to_wire()["topicConfigTable"]["T"]["perm"] == 6
    restricted = TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=5, perm=perm.READ)
    assert dict(topics.registered(perm.READ))["T"] == restricted
    sent = fastjson.loads(b"".join(topics.encoded(perm.READ)))["topicConfigTable"]["T"]
    assert sent == msgspec.to_builtins(restricted)


def test_a_topic_is_flagged_as_ordered_exactly_if_the_name_server_lists_it_as_ordered() -> None:
    topics = manager()
    topics.put(TopicConfig(topic_name="T"))
    topics.put(TopicConfig(topic_name="U", order=True))
    version = topics.data_version.counter
    topics.update_order_topics({"T", "missing"})
    assert [c.topic_name for c in topics if c.order] == ["T"]
    topics.update_order_topics({"T"})
    assert topics.data_version.counter == version + 1
    topics.put(TopicConfig(topic_name="V", order=True))
    topics.delete("T")
    topics.replace({"topicConfigTable": {"V": {"order": True}, "W": {"order": True}, "T": {}}})
    topics.update_order_topics({"T"})
    assert [c.topic_name for c in topics if c.order] == ["T"]


def test_a_slave_replaces_its_topic_table_by_the_topic_table_of_its_master() -> None:
    topics = manager()
    topics.put(TopicConfig(topic_name="gone"))
    topics.replace({"dataVersion": {"counter": 9, "timestamp": 5}, "topicConfigTable": {"T": {"perm": 4}}})
    assert [c.topic_name for c in topics] == ["T"]
    assert topics.data_version.counter == 9


def test_a_slave_creates_topics_found_in_messages_until_it_has_loaded_the_masters_topic_table(tmp_path: Path) -> None:
    """Later, old messages must not bring back topics that the master has deleted."""
    file = JsonFile(tmp_path / "topics.json")
    topics = manager(file)
    assert topics.learn("T", 2)
    assert not topics.learn("T", 1)
    assert topics.learn("T", 4)
    assert topics.learn("Deleted", 1)
    assert topics.select("T") == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    killed = manager(file)
    killed.load()
    assert killed.select("T") == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    of_master = {
        "dataVersion": {"counter": 9, "timestamp": 5},
        "topicConfigTable": {"T": {"readQueueNums": 8, "writeQueueNums": 8}},
    }
    topics.replace(of_master)
    assert topics.select("T") == TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8)
    assert not topics.learned
    assert not topics.learn("T", 9), "the master's word counts"
    assert not topics.learn("Deleted", 1)
    topics.replace(of_master)
    assert not topics.learn("Deleted", 1)
    topics.replace(of_master | {"dataVersion": {"counter": 10, "timestamp": 5}})
    assert topics.learn("Deleted", 1), "it may have been made anew"


def test_topics_with_invalid_numbers_of_queues_are_refused() -> None:
    topics = manager()
    with pytest.raises(RefusedError):
        topics.put(TopicConfig(topic_name="T", read_queue_nums=-1))
    with pytest.raises(RefusedError):
        topics.put(TopicConfig(topic_name="T", write_queue_nums=1_000_000))


@pytest.mark.parametrize("topic", ["", "  ", "bad topic", "a@b", "../x", "ü", "x" * 128, "a\n"])
def test_invalid_topic_names_are_refused_with_the_same_remark_as_in_rocketmq(topic: str) -> None:
    with pytest.raises(RefusedError, match=r"^The specified topic ") as caught:
        names.check_topic_name(topic)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_topic_names_valid_in_rocketmq_are_accepted() -> None:
    for topic in ("%RETRY%g", "a|b", "A_-9", "x" * 127):
        names.check_topic_name(topic)


def test_system_topics_are_recognized_by_their_names() -> None:
    topics = manager()
    for topic in ("TBW102", "C", "b-a", "rmq_sys_x", "C_REPLY_TOPIC"):
        assert topics.is_system_topic(topic)
    assert not topics.is_system_topic("T")
    with pytest.raises(RefusedError, match=r"Sending message to topic\[SCHEDULE_TOPIC_XXXX\] is forbidden\.") as caught:
        topics.check_not_forbidden("SCHEDULE_TOPIC_XXXX")
    assert caught.value.code == ResponseCode.NO_PERMISSION
    topics.check_not_forbidden("TBW102")


def test_the_text_description_of_a_topic_configuration_has_the_format_of_rocketmq() -> None:
    assert TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=6).describe() == (
        "TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]"
    )


def test_the_number_of_topics_that_clients_can_create_is_bounded() -> None:
    """Except for the broker's own, without which transactions would stop."""
    boot = boot_topics(cluster="C", broker_name="b")
    topics = TopicConfigManager(None, ManualClock(), boot, count_max=len(boot) + 1)
    assert topics.create_in_send("T", "TBW102", "somebody", 4) is not None
    for make in (
        lambda: topics.create_in_send("U", "TBW102", "somebody", 4),
        lambda: topics.create_in_send_back("%RETRY%g", 1),
        lambda: topics.put(TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1)),
    ):
        with pytest.raises(RefusedError) as refused:
            make()
        assert (refused.value.reason, refused.value.key) == ("topics.full", "topics.count_max")
    topics.put(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=8))
    topics.create_in_send_back("RMQ_SYS_TRANS_HALF_TOPIC", 1)
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in topics


def test_a_slave_runs_the_deletion_callbacks_for_topics_that_are_missing_on_its_master() -> None:
    """Others remember something of each topic: counters, offsets, filters. A slave's topics leave when its master's do."""
    topics = manager()
    gone: list[str] = []
    topics.deleted.subscribe(gone.append)
    for name in ("A", "B", "C"):
        topics.put(TopicConfig.with_queues(name, 1))
    assert topics.delete("A")
    assert not topics.delete("A")
    assert gone == ["A"]
    others = topics.to_wire()
    del others["topicConfigTable"]["B"]
    topics.replace(others)
    assert gone == ["A", "B"]


@pytest.mark.parametrize(
    ("read", "write", "meant_for", "goes_to"),
    [
        (4, 4, 3, 3),
        (4, 4, 6, 2),
        (4, 2, 3, 3),  # it is still read
        (4, 2, 6, 0),
        (2, 4, 3, 1),  # nobody reads it
        (4, 0, 7, 3),
        (0, 4, 3, 3),
        (4, 4, 2**31 - 1, 3),
    ],
)
def test_a_message_for_a_queue_that_its_topic_no_longer_has_goes_to_a_readable_queue(
    read: int, write: int, meant_for: int, goes_to: int
) -> None:
    """A topic may lose a queue while messages wait that were acknowledged for it."""
    topics = manager()
    topics.put(TopicConfig(topic_name="T", read_queue_nums=read, write_queue_nums=write))
    assert topics.queue_inside("T", meant_for) == goes_to


def test_a_message_to_a_topic_without_queues_is_refused() -> None:
    """The levels of a broker may be more than RocketMQ's 18 queues, and nobody pulls these."""
    topics = manager()
    topics.put(TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=0))
    with pytest.raises(RefusedError) as refused:
        topics.queue_inside("T", 0)
    assert refused.value.reason == "queue.none"
    assert topics.queue_inside("SCHEDULE_TOPIC_XXXX", 30) == 30
    assert topics.queue_inside("unknown", 5) == 5
