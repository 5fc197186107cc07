"""Disks fill up, fail and come back: clients are told, reads go on, and what was acknowledged stays.

The scripted disk stands for the real one; where mounting is permitted, a real and very small one is tried as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire, records_of, settings
from broker_process import Promises

import flintmq
from flintmq.core.errors import RefusedError, StoreError, StoreLockedError
from flintmq.core.kernel.hookspecs import FolderContext
from flintmq.core.kernel.ports import FlushStatus, RecordBatch
from flintmq.core.log.store_lock import StoreLock
from flintmq.core.response_code import ResponseCode
from flintmq.dispatchers.consume_queue.consume_queue_table import ConsumeQueueTable, make_consume_queues
from flintmq.remoting.wire.codes import RequestCode
from flintmq.tests.support.faulty_disk import FaultyDisk

REAL = ("store.disk_min_free_bytes=0", "store.disk_full_ratio=99", "store.disk_forcible_ratio=98")
"""The broker refuses long before a disk is full; here it shall meet the end itself."""
UNAVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE


class Fences:
    """A plugin that notes when the broker was fenced."""

    plugin_name = "fences"

    def __init__(self) -> None:
        self.reasons: list[str] = []

    @flintmq.hookimpl
    def flintmq_broker_fenced(self, api: Any, reason: str) -> None:
        self.reasons.append(reason)


def run_timer(broker: flintmq.Broker, name: str) -> None:
    """A timer's work, now."""

    async def run() -> None:
        broker.timers.run_now(name)

    broker.call(run)


# a sync that fails


def test_no_send_is_acknowledged_after_a_failed_sync_of_the_log(configure: Any, connect: Any, tmp_path: Path) -> None:
    """The kernel may have dropped the pages: from the failure on every send is refused, reads of what is safe go on."""
    disk, fences, promises = FaultyDisk(), Fences(), Promises()
    config = configure("flush.strategy=group_commit")
    with flintmq.Broker(config, disk=disk, plugins=[fences]) as broker:
        wire = connect(broker)
        for number in range(20):
            answer = wire.send("T", b"safe %d" % number)
            assert answer.code == 0
            promises.promise(0, answer.queue_offset, b"safe %d" % number)
        fault = disk.fail("sync", within="commitlog")
        opaques = [wire.post_send("T", b"doubtful") for _ in range(50)]
        for opaque in opaques:
            answer = wire.answer(opaque)
            assert answer.code == UNAVAILABLE
            assert "store.fenced" in (answer.remark or "")
        disk.heal()
        refused = wire.send("T", b"late")
        assert refused.code == UNAVAILABLE
        assert "sync failed" in refused.remark
        with pytest.raises(RefusedError, match="fenced"):
            broker.put([flintmq.Message("T", b"in process")])
        assert fault.hits == 1
        assert [record.body for record in wire.pull_all("T")] == [b"safe %d" % number for number in range(20)]
        assert len(fences.reasons) == 1
        assert "sync failed" in fences.reasons[0]
    assert (tmp_path / "store" / "abort").exists()
    StoreLock(tmp_path / "store").release()
    with flintmq.Broker(config) as broker:
        assert not broker.state.store.started_clean
        wire = connect(broker)
        promises.check(wire, "T", queues=1)
        assert wire.is_served()


@pytest.mark.parametrize("strategy", ["flush_real_time", "commit_real_time"])
def test_a_broker_refuses_sends_after_a_failed_background_sync_of_the_log(
    configure: Any, connect: Any, tmp_path: Path, strategy: str
) -> None:
    """Acknowledged before the sync, so that one may be lost: but nothing more is taken once it is known."""
    disk, fences = FaultyDisk(), Fences()
    short = [f"flush.{strategy}.interval_ms=1", f"flush.strategy={strategy}"]
    if strategy == "commit_real_time":
        short.append("flush.commit_real_time.flush_interval_ms=1")
        short.append("flush.commit_real_time.flush_least_pages=0")
    short.append(f"flush.{strategy}.least_pages=0")
    with flintmq.Broker(configure(*short), disk=disk, plugins=[fences]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"first").code == 0
        disk.fail("sync", within="commitlog")
        codes = set()
        while UNAVAILABLE not in codes:
            codes.add(wire.send("T", b"x").code)
        assert codes <= {0, UNAVAILABLE}
        assert wire.send("T", b"late").code == UNAVAILABLE
        assert wire.pull("T").code == 0
    assert len(fences.reasons) == 1
    assert (tmp_path / "store" / "abort").exists()


