"""A process that may have few descriptors: connections leave enough of them to the store, and nothing is ever fenced for want
of one."""

from __future__ import annotations

import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bare_wire import Wire
from broker_process import BrokerProcess

from flintmq.remoting.server.descriptors import connections_ceiling
from flintmq.remoting.wire.codes import RequestCode

LIMIT = 1_024
SILENT = 1_100
IN_TIME_S = 20.0

pytestmark = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2 * SILENT, reason="so many connections need ulimit -Hn of 2,200"
)


@pytest.fixture(autouse=True)
def many_descriptors() -> Iterator[None]:
    """This process holds the other ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def served(store: Path, *settings: str, role: str = "broker", limit: int = LIMIT) -> BrokerProcess:
    """A process with a hard limit, which serves."""
    process = BrokerProcess(store, *settings, role=role)
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
    process.wait_ready()
    return process


def sockets_of(process: BrokerProcess) -> int:
    """How many descriptors of a process are sockets."""
    found = 0
    for entry in Path(f"/proc/{process.process.pid}/fd").iterdir():
        try:
            found += str(entry.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return found


@contextmanager
def silent_peers(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing. Those that nobody accepts wait in the kernel's line, and are connected all the same."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)), timeout=10)) for _ in range(count)]


def until(is_so: object, what: str) -> None:
    """Waits for something that another process does."""
    assert callable(is_so)
    end_s = time.monotonic() + IN_TIME_S
    while not is_so():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)


def cpu_s(process: BrokerProcess) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{process.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def known(wire: Wire) -> bool:
    """Whether a name server answers."""
    return wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Nobody"}).code == 17


@pytest.mark.timeout(120)
@pytest.mark.parametrize("strategy", ["flush_real_time", pytest.param("group_commit", marks=pytest.mark.slow)])
def test_a_broker_serves_clients_while_1100_other_connections_are_silent(tmp_path: Path, strategy: str) -> None:
    """1,100 peers at a limit of 1,024: whoever is connected goes on sending, to new topics and into new files too; nothing is
    fenced; and when the peers go, others come in."""
    broker = served(tmp_path / "store", f"flush.strategy={strategy}", "store.commit_log_file_bytes=262144")
    healthy = Wire(broker.address)
    assert healthy.is_served()
    ceiling = connections_ceiling(LIMIT)
    with silent_peers(broker.address, SILENT):
        until(lambda: sockets_of(broker) > ceiling - 64, "connections are accepted up to the reserve")
        before_s = cpu_s(broker)
        for number in range(60):
            answer = healthy.send(f"New{number}", bytes(20_000))
            assert answer.code == 0, answer
        assert healthy.is_served("Another")
        assert sockets_of(broker) <= ceiling
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1.0:
            assert healthy.is_served()
            time.sleep(0.1)
        assert cpu_s(broker) - before_s < 3.0, "a listener that cannot accept takes no processor"
    newcomer = Wire(broker.address)
    newcomer.socket.settimeout(IN_TIME_S)
    assert newcomer.is_served()
    assert healthy.is_served()
    assert broker.end(signal.SIGTERM) == 0, broker.log.read_text()
    healthy.close()
    newcomer.close()
    told = broker.log.read_text()
    assert "fenced" not in told
    assert told.count("connections wait to be accepted") < 10
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.timeout(120)
def test_a_name_server_serves_clients_while_many_other_connections_are_silent(tmp_path: Path) -> None:
    """It answers connected clients, and accepts others when the silent connections have ended."""
    server = served(tmp_path / "store", role="namesrv")
    healthy = Wire(server.address)
    assert known(healthy)
    with silent_peers(server.address, SILENT):
        until(lambda: sockets_of(server) > connections_ceiling(LIMIT) - 64, "accepted up to the reserve")
        assert known(healthy)
        assert sockets_of(server) <= connections_ceiling(LIMIT)
    newcomer = Wire(server.address)
    assert known(newcomer)
    assert server.end(signal.SIGTERM) == 0
    healthy.close()
    newcomer.close()


@pytest.mark.timeout(120)
def test_a_broker_with_tls_serves_clients_while_many_other_connections_are_silent(tmp_path: Path) -> None:
    """The other listener, at a small limit, of which a quarter is reserved."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl, which is not installed")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    files = {"keyout": tmp_path / "key.pem", "out": tmp_path / "certificate.pem"}
    made = [*command.split(), *(word for name, path in files.items() for word in (f"-{name}", str(path)))]
    subprocess.run(made, check=True, capture_output=True)
    tls = (f"listen.tls.certificate={files['out']}", f"listen.tls.key={files['keyout']}", "listen.tls.mode=permissive")
    broker = served(tmp_path / "store", *tls, limit=256)
    healthy = Wire(broker.address)
    assert healthy.is_served()
    with silent_peers(broker.address, 300):
        until(lambda: sockets_of(broker) > connections_ceiling(256) - 32, "accepted up to the reserve")
        for number in range(20):
            assert healthy.send(f"New{number}", bytes(20_000)).code == 0
        assert sockets_of(broker) <= connections_ceiling(256)
    newcomer = Wire(broker.address)
    newcomer.socket.settimeout(IN_TIME_S)
    assert newcomer.is_served()
    healthy.close()
    newcomer.close()
    assert broker.end(signal.SIGTERM) == 0, broker.log.read_text()
    assert "fenced" not in broker.log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_queue_files_of_600_topics_hold_no_file_descriptors(tmp_path: Path) -> None:
    """Files of queues hold no descriptor: 600 topics are no different from one, through a restart as well."""
    broker = served(tmp_path / "store", "flush.strategy=group_commit")
    healthy = Wire(broker.address)
    with silent_peers(broker.address, SILENT):
        until(lambda: sockets_of(broker) > connections_ceiling(LIMIT) - 64, "accepted up to the reserve")
        for number in range(600):
            answer = healthy.send(f"T{number}", b"first")
            assert answer.code == 0, answer
    assert broker.end(signal.SIGKILL) != 0
    healthy.close()
    broker = served(tmp_path / "store", "flush.strategy=group_commit")
    with silent_peers(broker.address, SILENT):
        healthy = Wire(broker.address)
        with pytest.raises(TimeoutError):
            healthy.ask(RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=1.0)  # it waits in line behind the silent ones
    for number in range(600):
        assert [record.body for record in healthy.pull_all(f"T{number}")] == [b"first"]
        assert healthy.send(f"T{number}", b"second").code == 0
    assert broker.end(signal.SIGTERM) == 0
    healthy.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_holds_20000_queues_with_a_limit_of_1024_file_descriptors(tmp_path: Path) -> None:
    """20,000 queues, each with its files, at a limit of 1,024; and again after a start."""
    broker = served(tmp_path / "store")
    wire = Wire(broker.address)
    for topic in range(5_000):
        opaques = [wire.post_send(f"T{topic}", b"%d" % queue, queue_id=queue) for queue in range(4)]
        assert {wire.answer(opaque).code for opaque in opaques} == {0}, topic
    wire.close()
    assert broker.end(signal.SIGTERM) == 0
    broker = served(tmp_path / "store")
    wire = Wire(broker.address)
    for topic in range(0, 5_000, 7):
        for queue in range(4):
            assert wire.pull(f"T{topic}", queue_id=queue).bodies == [b"%d" % queue]
            assert wire.send(f"T{topic}", b"more", queue_id=queue).queue_offset == 1
    wire.close()
    assert broker.end(signal.SIGTERM) == 0
