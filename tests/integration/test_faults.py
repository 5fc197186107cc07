"""Whatever breaks between a sync master and its slave: nothing acknowledged is lost, and no offset has two values.

Real processes, SIGSTOP, SIGKILL and a proxy that is cut. Five runs each with ``--slow``, other numbers with ``--fault-runs``,
longer pauses with ``--fault-seconds 30``.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster import Cluster, Fault, pause
from replicas import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SIDE_BY_SIDE = 5
"""Runs at a time: most of each is waiting."""


def cut_the_link(cluster: Cluster) -> None:
    cluster.proxy.cut()
    time.sleep(cluster.duration_s())
    cluster.proxy.heal()


def lose_what_the_slave_says(cluster: Cluster) -> None:
    cluster.proxy.stop_forwarding(up=True)
    time.sleep(cluster.duration_s())
    cluster.proxy.heal()


def lose_what_the_master_says(cluster: Cluster) -> None:
    cluster.proxy.stop_forwarding(down=True)
    time.sleep(cluster.duration_s())
    cluster.proxy.heal()


def pause_the_master(cluster: Cluster) -> None:
    pause(cluster.master, cluster.duration_s())


def pause_the_slave(cluster: Cluster) -> None:
    pause(cluster.slave, cluster.duration_s())


def kill_the_slave(cluster: Cluster) -> None:
    cluster.slave.end(signal.SIGKILL)
    time.sleep(cluster.random.uniform(0.0, 1.0))
    cluster.slave = cluster.start_slave()


def kill_the_master(cluster: Cluster) -> None:
    cluster.master.end(signal.SIGKILL)
    cluster.master = cluster.start_master()


FAULTS: list[Fault] = [
    cut_the_link,
    lose_what_the_slave_says,
    lose_what_the_master_says,
    pause_the_master,
    pause_the_slave,
    kill_the_slave,
    kill_the_master,
]


Rounds = Callable[[Callable[[Cluster], None]], None]


@pytest.fixture
def rounds(tmp_path: Path, request: pytest.FixtureRequest) -> Rounds:
    """``rounds(history)`` lets a history happen ``--fault-runs`` times, several side by side, each with a cluster and chances
    of its own. Raises what went wrong in any of them."""
    fault_s = request.config.getoption("--fault-seconds")

    def once(history: Callable[[Cluster], None], run: int) -> None:
        work = tmp_path / str(run)
        work.mkdir()
        cluster = Cluster(work, seed=run, fault_s=fault_s)
        try:
            history(cluster)
        except BaseException as error:
            error.add_note(f"run {run}, in {work}")
            raise
        finally:
            cluster.close()

    def all_of(history: Callable[[Cluster], None]) -> None:
        runs = range(request.config.getoption("--fault-runs"))
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            ended = [pool.submit(once, history, run) for run in runs]
        errors = [error for error in (one.exception() for one in ended) if error is not None]
        if errors:
            raise BaseExceptionGroup(f"{len(errors)} of {len(runs)} runs failed", errors)

    return all_of


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_single_replication_fault_loses_no_acknowledged_message(rounds: Rounds, fault: Fault) -> None:
    """Under load, whatever is cut, paused or killed; and then the cluster works again."""

    def history(cluster: Cluster) -> None:
        cluster.load()
        cluster.wait_for_acknowledgements()
        fault(cluster)
        cluster.wait_for_acknowledgements()
        cluster.check(cluster.master, cluster.slave)

    rounds(history)


def test_a_promoted_slave_has_every_acknowledged_message(rounds: Rounds) -> None:
    """The master is lost for good: what was acknowledged is at the slave. The old master comes back as a slave."""

    def history(cluster: Cluster) -> None:
        cluster.load()
        cluster.wait_for_acknowledgements()
        cluster.master.end(signal.SIGKILL)
        cluster.slave.end(signal.SIGTERM)
        cluster.master = cluster.start_master("s", role="async_master")
        cluster.wait_for_acknowledgements()
        # What it had not sent nobody was promised: an operator who knows that says so.
        cluster.slave = cluster.start_slave("m", "ha.truncate=always")
        cluster.wait_for_acknowledgements()
        cluster.check(cluster.master, cluster.slave)

    rounds(history)


def test_a_slave_refuses_to_replicate_from_a_master_whose_store_was_restored_from_a_backup(rounds: Rounds) -> None:
    """It would take back what was acknowledged. The slave says so, keeps what it has, and takes over."""

    def history(cluster: Cluster) -> None:
        cluster.load()
        cluster.wait_for_acknowledgements()
        cluster.slave.end(signal.SIGTERM)  # its copy is whole; what comes now is acknowledged by nobody
        cluster.end_clients()
        cluster.master.end(signal.SIGTERM)
        shutil.copytree(cluster.folder("m"), cluster.work / "copy")
        cluster.master = cluster.start_master()
        cluster.slave = cluster.start_slave()
        cluster.load()
        cluster.wait_for_acknowledgements(100)
        cluster.end_clients()
        cluster.master.end(signal.SIGKILL)
        shutil.rmtree(cluster.folder("m"))
        shutil.copytree(cluster.work / "copy", cluster.folder("m"))
        held = (cluster.folder("s") / "commitlog" / f"{0:020d}").read_bytes()
        restored = cluster.start_master()
        eventually(lambda: "older copy" in cluster.slave.log.read_text(), "the slave says why it does not follow", 30)
        assert (cluster.folder("s") / "commitlog" / f"{0:020d}").read_bytes() == held
        restored.end(signal.SIGTERM)
        cluster.slave.end(signal.SIGTERM)
        cluster.master = cluster.start_master("s", role="async_master")
        cluster.check(cluster.master)

    rounds(history)


def test_a_slave_with_messages_that_its_master_lacks_refuses_to_replicate_and_keeps_its_messages(
    rounds: Rounds,
) -> None:
    """It was a master for a while: both logs hold what the other has not, and only a human can choose."""

    def history(cluster: Cluster) -> None:
        cluster.load(1)
        cluster.wait_for_acknowledgements()
        cluster.end_clients()
        cluster.slave.end(signal.SIGTERM)
        other = cluster.start_master("s", "listen.ha_port=0", role="async_master")
        cluster.load(1)
        cluster.wait_for_acknowledgements()
        cluster.end_clients()
        other.end(signal.SIGTERM)
        cluster.slave = cluster.start_slave()
        eventually(
            lambda: "is not followed" in cluster.slave.log.read_text(), "the slave says why it does not follow", 30
        )
        cluster.check(cluster.slave)

    rounds(history)
