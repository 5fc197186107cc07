"""Masters and slaves on loopback for the replication tests, and the comparison of what they hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bare_wire import Wire, send_fields, sent, settings

import flintmq
from flintmq.config import LoadedConfig
from flintmq.core.record.batch import BatchItem, encode_batch
from flintmq.remoting.wire.codes import RequestCode

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
    """Return the end of a broker's log, in bytes."""
    return broker.state.store.watermarks.wrote


def caught_up(master: flintmq.Broker, slave: flintmq.Broker) -> None:
    """Waits until the slave holds, and shows, what the master has."""
    eventually(
        lambda: end_of(slave) == end_of(master) == slave.state.store.watermarks.dispatched, "the slave has caught up"
    )


def fill_log(wire: Wire, count: int, name: str = "m") -> list[bytes]:
    """Plain, delayed, half and batched messages, enough of them to fill files; returns the plain bodies."""
    bodies = []
    for number in range(count):
        body = b"%s %d " % (name.encode(), number) + b"x" * (number * 97 % 3000)
        assert wire.send("T", body, queue_id=number % 4).code == 0
        bodies.append(body)
        if number % 10 == 0:
            assert wire.send("T", b"later", properties={"DELAY": "1"}).code == 0
        if number % 10 == 5:
            half = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": f"{name}{number}"}
            assert wire.send("T", b"half", properties=half).code == 0
        if number % 10 == 7:
            items = encode_batch(BatchItem(0, b"batched %d" % n, b"") for n in range(5))
            fields = send_fields("T", 1, batch=True)
            assert sent(wire.ask(RequestCode.SEND_BATCH_MESSAGE, fields, items)).code == 0
    return bodies


def plain_bodies(wire: Wire) -> list[bytes]:
    """Everything that can be read of the topic."""
    return [record.body for queue_id in range(4) for record in wire.pull_all("T", queue_id=queue_id)]


def assert_same_log(master: Path, slave: Path) -> None:
    """What the slave holds is what the master has, byte for byte, from the slave's first file on."""
    of_slave = sorted((slave / "commitlog").iterdir())
    of_master = {path.name for path in (master / "commitlog").iterdir() if path.name >= of_slave[0].name}
    assert of_master == {path.name for path in of_slave}
    for path in of_slave:
        held = path.read_bytes()
        if path is of_slave[-1]:
            held = held.rstrip(b"\0")  # a master that stops may still end transactions
        assert (master / "commitlog" / path.name).read_bytes()[: len(held)] == held, path.name


def assert_same_queues(master: Path, slave: Path) -> None:
    """Consume queues are what the log says, on both sides alike."""
    for path in sorted((master / "consumequeue").rglob("0" * 20)):
        other = slave / path.relative_to(master)
        held = other.read_bytes().rstrip(b"\0")
        assert path.read_bytes()[: len(held)] == held, path
