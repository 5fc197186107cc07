"""A small log of many short files, for landing zones to follow."""

from __future__ import annotations

from pathlib import Path

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.plugins.spark.landing.task import LandingTask, LogSource
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, opened

SOURCE = LogSource(store_id="0123456789abcdef" * 2, broker_name="broker-a", epochs=((1, 0),))
MIDNIGHT_MS = 1_700_006_400_000
TOPICS = ("Orders", "Payments", "a|b%c")


class LittleLog:
    """A log that no broker runs on: 4 KiB files, three topics, two days, records that never land."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ends: list[int] = []
        """Where each append ended: boundaries."""
        self.landing: dict[int, str] = {}
        """Physical offset and topic of each record that lands."""
        clock = ManualClock(MIDNIGHT_MS - 30_000)
        with opened(root, clock=clock) as store:
            for number in range(60):
                topic = TOPICS[number % 3]
                batch = [message(topic, number % 2, b"x" * (number * 7 % 300), tags="t", number=str(number))]
                if number % 10 == 0:
                    batch.append(message(SCHEDULE_TOPIC, 3, b"later", DELAY="4"))
                    batch.append(message(topic, 0, b"half", sys_flag=4))
                put = store.put(batch)
                for request in put.records:
                    if request.topic == topic and not request.sys_flag & 4:
                        self.landing[request.commit_log_offset_bytes] = topic
                self.ends.append(store.watermarks.wrote)
                clock.advance_ms(1_000)
            store.dispatch()

    @property
    def end(self) -> int:
        return self.ends[-1]

    def task(self, path: Path, **changes: object) -> LandingTask:
        values = {
            "path": str(path),
            "format": "parquet",
            "compression": "snappy",
            "topics": (),
            "include_system_topics": False,
            "log_folders": (str(self.root / "commitlog"),),
            "source": SOURCE,
        }
        return LandingTask(**(values | changes))  # type: ignore[arg-type]
