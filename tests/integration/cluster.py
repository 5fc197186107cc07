"""A master and a slave in processes of their own, clients that remember everything, and faults between them."""

from __future__ import annotations

import hashlib
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from bare_wire import Wire
from broker_process import BrokerProcess
from link_proxy import LinkProxy, free_port
from replicas import SECRET, eventually

from flintmq.core.record.record import Record
from flintmq.tests.support.history import History, Outcome, Read, Sent, check

TOPIC: Final = "Faults"
QUEUES: Final = 4
BASE: Final = (
    f"ha.secret={SECRET}",
    "ha.reconnect_interval_ms=100",
    "ha.sync_interval_ms=200",
    "ha.send_heartbeat_interval_ms=200",
    "ha.housekeeping_interval_ms=2000",
    "ha.slave_timeout_ms=1000",
    "flush.strategy=group_commit",
    "store.commit_log_file_bytes=131072",
    "pull.slave_read=true",
)
UNKNOWN_CODES: Final = (10, 11, 12)


class Cluster:
    """A sync master with sync flush, and its slave behind a proxy. ``close`` ends all of them."""

    def __init__(self, work: Path, seed: int, fault_s: float = 3.0) -> None:
        self.work = work
        self._fault_s = fault_s
        self.random = random.Random(seed)
        self.history = History()
        self.ha_port = free_port()
        self.proxy = LinkProxy(self.ha_port)
        self.master_address = ""
        """Where clients send to; changes when a master starts anew."""
        self._clients: list[Client] = []
        self._brokers: list[BrokerProcess] = []
        self._started = 0
        self.master = self.start_master()
        self.slave = self.start_slave()

    def duration_s(self) -> float:
        """How long the next fault lasts."""
        return self.random.uniform(0.5, self._fault_s)

    # brokers

    def start_master(self, store: str = "m", *overrides: str, role: str = "sync_master") -> BrokerProcess:
        """A master on a store; clients go to it from now on."""
        settings = (*BASE, f"broker.role={role}", "ha.enable=true", f"listen.ha_port={self.ha_port}", *overrides)
        master = BrokerProcess(self.folder(store), *settings)
        self._brokers.append(master)
        master.wait_ready()
        self.master_address = master.address
        return master

    def start_slave(self, store: str = "s", *overrides: str) -> BrokerProcess:
        """A slave on a store, connected through the proxy."""
        settings = (*BASE, "broker.role=slave", "broker.id=1", f"ha.master_address={self.proxy.address}", *overrides)
        slave = BrokerProcess(self.folder(store), *settings)
        self._brokers.append(slave)
        slave.wait_ready()
        return slave

    def folder(self, store: str) -> Path:
        """Each store in a folder of its own, where its process keeps its log."""
        found = self.work / store / "store"
        found.parent.mkdir(exist_ok=True)
        return found

    # clients

    def load(self, senders: int = 3) -> None:
        """Starts senders and a reader."""
        for _ in range(senders):
            self._started += 1
            self._clients.append(SendingClient(self, f"p{self._started}", self.random.random()))
        self._clients.append(ReadingClient(self, self.random.random()))
        for client in self._clients:
            client.start()

    def acknowledged(self) -> int:
        return self.history.count(Outcome.ACKNOWLEDGED)

    def wait_for_acknowledgements(self, more: int = 30) -> None:
        """Until so many more messages are acknowledged: the cluster works."""
        wanted = self.acknowledged() + more
        eventually(lambda: self.acknowledged() >= wanted, f"{more} more acknowledgements", 60)

    def end_clients(self) -> None:
        """Stops them, and raises what went wrong in one."""
        for client in self._clients:
            client.stopping.set()
        for client in self._clients:
            client.join(60)
            assert not client.is_alive()
        for client in self._clients:
            if client.error is not None:
                raise client.error
        self._clients.clear()

    def close(self) -> None:
        for client in self._clients:
            client.stopping.set()
        for client in self._clients:
            client.join(60)
        self.proxy.close()
        for broker in self._brokers:
            broker.process.kill()
            broker.wait()

    # the end

    def check(self, *brokers: BrokerProcess) -> None:
        """Ends the clients, waits until the brokers hold the same, reads everything, and checks every promise."""
        self.end_clients()
        ends = eventually(lambda: self._same_ends(brokers), "the brokers hold the same messages", 60)
        assert sum(ends) > 0
        for broker in brokers:
            name = broker.store.parent.name
            wire = Wire(broker.address)
            try:
                reads = [_read(name, record) for q in range(QUEUES) for record in _all_of(wire, q, ends[q])]
            finally:
                wire.close()
            self.history.note_all(name, reads)
        violations = check(self.history)
        if violations:
            kept = self.work / "history.tsv"
            kept.write_text(self.history.to_text())
            logs = "\n".join(broker.log.read_text()[-1500:] for broker in brokers)
            raise AssertionError(f"{len(violations)} violations, {kept}: {violations[:5]}\n{logs}")

    def _same_ends(self, brokers: tuple[BrokerProcess, ...]) -> list[int] | None:
        """Per queue where it ends at every broker; None while they differ."""
        ends = []
        for broker in brokers:
            wire = Wire(broker.address)
            try:
                ends.append([wire.pull(TOPIC, 0, queue_id=queue_id).max_offset for queue_id in range(QUEUES)])
            except (OSError, EOFError):  # a busy machine: asked again
                return None
            finally:
                wire.close()
        return ends[0] if all(one == ends[0] for one in ends) and min(ends[0]) >= 0 else None


