"""Masters and slaves on loopback for the replication tests, and the comparison of what they hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bare_wire import settings

import flintmq
from flintmq.config import LoadedConfig

SECRET = "a secret of more than sixteen"
QUICK = (
    f"ha.secret={SECRET}",
    "ha.reconnect_interval_ms=50",
    "ha.sync_interval_ms=100",
    "ha.send_heartbeat_interval_ms=200",
    "ha.housekeeping_interval_ms=5000",
    "store.commit_log_file_bytes=65536",
    "store.preallocate=false",
)
PATIENCE_S = 30.0


def eventually(is_true: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Asks again and again; the first true answer. Raises AssertionError."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = is_true()
        if answer:
            return answer
        assert time.monotonic() < deadline_s, f"never: {what}"
        time.sleep(0.01)


def master_settings(store: Path, *overrides: str, role: str = "async_master") -> LoadedConfig:
    """A master that slaves may follow."""
    return settings(store, *QUICK, f"broker.role={role}", "ha.enable=true", *overrides)


def slave_settings(store: Path, master: flintmq.Broker | str, *overrides: str, broker_id: int = 1) -> LoadedConfig:
    """A slave of a master."""
    address = master if isinstance(master, str) else f"127.0.0.1:{master.ha_port}"
    followed = (f"ha.master_address={address}", "broker.role=slave", f"broker.id={broker_id}")
    return settings(store, *QUICK, *followed, *overrides)


def end_of(broker: flintmq.Broker) -> int:
    """Where a broker's log ends."""
    return broker.state.store.watermarks.wrote


def caught_up(master: flintmq.Broker, slave: flintmq.Broker) -> None:
    """Waits until the slave holds, and shows, what the master has."""
    eventually(
        lambda: end_of(slave) == end_of(master) == slave.state.store.watermarks.dispatched, "the slave has caught up"
    )


def log_bytes(store: Path) -> dict[str, bytes]:
    """The commit log's files, without what follows the last record."""
    return {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}


def assert_same_log(master: Path, slave: Path) -> None:
    """The logs are equal, byte for byte, from the slave's first file on."""
    of_slave = log_bytes(slave)
    of_master = {name: raw for name, raw in log_bytes(master).items() if name >= min(of_slave)}
    assert of_master.keys() == of_slave.keys()
    for name, raw in of_master.items():
        assert raw == of_slave[name], name


def assert_same_queues(master: Path, slave: Path) -> None:
    """Consume queues are what the log says, on both sides alike."""
    for path in sorted((master / "consumequeue").rglob("0" * 20)):
        other = slave / path.relative_to(master)
        assert other.read_bytes() == path.read_bytes(), path
