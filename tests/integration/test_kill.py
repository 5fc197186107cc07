"""What was acknowledged survives: ``kill -9`` and SIGTERM under load, at random moments, again and again on one store.

The seed is printed; ``FLINTMQ_KILL_SEED`` repeats the moments as far as a machine can, ``FLINTMQ_KILLS`` sets how many.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from bare_wire import Wire
from broker_process import BrokerProcess, Promises, ended, load

from flintmq.tests.support.effort import first

TOPIC = "Promises"


def seeded() -> random.Random:
    seed = int(os.environ.get("FLINTMQ_KILL_SEED", str(random.SystemRandom().randrange(2**32))))
    print("FLINTMQ_KILL_SEED", seed)
    return random.Random(seed)


def kill_again_and_again(
    store: Path, kills: int, *overrides: str, load_s: float = 0.35, may_lose: bool = False
) -> Promises:
    """Start, check, load, kill; in between a kill while it starts, and in the end a stop in order."""
    chance = seeded()
    promises = Promises()
    acknowledged = 0
    for _ in range(kills):
        if chance.random() < 0.2:
            early = BrokerProcess(store, *overrides)
            time.sleep(chance.uniform(0.0, 0.6))
            early.end(signal.SIGKILL)
        broker = BrokerProcess(store, *overrides)
        broker.wait_ready()
        with closing(Wire(broker.address)) as with_check:
            promises.check(with_check, TOPIC, may_lose=may_lose)
            senders = load(broker.address, TOPIC, promises, chance)
            time.sleep(chance.uniform(0.02, load_s))
            assert broker.end(signal.SIGKILL) == -signal.SIGKILL
            acknowledged += ended(senders)
        assert (store / "abort").exists()
    assert not promises.refused, promises.refused[:3]
    for _ in range(2):  # the second start finds what the first one left
        broker = BrokerProcess(store, *overrides)
        broker.wait_ready()
        with closing(Wire(broker.address)) as wire:
            total = promises.check(wire, TOPIC, may_lose=may_lose)
            assert wire.is_served()
        assert broker.end(signal.SIGTERM) == 0
        assert not (store / "abort").exists()
    assert total >= (0 if may_lose else acknowledged)
    files = len(list((store / "commitlog").iterdir()))
    print(f"{kills} kills, {acknowledged} acknowledged, {total} found, {files} files")
    assert acknowledged > 0
    return promises


def test_no_acknowledged_message_is_lost_if_sigkill_ends_a_broker_with_group_commit(
    tmp_path: Path, effort: Callable[[int, int], int]
) -> None:
    """The promise of group commit, a few times."""
    kill_again_and_again(tmp_path / "store", effort(2, 5), "flush.strategy=group_commit")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_broker_with_group_commit_loses_no_acknowledged_message_if_it_is_killed_100_times(tmp_path: Path) -> None:
    """The promise of group commit at a hundred random moments, rolls of files and starts among them."""
    kills = int(os.environ.get("FLINTMQ_KILLS", "100"))
    kill_again_and_again(tmp_path / "store", kills, "flush.strategy=group_commit")


@pytest.mark.slow
def test_no_acknowledged_message_is_lost_if_sigkill_ends_a_broker_with_flush_real_time(tmp_path: Path) -> None:
    """A killed process loses nothing that lies in the page cache, whatever was not synced."""
    kill_again_and_again(tmp_path / "store", 2, "flush.strategy=flush_real_time")


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.timeout(300)
def test_a_broker_with_flush_real_time_loses_no_acknowledged_message_if_it_is_killed_30_times(tmp_path: Path) -> None:
    """More kills hit more moments of a write than the short test does."""
    kill_again_and_again(tmp_path / "store", 30, "flush.strategy=flush_real_time")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_broker_with_a_transient_store_pool_has_a_valid_commit_log_after_sigkill(tmp_path: Path) -> None:
    """With a pool, a kill may lose uncommitted messages, but leaves no hole, duplicate or partial message."""
    kill_again_and_again(
        tmp_path / "store",
        20,
        "flush.strategy=commit_real_time",
        "flush.commit_real_time.interval_ms=20",
        "flush.commit_real_time.thorough_interval_ms=20",
        may_lose=True,
    )


@pytest.mark.parametrize(
    "strategy", first(["commit_real_time"], ["group_commit", "flush_real_time", "commit_real_time"])
)
def test_sigterm_under_load_loses_no_message(tmp_path: Path, strategy: str) -> None:
    """An orderly stop keeps every acknowledgement under every strategy, and leaves a clean store."""
    chance = seeded()
    promises = Promises()
    store = tmp_path / "store"
    for _ in range(2):
        broker = BrokerProcess(store, f"flush.strategy={strategy}")
        broker.wait_ready()
        senders = load(broker.address, TOPIC, promises, chance, window=64)
        time.sleep(chance.uniform(0.1, 0.4))
        started_s = time.monotonic()
        assert broker.end(signal.SIGTERM) == 0, broker.log.read_text()[-2000:]
        assert time.monotonic() - started_s < 30
        assert ended(senders) > 0
        assert not (store / "abort").exists()
    broker = BrokerProcess(store, f"flush.strategy={strategy}")
    broker.wait_ready()
    with closing(Wire(broker.address)) as wire:
        assert promises.check(wire, TOPIC) >= len(promises.acknowledged)
    assert broker.end(signal.SIGTERM) == 0
    assert "Traceback" not in broker.log.read_text()
