"""TLS on the ports of brokers and name servers: what is spoken, what is refused, and that no fault ends a server."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.config import ConfigError
from flintmq.config.sections.models import TlsSection
from flintmq.core.errors import RemotingError
from flintmq.remoting.client import Message, Producer, PullConsumer
from flintmq.remoting.server import tls_listener
from flintmq.remoting.server.tls import ServerTls, client_context
from flintmq.remoting.wire.codes import RequestCode as Code

Encrypted = Callable[[Any, ssl.SSLContext], Wire]
PLAIN_FRAME = b"\0\0\0\x04\0\0\0\0"


@pytest.fixture(scope="session")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed certificates: one.pem, two.pem and client.pem, each with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes certificates with openssl, which is not installed")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two", "client"):
        made = subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")],
            capture_output=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
    return folder


def serving(pems: Path, mode: str = "permissive") -> list[str]:
    return [
        f"listen.tls.mode={mode}",
        f"listen.tls.certificate={pems / 'one.pem'}",
        f"listen.tls.key={pems / 'one.key'}",
    ]


def trusting(pems: Path, name: str = "one", **more: Any) -> ssl.SSLContext:
    return client_context(pems / f"{name}.pem", **more)


@pytest.fixture
def encrypted() -> Iterator[Encrypted]:
    """``encrypted(server, context)`` is a connection after its handshake, closed with the test."""
    made: list[socket.socket] = []

    def open_one(server: Any, context: ssl.SSLContext) -> Wire:
        wire = Wire(server.address)
        made.append(wire.socket)
        wire.socket = context.wrap_socket(wire.socket)
        made.append(wire.socket)
        return wire

    yield open_one
    for one in made:
        one.close()


def test_permissive_tls_accepts_plain_and_encrypted_connections(
    configure: Callable[..., Any],
    encrypted: Encrypted,
    connect: Callable[[Any], Wire],
    pems: Path,
    unexpected: list[str],
) -> None:
    """Permissive: plain and encrypted clients on one port, sends larger than a TLS record, answers to both."""
    with flintmq.Broker(configure(*serving(pems))) as broker:
        plain, secret = connect(broker), encrypted(broker, trusting(pems))
        assert secret.socket.version() in ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]
        bodies = [b"x" * 300_000, b"y"]
        assert [secret.send("T", body).queue_offset for body in bodies] == [0, 1]
        assert plain.send("T", b"z").queue_offset == 2
        for wire in (plain, secret):
            assert [record.body for record in wire.pull_all("T")] == [*bodies, b"z"]


def test_required_tls_refuses_plain_connections(
    configure: Callable[..., Any], pems: Path, unexpected: list[str]
) -> None:
    """A certificate alone means required; the broker's own registration and our client are encrypted then."""
    overrides = serving(pems, "auto")

    async def run() -> None:
        async with flintmq.NameServer(configure(*overrides)) as names:  # noqa: SIM117 - the broker needs its address
            async with flintmq.Broker(configure(*overrides, f"namesrv.addresses={names.address}")) as broker:
                for server in (names, broker):
                    wire = Wire(server.address)
                    await asyncio.to_thread(wire.socket.sendall, PLAIN_FRAME)
                    assert await asyncio.to_thread(wire.is_closed_by_peer)
                    wire.close()
                context = trusting(pems)
                async with Producer("P", names.address, ssl_context=context) as producer:
                    assert (await producer.send(Message("T", b"hello"))).queue_offset == 0
                async with PullConsumer("G", names.address, ssl_context=context) as consumer:
                    queues = await consumer.queues("T")
                    pulled = [await consumer.pull(queue, 0) for queue in queues]
                    assert [message.body for result in pulled for message in result.messages] == [b"hello"]
                async with Producer("P", names.address) as producer:
                    with pytest.raises(RemotingError, match=r"may want TLS \(ssl_context, FLINT_TLS\)"):
                        await producer.send(Message("T", b"hello"))
                async with Producer("P", names.address, ssl_context=trusting(pems, "two")) as producer:
                    with pytest.raises(RemotingError, match=r"the certificate of .* is not trusted: .*FLINT_TLS_CA"):
                        await producer.send(Message("T", b"hello"))

    asyncio.run(run())