def test_an_awaited_put_raises_an_error_if_syncing_the_log_to_disk_fails(configure: Any) -> None:
    """In-process the same promise: the await raises, and the status says FENCED."""

    async def live() -> None:
        disk = FaultyDisk()
        broker = flintmq.Broker(configure("flush.strategy=group_commit"), disk=disk)
        async with broker:
            await broker.put([flintmq.Message("T", b"safe")])
            disk.fail("sync", within="commitlog")
            batch = broker.put([flintmq.Message("T", b"doubtful")])
            with pytest.raises(RefusedError) as refused:
                await batch
            assert refused.value.reason == "store.fenced"
            assert batch.status is FlushStatus.FENCED

    asyncio.run(live())


@pytest.mark.parametrize("strategy", ["group_commit", "flush_real_time", "commit_real_time"])
def test_a_failed_log_sync_during_the_stop_of_a_broker_leaves_the_abort_file(
    configure: Any, connect: Any, tmp_path: Path, strategy: str
) -> None:
    """A stop that could not put everything on disk must not be called clean."""
    disk = FaultyDisk()
    slow = [f"flush.strategy={strategy}"]
    if strategy != "group_commit":
        slow += [f"flush.{strategy}.interval_ms=60000"]
    if strategy == "commit_real_time":
        slow.append("flush.commit_real_time.flush_interval_ms=60000")
    with flintmq.Broker(configure(*slow), disk=disk) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x").code == 0
        disk.fail("sync", within="commitlog")
        if strategy == "group_commit":
            assert wire.send("T", b"y").code == UNAVAILABLE
    assert (tmp_path / "store" / "abort").exists()


# a full disk


@pytest.mark.parametrize("strategy", ["group_commit", "commit_real_time"])
def test_sends_are_refused_until_the_full_disk_of_the_log_has_free_space(
    configure: Any, connect: Any, strategy: str, unexpected: list[str]
) -> None:
    """Sends are refused with the disk as the reason, pulls go on, and when there is room again so do sends."""
    disk = FaultyDisk()
    config = configure(f"flush.strategy={strategy}", "store.preallocate=false", "store.commit_log_file_bytes=65536")
    bodies: list[bytes] = []
    with flintmq.Broker(config, disk=disk) as broker:
        wire = connect(broker)
        assert wire.send("T", b"first").code == 0
        bodies.append(b"first")
        for _ in range(2):
            disk.fail("map_file", within="commitlog")
            refused = None
            for number in range(200):
                body = b"%d" % number * 1000
                answer = wire.send("T", body)
                if answer.code != 0:
                    refused = answer
                    break
                assert answer.queue_offset == len(bodies)
                bodies.append(body)
            assert refused is not None
            assert refused.code == UNAVAILABLE
            assert "disk is full" in refused.remark
            assert "store.path" in refused.remark
            assert wire.pull("T", _suspend_ms=10_000).code == 0, "with a pool the first message must be committed first"
            disk.heal()
            answer = wire.send("T", b"room again" * 100)
            assert answer.code == 0
            assert answer.queue_offset == len(bodies)
            bodies.append(b"room again" * 100)
        assert [record.body for record in wire.pull_all("T", at_least=len(bodies))] == bodies
    with flintmq.Broker(config) as broker:
        assert broker.state.store.started_clean
        assert [record.body for record in connect(broker).pull_all("T")] == bodies


def test_sends_are_refused_until_the_full_disk_of_the_queue_files_has_free_space(
    configure: Any, connect: Any, unexpected: list[str]
) -> None:
    """Dispatch stands still: sends are refused until it goes on, and then nothing is missing or twice."""
    disk = FaultyDisk()
    with flintmq.Broker(configure("flush.strategy=group_commit"), disk=disk) as broker:
        wire = connect(broker)
        assert wire.send("T", b"0").code == 0
        assert wire.pull("T", _suspend_ms=2_000).code == 0
        disk.fail("map_file", within="consumequeue")
        acknowledged = [b"0"]
        for _ in range(20):
            answer = wire.send("Another", b"x", queue_id=0)
            if answer.code != 0:
                break
            acknowledged.append(b"x")
        assert answer.code == UNAVAILABLE
        assert "disk is full" in answer.remark
        assert [record.body for record in wire.pull_all("T")] == [b"0"]
        disk.heal()
        run_timer(broker, "dispatch")
        assert wire.send("Another", b"y").code == 0
        found = [record.body for record in wire.pull_all("Another")]
        assert found[-1] == b"y"
        assert len(found) == len(acknowledged)


