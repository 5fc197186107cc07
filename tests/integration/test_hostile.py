"""Hostile peers beside a healthy one: its waits must not double meanwhile, and nothing may be left of them 5 s after.

Broker, attacker, healthy client and a bystander are four processes. Machines hiccup, and an attacker takes processor time from
everybody: calm and attacked stretches take turns, the client asks the broker and the bystander, a server that only echoes, in
turns, the median of the stretches counts, and an attack whose first measurement is bad is measured again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attacks
import pytest
from bare_wire import Wire, send_fields
from broker_process import BrokerProcess

from flintmq.config.secret import Secret
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.command import encode_command, request
from flintmq.remoting.wire.signature import add_signature

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes in /proc"),
]

CALM_S = 0.4
ATTACK_S = 0.7
TURNS = 3
ATTEMPTS = 4
ALLOWED_MS = 15.0
"""Waits of some tenths of a millisecond double with every hiccup of the machine: up to so much more is no doubling. It is what
the broker takes for three slices of work (``core/store/reput_message_service.py``)."""
BYSTANDER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := peer.recv(1000):
    peer.sendall(data)
"""
BACK_S = 5.0
BACK_BYTES = 48 * 1024 * 1024
SECRET = "the healthy client's secret"


def signed(fields: dict[str, Any]) -> dict[str, str]:
    sent = {name: str(value) for name, value in fields.items()}
    add_signature(sent, b"", "healthy-key", Secret(SECRET), "")
    return sent