def test_a_broker_without_tls_closes_a_connection_that_starts_a_tls_handshake(
    configure: Callable[..., Any], encrypted: Encrypted, pems: Path
) -> None:
    """Without a certificate there is no TLS, and a client that tries is told at once."""
    with flintmq.Broker(configure()) as broker, pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
        encrypted(broker, trusting(pems))


def test_the_error_of_a_tls_client_at_a_plain_port_names_the_cause(configure: Callable[..., Any], pems: Path) -> None:
    async def run() -> None:
        async with (
            flintmq.NameServer(configure()) as names,
            Producer("P", names.address, ssl_context=trusting(pems)) as producer,
        ):
            with pytest.raises(RemotingError, match=r"the TLS handshake failed .*FLINT_TLS"):
                await producer.send(Message("T", b"hello"))

    asyncio.run(run())


def test_a_failed_handshake_closes_only_its_connection(
    configure: Callable[..., Any],
    encrypted: Encrypted,
    connect: Callable[[Any], Wire],
    pems: Path,
    unexpected: list[str],
) -> None:
    """Half a hello, garbage behind the first byte, silence, an old version, an unknown authority: others are served."""
    with flintmq.Broker(configure(*serving(pems))) as broker:
        host, _, port = broker.address.rpartition(":")
        mute = [socket.create_connection((host, int(port))) for _ in range(3)]
        for data in (b"\x16", b"\x16" + b"garbage" * 20, b"\x16\x03\x01\xff\xff", b"\x16\x03\x03\x00\x01\x00"):
            peer = socket.create_connection((host, int(port)), timeout=5)
            peer.sendall(data)
            mute.append(peer)
        for context in (trusting(pems, "two"), ssl.create_default_context()):
            context.check_hostname = False
            with pytest.raises(ssl.SSLError):
                encrypted(broker, context)
        old = client_context(verify=False)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            encrypted(broker, old)
        assert connect(broker).is_served()
        assert encrypted(broker, trusting(pems)).is_served()
        for peer in mute:
            peer.close()


def test_the_tls_handshake_timeout_closes_only_connections_that_have_begun_a_handshake(
    configure: Callable[..., Any], pems: Path, monkeypatch: pytest.MonkeyPatch, unexpected: list[str]
) -> None:
    """Clients open connections ahead of their first request; only a handshake that has begun has a bound of its own."""
    monkeypatch.setattr(tls_listener, "TLS_HANDSHAKE_TIMEOUT_S", 0.2)
    with flintmq.Broker(configure(*serving(pems))) as broker:
        host, _, port = broker.address.rpartition(":")
        pool = [Wire(broker.address) for _ in range(3)]
        begun = socket.create_connection((host, int(port)), timeout=20)
        begun.sendall(b"\x16\x03\x01")
        with contextlib.suppress(ConnectionError):
            assert begun.recv(1) == b"", "its time is over"
        begun.close()
        for wire in pool:
            assert wire.is_served(), "though it was silent for longer"
            wire.close()


def test_a_connection_on_which_no_byte_arrives_is_closed_after_the_idle_timeout(
    configure: Callable[..., Any], pems: Path, unexpected: list[str]
) -> None:
    """A descriptor must not be held for ever."""
    with flintmq.Broker(configure(*serving(pems), "listen.idle_timeout_ms=1s")) as broker:
        host, _, port = broker.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as silent:
            assert silent.recv(1) == b""


def test_silent_connections_count_against_max_connections(
    configure: Callable[..., Any], pems: Path, unexpected: list[str]
) -> None:
    """Peers that say nothing must not hold more descriptors than those that speak."""
    with flintmq.Broker(configure(*serving(pems), "listen.max_connections=3")) as broker:
        host, _, port = broker.address.rpartition(":")
        silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
        with socket.create_connection((host, int(port)), timeout=20) as further:
            assert further.recv(1) == b"", "closed at once"
        for one in silent:
            one.close()