def pause(broker: BrokerProcess, seconds: float) -> None:
    """SIGSTOP, and SIGCONT some time later."""
    broker.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        broker.process.send_signal(signal.SIGCONT)


class Client(threading.Thread):
    """Does something again and again at whoever is the master, until it is told to stop."""

    def __init__(self, cluster: Cluster, seed: float) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    wire = Wire(self.cluster.master_address)
                except OSError:
                    self.stopping.wait(0.05)
                    continue
                try:
                    with suppress(EOFError, OSError, TimeoutError):
                        while not self.stopping.is_set():
                            self.step(wire)
                finally:
                    wire.close()
        except BaseException as error:
            self.error = error

    def step(self, wire: Wire) -> None:
        """One thing. Raises EOFError, OSError or TimeoutError when the connection is of no more use."""
        raise NotImplementedError


class SendingClient(Client):
    """Sends messages, each once, and notes what it was told."""

    def __init__(self, cluster: Cluster, name: str, seed: float) -> None:
        super().__init__(cluster, seed)
        self._producer = name
        self._number = 0

    def step(self, wire: Wire) -> None:
        self._number += 1
        queue_id = self.random.randrange(QUEUES)
        key = f"{self._producer}-{self._number}"
        body = f"{key} ".encode() + self.random.randbytes(self.random.randrange(0, 600))
        outcome, offset = Outcome.UNKNOWN, -1
        try:
            answer = wire.send(TOPIC, body, queue_id=queue_id)
            if answer.code == 0:
                outcome, offset = Outcome.ACKNOWLEDGED, answer.queue_offset
            elif answer.code in UNKNOWN_CODES:
                self.stopping.wait(0.02)
            else:
                assert answer.code in (2, 14), answer
                outcome = Outcome.REFUSED if "store.slave" in answer.remark else Outcome.UNKNOWN
        finally:
            self.cluster.history.note(
                Sent(key, self._producer, self._number, queue_id, digest_of(body), outcome, offset)
            )


class ReadingClient(Client):
    """Reads the newest messages of random queues."""

    def step(self, wire: Wire) -> None:
        queue_id = self.random.randrange(QUEUES)
        end = wire.pull(TOPIC, 0, queue_id=queue_id, maxMsgNums=1).max_offset
        if end <= 0:
            self.stopping.wait(0.02)
            return
        for record in wire.pull(TOPIC, max(0, end - 5), queue_id=queue_id, maxMsgNums=5).records:
            self.cluster.history.note(_read("reader", record))
        self.stopping.wait(0.01)


def digest_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def _read(reader: str, record: Record) -> Read:
    key = record.body.partition(b" ")[0].decode()
    return Read(reader, record.queue_id, record.queue_offset, key, digest_of(record.body))


def _all_of(wire: Wire, queue_id: int, end: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < end:
        answer = wire.pull(TOPIC, len(found), queue_id=queue_id)
        assert answer.code == 0, answer
        found += answer.records
    return found


Fault = Callable[[Cluster], None]
