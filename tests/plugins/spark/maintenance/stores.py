"""Stores for maintenance: small files, several topics, everything a rebuild has to get right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.config.sections.models import BrokerConfig, IndexSection
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.doctor import rebuild as doctor
from flintmq.testing.clock import ManualClock
from flintmq.testing.store import message, open_store, snapshot

FILE_BYTES = 16 * 1024
BEGIN_MS = 1_700_000_000_000


def config_of(root: Path, **store: Any) -> BrokerConfig:
    config = BrokerConfig(index=IndexSection(max_hash_slot_num=16, max_index_num=64))
    sizes: dict[str, Any] = {"commit_log_file_bytes": FILE_BYTES, "consume_queue_file_bytes": 400, "preallocate": False}
    return attrs.evolve(config, store=attrs.evolve(config.store, **(sizes | store), path=str(root)))


def fill(root: Path, count: int = 300, **store: Any) -> None:
    """A store that a broker stopped: queues of several files, tags, keys, delays, transactions, several index files."""
    clock = ManualClock(BEGIN_MS)
    opened = open_store(root, config=config_of(root, **store), clock=clock)
    try:
        for number in range(count):
            topic = ("Orders", "Payments", "a|b%c")[number % 3]
            batch = [
                message(
                    topic,
                    number % 4,
                    b"x" * (number * 13 % 400),
                    tags=f"Tag{number % 5}" if number % 6 else "",
                    keys=f"k{number % 50} größe{number}" if number % 2 else "",
                    uniq_key=f"7F0000010000{number:020X}" if number % 7 else "",
                )
            ]
            if number % 10 == 0:
                batch += [
                    message(SCHEDULE_TOPIC, 3, b"later", DELAY="4"),
                    message(topic, 0, b"half", sys_flag=4, keys="half"),
                    message(topic, 0, b"rolled back", sys_flag=12, keys="gone"),
                    message(topic, 1, b"committed", sys_flag=8, keys="there"),
                ]
            opened.put(batch)
            clock.advance_ms(701)
        opened.dispatch()
    finally:
        opened.close()


def loop_rebuilt(root: Path, copy: Path, config: BrokerConfig) -> None:
    """A copy whose queues and index the broker's own loop has made."""
    shutil.copytree(root, copy)
    doctor.rebuild(copy, attrs.evolve(config, store=attrs.evolve(config.store, path=str(copy))), DELAY_LEVEL_MS)


def queues_of(root: Path) -> dict[str, bytes]:
    return snapshot(root, "consumequeue")


def index_of(root: Path) -> list[bytes]:
    """In order; the names are times."""
    return [data for _name, data in sorted(snapshot(root, "index").items())]
