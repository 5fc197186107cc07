"""A backup of a broker under load is, byte for byte, its log up to the position, however often a backup is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.backup.check import check_backup
from flintmq.programs.backup.manifest import read_manifest
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify
from flintmq.remoting.client.pull_consumer import PullConsumer

RATE = 20_000
FILE_BYTES = 16 << 20
SIZES = (f"store.commit_log_file_bytes={FILE_BYTES}", "index.max_hash_slot_num=50000", "index.max_index_num=200000")
_START_S = 60


class Commands:
    """``python -m flintmq`` in processes of their own."""

    def __init__(self, folder: Path) -> None:
        checkout = folder / "checkout"
        checkout.mkdir()
        (checkout / "flintmq").symlink_to(Path(flintmq.__file__).parent)  # the repository is the package
        self._folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLINTMQ", "NAMESRV"))}
        self._environment = inherited | {"PYTHONPATH": str(checkout)}

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flintmq", *map(str, arguments)]
        log = (self._folder / "commands.log").open("a")
        with log:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment, cwd=self._folder
            )

    def json(self, *arguments: object) -> Any:
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{arguments}: {out}{(self._folder / 'commands.log').read_text()[-3000:]}"
        return json.loads(out.splitlines()[-1])

    @contextmanager
    def broker(self, store: Path, *settings: str) -> Iterator[str]:
        """A name server and a broker; gives the former's address."""
        given = [part for setting in (*SIZES, "listen.vip=false", *settings) for part in ("--set", setting)]
        process = self.start("run", "--store", store, "--namesrv-port", 0, "--port", 0, *given)
        timer = threading.Timer(_START_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            ready = re.search(r"READY .*namesrv=(\S+)", process.stdout.readline())
            timer.cancel()
            assert ready, (self._folder / "commands.log").read_text()[-3000:]
            yield ready.group(1)
        finally:
            timer.cancel()
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)


@pytest.fixture(name="commands")
def make_commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def log_bytes(folder: Path, begin: int, end: int) -> bytes:
    """The bytes of a log's files between two positions."""
    parts = []
    for path in sorted(folder.iterdir()):
        start = int(path.name)
        if start < end and start + FILE_BYTES > begin:
            parts.append(path.read_bytes()[max(0, begin - start) : end - start])
    return b"".join(parts)


async def consume_half(name_server: str, topic: str) -> None:
    async with PullConsumer("billing", [name_server]) as consumer:
        for queue in await consumer.queues(topic):
            await consumer.commit(queue, await consumer.max_offset(queue) // 2)


async def counts(name_server: str, topic: str) -> tuple[int, int]:
    """How many messages a topic has, and how far the group is."""
    async with PullConsumer("billing", [name_server]) as consumer:
        queues = await consumer.queues(topic)
        ends = [await consumer.max_offset(queue) for queue in queues]
        return sum(ends), sum([await consumer.committed(queue) for queue in queues])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", [(), ("dispatchers=consume_queue,index,spark_feed",)], ids=["queues", "feed"])
def test_backups_made_under_load_restore_the_log_of_the_broker_byte_for_byte(
    commands: Commands, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    """20,000 messages a second and more arrive while three backups are made; then all is compared, restored and read."""
    store, target, restored = tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    with commands.broker(store, *settings) as name_server:
        commands.json("topics", "create", "Load", "-n", name_server, "--json")
        load = commands.start(
            *("bench", "send", "-n", name_server, "--batch", 16, "--size", 200, "--connections", 2),
            *("--seconds", 12, "--inflight", 4, "--topic", "Load"),
        )
        made: list[dict[str, Any]] = []
        while load.poll() is None:
            made.append(commands.json("store", "backup", store, target, "--json"))
            asyncio.run(consume_half(name_server, "Load"))
        out, _ = load.communicate()
        result = json.loads(out.splitlines()[-1])
        during = made[:-1]
        assert len(during) >= 3
        assert result["rate"] >= RATE, f"the load was no load: {result}"
        assert all(one["told_by"] == ("feed" if settings else "queues") for one in made)
        assert all(later["position"] > earlier["position"] for earlier, later in pairwise(during))
    manifest = read_manifest(target)
    assert manifest is not None
    end = manifest.end_offset_bytes
    assert end > 4 * FILE_BYTES
    assert log_bytes(target / "log", 0, end) == log_bytes(store / "commitlog", 0, end)
    checked = commands.json("store", "restore", target, "--verify", "--json")
    assert checked["sound"]
    commands.json("store", "restore", target, restored, "--json")
    assert log_bytes(restored / "commitlog", 0, end) == log_bytes(store / "commitlog", 0, end)
    assert not any(log_bytes(restored / "commitlog", end, end + FILE_BYTES))
    report = verify(StoreFiles(restored), DELAY_LEVEL_MS)
    assert report.is_sound, report.findings[:5]
    assert report.records == checked["records"]
    assert not [found for found in report.findings if "it would miss" in found.advice]
    with commands.broker(restored) as name_server:
        messages, consumed = asyncio.run(counts(name_server, "Load"))
        assert messages == checked["records"]
        assert 0 < consumed <= messages


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_backup_leaves_the_previous_backup_intact(commands: Commands, tmp_path: Path) -> None:
    """Real processes, real SIGKILL, a broker that goes on writing."""
    store, target = tmp_path / "store", tmp_path / "backup"
    chance = random.Random(7)
    with commands.broker(store) as name_server:
        load = commands.start(
            *("bench", "send", "-n", name_server, "--batch", 4, "--size", 900, "--connections", 1),
            *("--seconds", 40, "--inflight", 1, "--topic", "Load"),
        )
        try:
            commands.json("store", "backup", store, target, "--json")
            killed, patience_s = 0, 0.2  # it follows what a backup takes here: some are killed, and some end
            for _ in range(16):
                before = read_manifest(target)
                process = commands.start("store", "backup", store, target, "--limit", "200MiB")
                try:
                    process.communicate(timeout=chance.uniform(0.5, 1.5) * patience_s)
                    patience_s /= 1.5
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    killed, patience_s = killed + 1, patience_s * 1.5
                after = read_manifest(target)
                assert after is not None
                assert before is not None
                assert after.number in (before.number, before.number + 1)
                checked = check_backup(target)
                assert checked.is_sound, checked.findings
            assert killed >= 3
            commands.json("store", "backup", store, target, "--json")
        finally:
            load.kill()
            load.communicate()
    manifest = read_manifest(target)
    assert manifest is not None
    end = manifest.end_offset_bytes
    assert log_bytes(target / "log", 0, end) == log_bytes(store / "commitlog", 0, end)
    assert check_backup(target).is_sound