class Failing:
    """An essential dispatcher in place of the queues', that raises while it is told to."""

    plugin_name = "failing"
    broken = False

    @flintmq.hookimpl
    def flintmq_dispatchers(self, register: Any) -> None:
        plugin = self

        def make(context: FolderContext) -> ConsumeQueueTable:
            queues = make_consume_queues(context.folder)
            dispatch = queues.dispatch

            def dispatch_or_raise(batch: RecordBatch) -> None:
                if plugin.broken:
                    raise RuntimeError("out of order")
                dispatch(batch)

            queues.dispatch = dispatch_or_raise  # type: ignore[method-assign]
            return queues

        register("consume_queue", make, essential=True)


def test_sends_are_refused_while_the_dispatcher_of_consume_queues_raises_errors(configure: Any, connect: Any) -> None:
    """Messages that nobody can read must not be acknowledged; when the dispatcher works again, none is missing."""
    plugin = Failing()
    with flintmq.Broker(configure("flush.strategy=group_commit"), plugins=[plugin]) as broker:
        wire = connect(broker)
        assert wire.send("T", b"0").code == 0
        assert wire.pull("T", _suspend_ms=2_000).code == 0
        plugin.broken = True
        taken = 0
        while (answer := wire.send("T", b"x")).code == 0:
            taken += 1
            assert taken < 10
        assert answer.code == UNAVAILABLE
        assert "out of order" in answer.remark
        plugin.broken = False
        run_timer(broker, "dispatch")
        assert wire.send("T", b"1").code == 0
        assert [record.body for record in wire.pull_all("T")] == [b"0", *[b"x"] * taken, b"1"]


# real disks


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip(f"mounting is not permitted here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_broker_loses_no_acknowledged_message_if_the_file_system_of_its_store_becomes_full(
    tmp_path: Path, unexpected: list[str]
) -> None:
    """No signal ends the process, nothing acknowledged is lost, and room that comes back is used."""
    with mounted(tmp_path / "disk", "12m") as disk:
        config = settings(disk / "store", "flush.strategy=group_commit", *REAL)
        promises = Promises()
        bodies = []
        with flintmq.Broker(config) as broker:
            wire = Wire(broker.address)
            for number in range(20_000):
                body = b"%06d" % number + bytes(3000)
                answer = wire.send("T", body)
                if answer.code:
                    break
                bodies.append(body)
                promises.promise(0, answer.queue_offset, body)
            assert answer.code == UNAVAILABLE, answer
            assert "disk is full" in answer.remark
            assert len(bodies) > 1000
            _fill(disk / "filler")
            for topic in ("T", "New", "Newer"):
                assert wire.send(topic, bytes(3000)).code == UNAVAILABLE
            assert wire.ask(15, {"consumerGroup": "C", "topic": "T", "queueId": 0, "commitOffset": 7}).code == 0
            for timer in ("consumer offsets", "delay offsets"):
                with contextlib.suppress(StoreError):
                    run_timer(broker, timer)
            promises.check(wire, "T", queues=1)
            (disk / "filler").unlink()
            wire.close()
        with flintmq.Broker(config) as broker:
            wire = Wire(broker.address)
            promises.check(wire, "T", queues=1)
            wire.close()
    del broker


def test_sends_continue_after_space_is_freed_on_a_full_file_system(tmp_path: Path, unexpected: list[str]) -> None:
    """Somebody else's files filled the disk, and were deleted: nobody restarts the broker for that."""
    with mounted(tmp_path / "disk", "24m") as disk:
        config = settings(disk / "store", "flush.strategy=group_commit", *REAL)
        with flintmq.Broker(config) as broker:
            wire = Wire(broker.address)
            assert wire.send("T", b"first").code == 0
            _fill(disk / "filler")
            run_timer(broker, "dispatch")
            number = 0
            while (answer := wire.send("T", bytes(3000))).code == 0:
                number += 1
            assert answer.code == UNAVAILABLE
            assert wire.pull("T").code == 0
            (disk / "filler").unlink()
            for name in list(broker.timers._work):
                run_timer(broker, name)
            answer = wire.send("T", b"room")
            assert answer.code == 0, answer
            assert answer.queue_offset == number + 1
            wire.close()
        assert not (disk / "store" / "abort").exists()
    del broker


