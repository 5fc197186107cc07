"""Retention over the wire: tools ask for it, consumers are told where to go on, and a full disk says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import flintmq
from flintmq.config.rocketmq.system_topics import OFFSET_MOVED_EVENT
from flintmq.core.io.clock import SystemClock
from flintmq.core.retention.retention import DiskFull
from flintmq.plugins.retention.plugin import RetentionService
from flintmq.remoting.wire.codes import RequestCode

BODY = bytes(60_000)
FULL = "store.disk_max_used_ratio=95", "store.disk_enough_free_bytes=0", "store.commit_log_file_bytes=262144"


class LaterClock(SystemClock):
    """The wall clock of another day; what is waited for is waited for as always."""

    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


def test_a_pull_from_log_files_that_were_deleted_on_request_returns_the_lowest_available_offset(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """329, a pull of what is gone, the record of it in OFFSET_MOVED_EVENT, and 306: what an operator does on a bad day."""
    clock = LaterClock()
    with flintmq.Broker(configure(*FULL, "store.clean_resource_interval_ms=1h"), clock=clock) as broker:
        wire = connect(broker)
        assert wire.send("Gone", b"x").code == 0
        for _ in range(20):
            assert wire.send("T", BODY).code == 0
        cleaner, store = broker.state.service(RetentionService).cleaner, broker.state.store

        async def clean() -> None:
            while store.commit_log.flush(0) < store.watermarks.wrote:
                pass
            clock.shift_ms = 100 * 3_600_000
            cleaner.run()

        assert wire.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        assert cleaner.manual_rounds == 20
        broker.call(clean)
        assert store.commit_log.min_offset_bytes > 0

        gone = wire.pull("T", 1, group="late")
        assert gone.code == 21
        assert gone.next_offset == gone.min_offset > 1
        assert wire.pull("T", 1, group="late").code == 21  # a repeat makes no second record
        assert wire.pull("T", 99, group="late").next_offset == 20
        events = wire.pull_all(OFFSET_MOVED_EVENT)
        assert [json.loads(event.body) for event in events] == [
            {
                "consumerGroup": "late",
                "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
                "offsetNew": new,
                "offsetRequest": wanted,
            }
            for new, wanted in ((gone.next_offset, 1), (20, 99))
        ]
        assert {event.properties["TAGS"] for event in events} == {"late"}
        assert {event.properties["KEYS"] for event in events} == {"late"}

        assert ("Gone", 0) in store.consume_queues.queues
        assert wire.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == 0
        assert ("Gone", 0) not in store.consume_queues.queues
        info = json.loads(wire.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert int(info["commitLogMinOffset"]) == store.commit_log.min_offset_bytes
        assert 0 <= float(info["commitLogDiskRatio"]) <= 1
        assert not unexpected


def test_a_broker_with_a_full_disk_refuses_sends_and_serves_pulls(
    configure: Callable[..., Any], connect: Callable[[Any], Any], unexpected: list[str]
) -> None:
    """14 with what was measured and the key to change; a pull of a wrong offset is answered though no event can be kept."""
    with flintmq.Broker(configure(*FULL)) as broker:
        wire = connect(broker)
        assert wire.send("T", b"before").code == 0
        broker.state.store.disk_full = DiskFull("99.0% used, 5 bytes free at /x", "store.disk_full_ratio")
        refused = wire.send("T", b"refused")
        assert refused.code == 14
        for part in ("store.disk_full", "99.0% used", "store.disk_full_ratio"):
            assert part in refused.remark
        assert wire.pull("T").bodies == [b"before"]
        assert wire.pull("T", 7).code == 21
        assert wire.pull("T", 7).next_offset == 1
        broker.state.store.disk_full = None
        assert wire.send("T", b"after").code == 0
        assert not unexpected
