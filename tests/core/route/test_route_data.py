"""A topic exists at a name server exactly as long as some broker has queues of it."""

from __future__ import annotations

from flintmq.core.broker import perm
from flintmq.core.broker.topic_config import TopicConfig
from flintmq.core.route.route_data import TopicQueueTable


def table(**brokers: str) -> TopicQueueTable:
    made = TopicQueueTable()
    for broker_name, topics in brokers.items():
        for topic in topics:
            made.put(broker_name, TopicConfig(topic_name=topic))
    return made


def test_a_topic_has_no_route_after_it_is_removed_from_its_last_broker() -> None:
    """Clients must be told that a topic does not exist, and not be given a route without queues."""
    topics = table(a="TU", b="T")
    topics.remove("T", ["a", "unknown"])
    assert list(topics.queues("T")) == ["b"]
    topics.remove("T", topics.queues("T"))
    assert topics.topics() == ["U"]
    assert not topics.queues("T")
    topics.remove("never", ["a"])


def test_removing_a_broker_removes_all_its_queues() -> None:
    """The queues of a broker that died must not be handed out for any topic."""
    topics = table(a="TU", b="UV")
    topics.remove_broker("a")
    assert topics.topics() == ["U", "V"]
    assert topics.topics_at(["a"]) == []
    assert topics.topics_at(["b", "c"]) == ["U", "V"]


def test_wiping_write_permission_affects_only_the_named_broker() -> None:
    """An operator who drains one broker must not stop the others."""
    topics = table(a="TU", b="T")
    assert topics.wipe_write_perm("a") == 2
    assert {name: queue.perm for name, queue in topics.queues("T").items()} == {"a": perm.READ, "b": perm.READ_WRITE}
    assert topics.add_write_perm("a") == 2
    assert topics.queues("T")["a"].perm == perm.READ_WRITE
    assert topics.wipe_write_perm("c") == 0