def test_pending_handshakes_of_one_address_are_bounded(
    configure: Callable[..., Any],
    encrypted: Encrypted,
    pems: Path,
    monkeypatch: pytest.MonkeyPatch,
    unexpected: list[str],
) -> None:
    """One address may be in the midst of so many and no more; another one comes in, and the places are given again."""
    monkeypatch.setattr(tls_listener, "TLS_PENDING_PER_ADDRESS_MAX", 3)
    with flintmq.Broker(configure(*serving(pems))) as broker:
        host, _, port = broker.address.rpartition(":")
        mute = [socket.create_connection((host, int(port)), timeout=5) for _ in range(3)]
        further = socket.create_connection((host, int(port)), timeout=5)
        assert further.recv(1) == b"", "closed at once"
        other = socket.create_connection((host, int(port)), timeout=5, source_address=("127.0.0.2", 0))
        with trusting(pems).wrap_socket(other) as wrapped:
            assert wrapped.version()
        for peer in (*mute, further):
            peer.close()
        listener = broker.server._listeners[0]
        deadline_s = time.monotonic() + 20
        while listener._pending_of and time.monotonic() < deadline_s:  # type: ignore[union-attr]
            time.sleep(0.01)
        assert encrypted(broker, trusting(pems)).is_served()


def test_client_certificates_are_required_if_configured(
    configure: Callable[..., Any], encrypted: Encrypted, pems: Path, unexpected: list[str]
) -> None:
    """Asked for with ``client_ca``, and with ``require_client_certificate`` nobody comes in without one."""
    ca = f"listen.tls.client_ca={pems / 'client.pem'}"
    own = {"certificate": pems / "client.pem", "key": pems / "client.key"}
    with flintmq.Broker(configure(*serving(pems), ca, "listen.tls.require_client_certificate=true")) as broker:
        assert encrypted(broker, trusting(pems, **own)).is_served()
        for context in (trusting(pems), trusting(pems, certificate=pems / "two.pem", key=pems / "two.key")):
            with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                encrypted(broker, context).ask(Code.GET_BROKER_CONFIG)
    with flintmq.Broker(configure(*serving(pems), ca, store="optional")) as broker:
        assert encrypted(broker, trusting(pems)).is_served()


def test_a_renewed_certificate_is_used_without_a_restart(
    configure: Callable[..., Any], encrypted: Encrypted, pems: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Certificates live for weeks now; a half-written one changes nothing and is told once."""
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"

    def install(name: str) -> None:
        shutil.copy(pems / f"{name}.pem", certificate)
        shutil.copy(pems / f"{name}.key", key)

    install("one")
    tls = ServerTls(TlsSection(certificate=str(certificate), key=str(key)))
    first = tls.context
    assert not tls.reload()
    shutil.copy(pems / "two.pem", certificate)
    assert not tls.reload()
    assert not tls.reload()
    assert tls.context is first
    assert len([record for record in caplog.records if "remains in use" in record.message]) == 1
    shutil.copy(pems / "two.key", key)
    assert tls.reload()
    install("one")
    settings = [f"listen.tls.certificate={certificate}", f"listen.tls.key={key}", "listen.tls.mode=required"]
    with flintmq.Broker(configure(*settings)) as broker:
        before = encrypted(broker, trusting(pems, "one"))
        install("two")
        done = threading.Event()

        def renew() -> None:
            broker.timers.run_now("certificate")
            done.set()

        broker.state.loop.call_soon_threadsafe(renew)
        assert done.wait(5)
        assert encrypted(broker, trusting(pems, "two")).is_served()
        assert before.is_served(), "connections there are go on"
        with pytest.raises(ssl.SSLError):
            encrypted(broker, trusting(pems, "one"))


@pytest.mark.parametrize(
    ("overrides", "wrong"),
    [
        (["listen.tls.mode=required"], "listen.tls.certificate"),
        (["listen.tls.certificate=/nowhere/c.pem"], "cannot be used"),
        (["listen.tls.mode=enforcing"], "listen.tls.mode"),
        (["tls.server.mode=sometimes"], "listen.tls.mode"),
        (["tls.server.authClient=true"], "client_ca"),
    ],
)
def test_conflicting_tls_settings_are_refused(configure: Callable[..., Any], overrides: list[str], wrong: str) -> None:
    """A server that quietly listens in clear is the worst outcome."""
    with pytest.raises(ConfigError, match=wrong), flintmq.Broker(configure(*overrides)):
        pass