@pytest.fixture(scope="module", params=[False, True], ids=["open", "with access control"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker; with access control for those attacks that are about it."""
    folder = tmp_path_factory.mktemp("hostile")
    overrides = ["store.commit_log_file_bytes=64MiB", "listen.backlog=4096"]
    if request.param:
        file = folder / "acl.yml"
        file.write_text(
            f'accounts: [{{accessKey: healthy-key, secretKey: "{SECRET}", admin: true}},\n'
            " {accessKey: attacker-key, secretKey: what was recorded somewhere, topicPerms: [Attacked=SUB]}]\n"
        )
        file.chmod(0o600)
        overrides += ["acl.enable=true", f"acl.file={file}"]
    process = BrokerProcess(folder / "store", *overrides, shared=True)
    try:
        process.wait_ready()
        yield process
    finally:
        process.process.terminate()
        status = process.wait()
    text = process.log.read_text()
    assert status == 0, text[-3000:]
    assert "Traceback" not in text, text[-3000:]


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def sockets(pid: int) -> int:
    """How many a process has; its files are the store's, which may grow."""
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(link.readlink()).startswith("socket:")
    return count


def p99_ms(waits_s: list[float]) -> float:
    ordered = sorted(waits_s)
    return ordered[len(ordered) * 99 // 100] * 1000


@pytest.fixture(scope="module")
def bystander() -> Iterator[socket.socket]:
    """A connection to a process that answers what it is told, and that nobody attacks."""
    process = subprocess.Popen([sys.executable, "-c", BYSTANDER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, socket.create_connection(("127.0.0.1", int(process.stdout.readline())), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def kept_s(pid: int) -> float:
    """How long in all a main thread could have run while the machine ran something else; 0 where Linux does not say."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


def waits(pid: int, wire: Wire, bystander: socket.socket, seconds: float) -> tuple[list[float], list[float]]:
    """How long a healthy client's requests take, one after the other, and what the bystander takes in between. Time in which
    the machine kept the broker from its processor is not the broker's."""
    found, beside = [], []
    end_s = time.perf_counter() + seconds
    while (begin_s := time.perf_counter()) < end_s:
        kept_before_s = kept_s(pid)
        answer = wire.ask(Code.GET_MAX_OFFSET, signed({"topic": "Healthy", "queueId": 0}), timeout_s=20)
        found.append(time.perf_counter() - begin_s - (kept_s(pid) - kept_before_s))
        assert answer.code == 0, answer
        time.sleep(0.001)
        begin_s = time.perf_counter()
        bystander.sendall(b"x" * 200)
        assert bystander.recv(1000)
        beside.append(time.perf_counter() - begin_s)
        time.sleep(0.001)
    return found, beside


@contextlib.contextmanager
def attacker(name: str, address: str, checkout: Path) -> Iterator[Callable[[], None]]:
    """A process that attacks from the call on until the end."""
    process = subprocess.Popen(
        [sys.executable, attacks.__file__, name, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin

    def begin() -> None:
        stdin.write("\n")
        stdin.flush()

    try:
        assert process.stdout.readline() == "READY\n"
        yield begin
    finally:
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        process.stdout.close()
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0


def measured(name: str, broker: BrokerProcess, wire: Wire, bystander: socket.socket) -> tuple[float, float]:
    """The 99th percentiles, in ms, of waits as they should be and of attacked ones; taken in turns, medians.

    As they should be: calm ones, or those at the bystander's during the attack where these are longer.
    """
    pid = broker.process.pid
    calm, beside, attacked = [], [], []
    for _ in range(TURNS):
        with attacker(name, broker.address, broker.store.parent / "checkout") as begin:
            calm.append(p99_ms(waits(pid, wire, bystander, CALM_S)[0]))
            begin()
            found, others = waits(pid, wire, bystander, ATTACK_S)
            attacked.append(p99_ms(found))
            beside.append(p99_ms(others))
    return max(statistics.median(calm), statistics.median(beside)), statistics.median(attacked)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda attack: attack.__name__)
def test_a_hostile_client_does_not_double_the_latency_of_other_clients(
    attack: Any, broker: BrokerProcess, bystander: socket.socket, request: pytest.FixtureRequest
) -> None:
    """While somebody does this the 99th percentile of a healthy client's waits does not double, and 5 s after the broker has
    as few connections as before, and as little memory."""
    closed = "with access control" in request.node.name
    if closed is not (attack is attacks.replayed_signatures):
        pytest.skip("replayed signatures are for a broker with access control, the others for one without")
    if attack is attacks.idle_connections and resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 6_000:
        pytest.skip("5,000 connections need as many descriptors: ulimit -Hn is too low")
    pid = broker.process.pid
    wire = Wire(broker.address)
    try:
        waits(pid, wire, bystander, 0.1)
        tried = []
        peers, memory = sockets(pid), anonymous_bytes(pid)
        for _ in range(ATTEMPTS):
            tried.append(measured(attack.__name__, broker, wire, bystander))
            calm_ms, attacked_ms = tried[-1]
            if attacked_ms < max(2 * calm_ms, calm_ms + ALLOWED_MS):
                break
        else:
            pytest.fail(f"99th percentiles in ms, as they should be and attacked: {tried}")
        print(f"{attack.__name__}: 99th percentile {calm_ms:.2f} ms calm, {attacked_ms:.2f} ms attacked")
        end_s = time.monotonic() + BACK_S
        while sockets(pid) > peers or anonymous_bytes(pid) > memory + BACK_BYTES:
            left = (sockets(pid) - peers, (anonymous_bytes(pid) - memory) >> 20)
            assert time.monotonic() < end_s, f"left 5 s after: {left[0]} connections, {left[1]} MiB"
            time.sleep(0.05)
        waits(pid, wire, bystander, 0.1)
    finally:
        wire.close()


def test_memory_of_large_messages_is_released_after_the_messages_are_stored(broker: BrokerProcess) -> None:
    """Forty connections with two messages of 4 MiB each, all half there at once: seconds after they are stored the broker has
    not much more memory than before, whatever its allocator would like to keep."""
    pid = broker.process.pid
    before_bytes = anonymous_bytes(pid)
    fields = signed(send_fields("Large"))
    data = (
        encode_command(request(Code.SEND_MESSAGE_V2, fields, bytes(4 * 1024 * 1024), language="JAVA", version=407)) * 2
    )
    wires = [Wire(broker.address) for _ in range(40)]
    try:
        for wire in wires:
            wire.socket.settimeout(60)
            wire.socket.sendall(data[:-1_000])
        while anonymous_bytes(pid) < before_bytes + 40 * 3 * 1024 * 1024:
            time.sleep(0.02)
        for wire in wires:
            wire.socket.sendall(data[-1_000:])
        for wire in wires:
            assert [wire.read().opaque, wire.read().opaque]
    finally:
        for wire in wires:
            wire.close()
    end_s = time.monotonic() + BACK_S
    while anonymous_bytes(pid) > before_bytes + BACK_BYTES:
        assert time.monotonic() < end_s, f"{(anonymous_bytes(pid) - before_bytes) >> 20} MiB are kept"
        time.sleep(0.05)


def test_each_attack_program_opens_at_least_two_connections_to_the_broker(broker: BrokerProcess) -> None:
    """An attack that fails at once would be withstood by anybody: each still runs after a while, with connections."""
    pid = broker.process.pid
    before = sockets(pid)
    for attack in (attacks.half_open, attacks.slow_loris_in_the_header, attacks.oneway_flood):
        with attacker(attack.__name__, broker.address, broker.store.parent / "checkout") as begin:
            begin()
            end_s = time.monotonic() + 20
            while sockets(pid) < before + 2:
                assert time.monotonic() < end_s, attack.__name__
                time.sleep(0.02)