def test_stopping_a_broker_on_a_full_disk_closes_and_unlocks_the_store(tmp_path: Path) -> None:
    """Offsets that cannot be written do not keep the store from being closed and unlocked."""
    with mounted(tmp_path / "disk", "24m") as disk:
        config = settings(disk / "store", *REAL)
        with flintmq.Broker(config) as broker:
            wire = Wire(broker.address)
            assert wire.send("T", b"x").code == 0
            assert wire.ask(15, {"consumerGroup": "C", "topic": "T", "queueId": 0, "commitOffset": 1}).code == 0
            _fill(disk / "filler")
            wire.close()
        StoreLock(disk / "store").release()
        (disk / "filler").unlink()
        with flintmq.Broker(config) as broker:
            wire = Wire(broker.address)
            assert [record.body for record in wire.pull_all("T")] == [b"x"]
            wire.close()
    del broker


def _fill(path: Path) -> None:
    """Takes all the room there is."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def test_the_error_about_an_unwritable_store_folder_names_path_and_reason(tmp_path: Path) -> None:
    """The first thing that goes wrong in a container; the path and the reason must be in the error."""
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="file"), flintmq.Broker(settings(tmp_path / "file" / "store")):
        pass
    with mounted(tmp_path / "disk", "24m") as disk:
        with flintmq.Broker(settings(disk / "store", *REAL)) as broker:
            broker.put([flintmq.Message("T", b"x")])
        del broker
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with (
            pytest.raises(StoreError, match="Read-only file system") as caught,
            flintmq.Broker(settings(disk / "store", *REAL)),
        ):
            pass
        assert not isinstance(caught.value, StoreLockedError)
        assert str(disk) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    """The error must be as clear for a user without the permission to write as for a missing folder."""
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Permission denied"), flintmq.Broker(settings(tmp_path / "store")):
        pass


# files that a crash left half made


@pytest.mark.parametrize("name", ["commitlog/00000000000000000000", "checkpoint", "index/20260101000000000",
                                  "consumequeue/T/0/00000000000000000000", "abort", "lock",
                                  "config/topics.json", "config/consumerOffset.json"])  # fmt: skip
def test_a_broker_starts_with_an_empty_store_file_left_by_a_crash(
    configure: Any, connect: Any, tmp_path: Path, name: str
) -> None:
    """A kill between making a file and giving it its size must not keep the broker from starting."""
    store = tmp_path / "store"
    path = store / name
    path.parent.mkdir(parents=True)
    path.touch()
    (store / "abort").touch()
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.send("T", b"x", properties={"KEYS": "k"}).queue_offset == 0
        assert wire.is_served()
    with flintmq.Broker(configure()) as broker:
        assert [record.body for record in connect(broker).pull_all("T")] == [b"x"]


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0", "index"])
def test_a_broker_starts_although_a_full_disk_left_an_empty_file_after_the_last_store_file(
    configure: Any, connect: Any, tmp_path: Path, folder: str
) -> None:
    """A full disk can leave such a file while the store begins its next log file."""
    store = tmp_path / "store"
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        for number in range(10):
            assert wire.send("T", b"%d" % number, properties={"KEYS": "k"}).code == 0
    last = sorted((store / folder).iterdir())[-1]
    following = f"{int(last.name) + last.stat().st_size:020d}" if folder != "index" else "99990101000000000"
    (store / folder / following).touch()
    (store / "abort").touch()
    with flintmq.Broker(configure()) as broker:
        wire = connect(broker)
        assert wire.send("T", b"10", properties={"KEYS": "k"}).queue_offset == 10
        assert len(wire.pull_all("T")) == 11
        found = wire.ask(
            RequestCode.QUERY_MESSAGE,
            {"topic": "T", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62},
        )
        assert found.code == 0
        assert len(records_of(found.body)) == 11
