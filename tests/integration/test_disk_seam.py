"""An embedder's disk is the only way to the store: nothing below it is opened, made or removed behind that disk's back."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.plugins.retention.plugin import RetentionService
from flintmq.remoting.client import Consumer, ConsumerSettings, Message, MessageExt, Producer
from flintmq.testing.simulated_disk import SimulatedDisk

Configure = Callable[..., Any]

_EVENTS = (
    "open",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.listdir",
    "os.scandir",
    "os.truncate",
    "os.link",
)
_SEAM = ("core/io/os_disk.py", "core/io/os_region.py", "core/io/paths.py", "core/io/os_disk.py")


class Witness:
    """Looks at what Python does to files below a folder; those that the seam does not do are noted with their place."""

    def __init__(self) -> None:
        self.root = ""
        self.seen = 0
        self.behind: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.root or event not in _EVENTS:
            return
        path = arguments[0]
        if not isinstance(path, (str, bytes)) or not str(path).startswith(self.root):
            return
        self.seen += 1
        frames = traceback.extract_stack()
        if not any(frame.filename.endswith(_SEAM) for frame in frames):
            self.behind.append(f"{event} {path}\n" + "".join(traceback.format_list(frames[-6:-1])))


_WITNESS = Witness()  # an audit hook stays for ever: one for all tests, that looks while it has a folder


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    """Looks at the store of a test."""
    if not getattr(sys, "_flintmq_witness", False):
        sys.addaudithook(_WITNESS)
        sys._flintmq_witness = True  # type: ignore[attr-defined]
    _WITNESS.root, _WITNESS.seen, _WITNESS.behind = str(tmp_path / "store"), 0, []
    yield _WITNESS
    _WITNESS.root = ""


MUCH = (
    "flush.strategy=group_commit",
    "pull.property_filter=true",
    "pull.calc_filter_bitmap=true",
    "store.consume_queue_ext_enable=true",
    "dispatchers=consume_queue,index,spark_feed",
    "delay.timer_enable=true",
    "delay.levels=1s 2s",
    "groups.auto_create=true",
)


async def used(configure: Configure, disk: Any) -> None:
    """Topics and groups made, offsets, delays and timers kept, keys found, filters noted: twice, the second time recovered."""
    options: dict[str, Any] = {} if disk is None else {"disk": disk}
    for life in range(2):
        async with flintmq.NameServer(configure()) as name_server:
            overrides = (*MUCH, f"namesrv.addresses={name_server.address}")
            async with flintmq.Broker(configure(*overrides), **options) as broker:
                got = asyncio.Event()

                async def listen(_message: MessageExt, got: asyncio.Event = got) -> None:
                    got.set()

                settings = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET")
                async with (
                    Producer("p", name_server.address) as producer,
                    Consumer(f"g{life}", name_server.address, listen, settings=settings) as consumer,
                ):
                    await producer.send(Message(f"T{life}", b"x" * 5_000, keys="k", properties={"a": "1"}))
                    await consumer.subscribe(f"T{life}", "a = 1", "SQL92")
                    await asyncio.wait_for(got.wait(), 10)
                    for properties in ({"TIMER_DELAY_MS": "200000"}, {"TIMER_DELAY_SEC": "3"}):
                        await producer.send(Message("Later", b"", properties=properties))
                    await producer.send(Message("Later", b"", delay_level=2))
                await broker.put([flintmq.Message("In", b"y" * 3_000) for _ in range(500)])
                assert len(broker.state.store.reader.query_message(f"T{life}", "k", 9, 0, 2**62)[0]) >= 1
                broker.state.offsets.persist()
                broker.state.service(RetentionService).cleaner.delete_manually()
                broker.state.service(RetentionService).cleaner.run()


def test_every_file_operation_of_the_store_uses_the_disk_object_given_to_the_broker(
    configure: Configure, witness: Witness, tmp_path: Path
) -> None:
    """A start, much use, a stop, and the same on what is there then: also after a crash that lost the queues."""
    asyncio.run(used(configure, None))
    (tmp_path / "store" / "abort").touch()  # this test's own doing
    witness.behind.clear()
    seen = witness.seen
    asyncio.run(used(configure, None))
    assert seen > 100
    assert witness.seen > seen
    assert not witness.behind, "\n".join(dict.fromkeys(witness.behind))


def test_a_store_on_a_simulated_disk_creates_no_file_on_the_real_disk(configure: Configure, tmp_path: Path) -> None:
    """In memory: the machine's own disk never sees a file, and the second start finds everything again."""
    disk = SimulatedDisk()
    asyncio.run(used(configure, disk))
    assert not (tmp_path / "store").exists()
    names = {str(path.relative_to(tmp_path / "store")) for path in disk.image().files}
    for wanted in ("config/topics.json", "config/consumerOffset.json", "flint/delay_levels.json", "checkpoint"):
        assert wanted in names
    assert "config/consumerFilter.json" in names
    assert any(name.startswith("flint/timer/") and name.endswith(".timers") for name in names)
    assert {"flint/timer/position.json", "flint/epochs", "flint/feed"} <= names
    assert "abort" not in names
    again = SimulatedDisk(disk.image())
    assert again.exists(tmp_path / "store" / "config" / "topics.json")
