"""Timers as clients see them: sent with a property of 5.x, delivered by any broker that runs then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import flintmq
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.core.record.properties import properties_to_string
from flintmq.remoting.wire.bodies import KVTable
from flintmq.remoting.wire.codes import RequestCode


def test_a_timer_message_survives_a_broker_restart(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """Acknowledged with the queue it was meant for; not seen before its time; delivered by the next broker."""
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.send("T", b"now", queue_id=2).code == 0
        sent = wire.send("T", b"later", queue_id=2, properties={"TIMER_DELAY_MS": "1500", "k": "v"})
        assert (sent.code, sent.queue_id) == (0, 2)
        assert wire.pull("T", 1, queue_id=2).code == 19
        figures = KVTable.decode(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        assert figures["timerCongestNum"] == "1"
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        (record,) = wire.pull("T", 1, queue_id=2, _suspend_ms=5_000).records
        assert record.body == b"later"
        assert record.properties["k"] == "v"
        late_ms = record.store_timestamp_ms - int(record.properties["TIMER_OUT_MS"])
        assert 0 <= late_ms < 20_000, "never early; late by what the restart took"
        figures = KVTable.decode(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        assert figures["timerCongestNum"] == "0"
    with flintmq.Broker(configure()) as broker:
        assert connect(broker).pull("T", 2, queue_id=2).max_offset == 2, "it does not come again"


def test_a_committed_transactional_timer_message_is_delivered_when_its_delay_ends(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """A delay counts from the commit, and what can never be kept is refused while somebody still listens."""
    half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "A"}
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        refused = wire.send("T", b"x", properties={**half, "TIMER_DELAY_SEC": "99999999"})
        assert (refused.code, "timer.too_far" in refused.remark) == (13, True)
        sent = wire.send("T", b"later", properties={**half, "TIMER_DELAY_MS": "1200"})
        assert sent.code == 0
        end = {
            "producerGroup": "p",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": int(sent.message_id[16:], 16),
            "commitOrRollback": 8,
            "fromTransactionCheck": "false",
            "msgId": "A",
        }
        begin_ms = broker.state.clock.now_ms()
        assert wire.ask(RequestCode.END_TRANSACTION, end).code == 0
        (record,) = wire.pull("T", _suspend_ms=4_500).records
        assert record.body == b"later"
        assert record.store_timestamp_ms >= begin_ms + 1_200


def test_invalid_timer_messages_are_refused(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """Too far, not a number, in a batch, or sent to the timers' own topic, which no client sees."""
    with flintmq.Broker(configure("delay.timer_max_delay_ms=1h")) as broker:
        wire = connect(broker)
        far = wire.send("T", b"x", properties={"TIMER_DELAY_SEC": "3601"})
        assert far.code == 13
        assert "timer_max_delay_ms" in far.remark
        assert wire.send("T", b"x", properties={"TIMER_DELIVER_MS": "soon"}).code == 13
        assert wire.send("rmq_sys_wheel_timer", b"x").code == 16
        assert wire.pull("rmq_sys_wheel_timer").code == 17
        for item_properties, code in (("TIMER_DELAY_MS\x015", 13), ("k\x01TIMER_DELAY_MS", 0)):
            items = [BatchItem(0, b"TIMER_D", item_properties.encode())]
            assert wire.send("T", encode_batch(items), batch=True).code == code
        shared = properties_to_string({"TIMER_DELAY_MS": "5"})
        assert wire.send("T", encode_batch([BatchItem(0, b"", b"")]), batch=True, properties=shared).code == 13
        assert wire.send("T", b"TIMER_DELAY_MS", properties={"TIMER_DELAYED": "x"}).code == 0


def test_timer_properties_are_ignored_if_timers_are_off(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """RocketMQ 4.9 ignores them as well; a delay level takes precedence over a time."""
    with flintmq.Broker(configure("delay.timer_enable=false")) as broker:
        wire = connect(broker)
        wire.send("T", b"x", properties={"TIMER_DELAY_SEC": "3600"})
        assert wire.pull("T").bodies == [b"x"]
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        wire.send("T", b"y", properties={"TIMER_DELAY_SEC": "3600", "DELAY": "18"})
        answer = wire.ask(RequestCode.GET_MAX_OFFSET, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 17})
        assert answer.ext_fields == {"offset": "1"}


@pytest.mark.slow
def test_stopping_a_broker_with_thousands_of_waiting_timer_messages_loses_no_message(
    configure: Callable[..., Any], connect: Callable[[Any], Any]
) -> None:
    """More timers than one pass reads, of which half are due while the broker is down: each comes once, also after another
    stop in the middle of that."""
    count = 3_000
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        begin_s = time.monotonic()
        for number in range(count):
            wire.post_send("T", b"%d" % number, properties={"TIMER_DELAY_MS": str(3_000 + number * 37 % 3_000)})
        assert all(wire.read().code == 0 for _ in range(count))
    time.sleep(max(0.0, begin_s + 4.5 - time.monotonic()))
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.pull("T", _suspend_ms=5_000).records
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        bodies: list[bytes] = []
        while len(bodies) < count:
            found = wire.pull("T", len(bodies), _suspend_ms=8_000)
            assert found.code == 0, f"{count - len(bodies)} are lost"
            bodies += found.bodies
    with flintmq.Broker(configure()) as broker:
        assert connect(broker).pull("T", len(bodies)).max_offset == count, "none comes again"
    assert sorted(map(int, bodies)) == list(range(count))
