"""A model of retention that waits for consumers: whatever waits, nothing that is on its way to a group is deleted.

The broker's clock is turned by hand, its log is cut as short as its settings let it, after each step.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.plugins.retention.plugin import RetentionService
from flintmq.remoting.wire.codes import RequestCode
from flintmq.testing.clock import ManualClock

BODY = bytes(3_000)
SETTINGS = (
    "flush.strategy=flush_real_time",
    "store.commit_log_file_bytes=16384",
    "store.retention_bytes=1",
    "store.disk_enough_free_bytes=0",
    "store.disk_max_used_ratio=95",
    "store.clean_forcibly=false",
    "store.clean_resource_interval_ms=1h",
    "transactions.check_interval_ms=1h",
)
GROUP = "billing"
HOLDS = {"named": f"store.keep_for_groups={GROUP}", "all": "store.hold_until_consumed=true"}


class Model:
    """What was acknowledged for a group, and what it got."""

    def __init__(self, broker: flintmq.Broker, clock: ManualClock, wire: Wire, seed: int) -> None:
        self.broker, self.clock, self.wire = broker, clock, wire
        self.random = random.Random(seed)
        self.numbers = itertools.count()
        self.wanted: set[str] = set()
        self.got: Counter[str] = Counter()
        self.halves: list[tuple[str, Any]] = []
        self.next: dict[tuple[str, int], int] = {}
        self.sent_back: set[str] = set()

    def send(self, **properties: str) -> tuple[str, Any]:
        key = f"m{next(self.numbers)}"
        queue_id = self.random.randrange(2)
        sent = self.wire.send("T", BODY, queue_id=queue_id, properties={"UNIQ_KEY": key, **properties})
        assert sent.code == 0
        return key, sent

    # steps

    def send_one(self) -> None:
        self.wanted.add(self.send()[0])

    def send_delayed(self) -> None:
        self.wanted.add(self.send(DELAY=str(self.random.randrange(1, 8)))[0])

    def send_timer(self) -> None:
        self.wanted.add(self.send(TIMER_DELAY_MS=str(self.random.randrange(1_000, 400_000)))[0])

    def send_half(self) -> None:
        self.halves.append(self.send(TRAN_MSG="true", PGROUP="p"))

    def end(self) -> None:
        if not self.halves:
            return
        key, sent = self.halves.pop(self.random.randrange(len(self.halves)))
        commits = self.random.random() < 0.7
        fields = {
            "producerGroup": "p",
            "tranStateTableOffset": sent.queue_offset,
            "commitLogOffset": int(sent.message_id[16:], 16),
            "commitOrRollback": 8 if commits else 12,
            "fromTransactionCheck": "false",
            "msgId": key,
        }
        answer = self.wire.ask(RequestCode.END_TRANSACTION, fields)
        assert answer.code == 0, answer.remark
        self.wanted |= {key} if commits else set()

    def noise(self) -> None:
        """Send what nobody reads, so that the log grows."""
        for _ in range(self.random.randrange(1, 8)):
            assert self.wire.send("Noise", BODY).code == 0

    def turn(self, most_s: int = 60) -> None:
        self.clock.advance_ms(1_000 * self.random.randrange(1, most_s))

        async def run() -> None:
            for name in ("delayed messages", "timers"):
                self.broker.timers.run_now(name)

        for _ in range(3):
            self.broker.call(run)

    def consume(self, share: float = 0.5) -> None:
        """Read some queues, send some messages back once, and store the offsets."""
        for topic, queue_id in (("T", 0), ("T", 1), (f"%RETRY%{GROUP}", 0)):
            if self.random.random() > share:
                continue
            place = self.next.get((topic, queue_id), 0)
            while (pulled := self.wire.pull(topic, place, queue_id=queue_id, group=GROUP)).code == 0:
                for record in pulled.records:
                    self.take(record)
                place = pulled.next_offset
            no_retry_yet = topic != "T" and pulled.code == 17
            assert pulled.code == 19 or no_retry_yet, (topic, queue_id, place, pulled)
            self.next[topic, queue_id] = place
            if topic == "T" or place:
                self.commit(topic, queue_id, place)

    def take(self, record: Any) -> None:
        key = record.properties["UNIQ_KEY"]
        if key not in self.sent_back and self.random.random() < 0.3:
            self.sent_back.add(key)
            fields = {"offset": record.commit_log_offset_bytes, "group": GROUP, "delayLevel": 0, "originTopic": "T"}
            assert self.wire.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields | {"originMsgId": ""}).code == 0
        else:
            self.got[key] += 1

    def commit(self, topic: str, queue_id: int, place: int) -> None:
        fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id, "commitOffset": place}
        assert self.wire.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0

    def clean(self) -> int:
        """Have retention delete all that it may; return where the log begins."""

        async def run() -> int:
            store = self.broker.state.store
            store.commit_log.flush(0)
            self.broker.state.service(RetentionService).cleaner.run()
            return store.commit_log.min_offset_bytes

        return self.broker.call(run)


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("seed", range(2))
def test_retention_deletes_no_message_that_waits_for_its_delivery_to_a_group(
    configure: Any, connect: Any, unexpected: list[str], hold: str, seed: int
) -> None:
    """Delay levels, retries, timers and half messages are kept until the group has them, and the log is short again then."""
    clock = ManualClock()
    with flintmq.Broker(configure(*SETTINGS, HOLDS[hold]), clock=clock) as broker:
        model = Model(broker, clock, connect(broker), seed)
        model.send_one()
        model.commit("T", 0, 0)
        steps = (model.send_one, model.send_delayed, model.send_timer, model.send_half)
        others = (model.end, model.noise, model.noise, model.turn, model.consume)
        for _ in range(120):
            model.random.choice(steps + others)()
            model.clean()
        while model.halves:
            model.end()
            model.clean()
        for _ in range(40):
            model.turn(200)
            model.clean()
            model.consume(1.0)
        assert set(model.got) == model.wanted
        assert set(model.got.values()) <= {1}
        model.noise()
        end = broker.call(log_end(broker))
        for _ in range(100):  # a position may be written in a thread before it counts
            if end - model.clean() <= 4 * 16_384:
                break
            model.turn(200)
        assert end - model.clean() <= 4 * 16_384, "nothing waits any more, and nothing is kept"
        assert unexpected == []


def log_end(broker: flintmq.Broker) -> Any:
    async def end() -> int:
        return broker.state.store.watermarks.wrote

    return end
