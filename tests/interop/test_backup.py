"""A running Java broker's store is backed up; the restored one is opened by both brokers, and nothing is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import flintmq
from flintmq.core.io import fastjson
from flintmq.dispatchers.consume_queue.delay_times import DELAY_LEVEL_MS
from flintmq.programs.backup.backup import BackupPlan, make_backup
from flintmq.programs.backup.restore import RestorePlan, restore_backup
from flintmq.programs.doctor.files import StoreFiles
from flintmq.programs.doctor.verify import verify

from .conftest import Peer
from .test_round_trip import SIZES, check, commit_half, eventually_read, flint_config, read_all, send, wait_for_offsets

pytestmark = [pytest.mark.slow, pytest.mark.java]


async def eventually_has(peer: Peer, expected: list[str], timeout_s: float) -> None:
    """A delayed message whose delivery was not in ``delayOffset.json`` yet is delivered again, and may be there twice."""
    async with asyncio.timeout(timeout_s):
        while set(await read_all(peer)) != set(expected):  # noqa: ASYNC110 - the broker is another process
            await asyncio.sleep(0.5)


@pytest.mark.timeout(300)
def test_java_and_flintmq_brokers_can_start_from_a_restored_backup_of_a_running_java_broker(
    peer: Peer, tmp_path: Path
) -> None:
    """Twice, so that the second backup goes on where the first has ended."""
    store, target = tmp_path / "store", tmp_path / "backup"
    with peer.name_server(), peer.broker(store, *SIZES):
        expected = asyncio.run(send(peer, "java", 60))
        first = make_backup(BackupPlan(store=store, target=target))
        expected += asyncio.run(send(peer, "java2", 60))
        committed = asyncio.run(commit_half(peer))
        wait_for_offsets(store, committed)
        asyncio.run(eventually_read(peer, [*expected, "java later", "java2 later"], 40))
        second = make_backup(BackupPlan(store=store, target=target))
    assert (first.manifest.told_by, second.manifest.told_by) == ("queues", "queues")
    assert 0 < first.manifest.end_offset_bytes < second.manifest.end_offset_bytes
    assert second.manifest.damage == ()
    expected += ["java later", "java2 later"]

    for name in ("for_java", "for_flint"):
        made = restore_backup(RestorePlan(backup=target, store=tmp_path / name, delay_level_ms=DELAY_LEVEL_MS))
        assert made.log_end_offset_bytes == second.manifest.end_offset_bytes
        report = verify(StoreFiles(tmp_path / name), DELAY_LEVEL_MS)
        assert report.is_sound, report.findings[:5]
    with peer.name_server(), peer.broker(tmp_path / "for_java", *SIZES):
        asyncio.run(check(peer, expected, committed, "java"))
        asyncio.run(check(peer, expected, committed, "java2"))
        expected_java = expected + asyncio.run(send(peer, "java3", 10))
        asyncio.run(eventually_has(peer, [*expected_java, "java3 later"], 40))
    config = flint_config(tmp_path / "for_flint", peer)
    with flintmq.NameServer(config), flintmq.Broker(config):
        asyncio.run(check(peer, expected, committed, "java"))


@pytest.mark.timeout(300)
def test_a_java_broker_serves_all_messages_of_a_restored_backup_of_a_flintmq_store(peer: Peer, tmp_path: Path) -> None:
    """The way back to RocketMQ holds for backups as well."""
    store, target, restored = tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    config = flint_config(store, peer)
    with flintmq.NameServer(config), flintmq.Broker(config) as broker:
        expected = asyncio.run(send(peer, "flint", 60))
        committed = asyncio.run(commit_half(peer))
        assert broker.address
        wait_for_offsets(store, committed)
        made = make_backup(BackupPlan(store=store, target=target))
    # The store may have had no index file yet, from which its sizes could be read.
    restore_backup(RestorePlan(backup=target, store=restored, config=config.config))
    assert made.manifest.store_id
    topics = fastjson.loads((restored / "config" / "topics.json").read_bytes())
    assert "RoundTrip" in topics["topicConfigTable"]
    with peer.name_server(), peer.broker(restored, *SIZES):
        asyncio.run(eventually_has(peer, [*expected, "flint later"], 40))
        asyncio.run(check(peer, [*expected, "flint later"], committed, "flint"))
