"""A topic that is deleted is gone at the slave as well, and what is made under its name is another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bare_wire import Wire
from replicas import assert_same_queues, caught_up, eventually, master_settings, slave_settings

import flintmq
from flintmq.remoting.wire.codes import RequestCode

Connect = Callable[[flintmq.Broker], Wire]
COMMITTED = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "3"}


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_a_slave_removes_a_deleted_topic_before_the_next_synchronization_of_the_topic_table(
    tmp_path: Path, connect: Connect, again: bool
) -> None:
    """It does not wait for its next look at the master's tables, and keeps no offset for a topic that is made again."""
    seldom = ("ha.sync_interval_ms=3600000", "delay.enable=false")
    with flintmq.Broker(master_settings(tmp_path / "m", "delay.enable=false")) as master:
        wire = connect(master)
        with flintmq.Broker(slave_settings(tmp_path / "s", master, *seldom)) as slave:
            for number in range(5):
                assert wire.send("T", b"old%d" % number).code == 0
            assert wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, COMMITTED).code == 0
            caught_up(master, slave)
            slave.state.offsets.commit("T", "G", 0, 3)
            assert wire.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
            if again:
                assert wire.send("T", b"new0").code == 0
            caught_up(master, slave)
            eventually(lambda: (slave.state.topics.select("T") is not None) is again, "the table follows the log")
            assert slave.state.offsets.query("T", "G", 0) == -1
            assert slave.state.store.reader.max_queue_offset("T", 0) == int(again)
    assert_same_queues(tmp_path / "m", tmp_path / "s")
    with flintmq.Broker(master_settings(tmp_path / "s", "delay.enable=false")) as promoted:
        wire = connect(promoted)
        assert wire.send("T", b"more").queue_offset == int(again)
