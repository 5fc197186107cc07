"""The brokers that the Python client is tested against, and the helpers for a test of one feature."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs
import pytest

import flintmq
from flintmq.config import load_config
from flintmq.core.errors import RefusedError
from flintmq.remoting.client import (
    AclSigner,
    AdminClient,
    Consumer,
    ConsumerSettings,
    MessageExt,
    MessageQueue,
    PullConsumer,
)
from flintmq.testing.embedded import SETTINGS, EmbeddedBroker
from flintmq.tests.interop.peer import Peer, fetch_jars

FLINTMQ: Final = "flintmq"
JAVA_49: Final = "java-4.9"
JAVA_53: Final = "java-5.3"
SITES: Final = {FLINTMQ: "FlintMQ", JAVA_49: "RocketMQ 4.9.7", JAVA_53: "RocketMQ 5.3.3"}
ACCOUNT: Final = ("matrixadmin", "matrixsecret")
LIMIT_S: Final = 60.0
BROKER: Final = (
    "enablePropertyFilter=true",
    "transactionCheckInterval=500",
    "transactionTimeOut=500",
    "traceTopicEnable=true",
    "waitTimeMillsInSendQueue=5000",
    "osPageCacheBusyTimeOutMills=5000",
)
"""Settings of every broker: filters, quick checks of transactions, and no refusals because the machine is busy."""
JAVA: Final = (
    "mappedFileSizeCommitLog=67108864",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "flushConsumerOffsetInterval=500",
    "registerNameServerPeriod=10000",
)
_LINES: Final = {
    JAVA_49: ({"PEER_LINE": "4"}, ()),
    JAVA_53: ({"PEER_LINE": "5"}, ("timerWheelEnable=true", "timerPrecisionMs=100", "transactionOpBatchInterval=20")),
}
_HEAP: Final = {"PEER_HEAP": "-Xms96m -Xmx320m", "PEER_NS_HEAP": "-Xms32m -Xmx96m", "PEER_LOG": "WARN"}


@attrs.frozen
class Site:
    """A running broker with its name server."""

    name: str
    name_server: str
    """``host:port``."""
    secured: Callable[[], Any]
    """Context manager of the broker ``secured`` in the cluster ``Secured``; requests must be signed by :data:`ACCOUNT`."""

    @property
    def is_java(self) -> bool:
        return self.name != FLINTMQ


def start_site(name: str, work: Path, held: ExitStack) -> Site:
    """Start a broker and its name server, which end with ``held``. Skips if Java is missing (see :func:`fetch_jars`)."""
    work.mkdir(parents=True, exist_ok=True)
    if name == FLINTMQ:
        tls = certificate(work)
        settings = [f"tls.server.certPath={tls[0]}", f"tls.server.keyPath={tls[1]}", "tls.server.mode=permissive"]
        broker = held.enter_context(EmbeddedBroker(work / "store", settings=[*BROKER, *settings]))
        return Site(name, broker.name_server_address, lambda: _secured_flintmq(work, broker.name_server_address))
    jars_of(name)
    peer = java_peer(name, work)
    held.enter_context(peer.name_server())
    held.enter_context(peer.broker(work / "store", *java_settings(name), kill=True))  # 5.3 takes 25 s to end
    asyncio.run(registered(peer.namesrv))
    return Site(name, peer.namesrv, lambda: _secured_java(name, work, peer.namesrv))


async def registered(name_server: str) -> None:
    """Wait until a name server knows a broker; brokers of 5.3 serve before it does."""
    async with AdminClient(name_server) as admin:
        await until(admin.masters, "the broker to register")


def jars_of(name: str) -> Path:
    """Return the folder of the jars of a broker's line; of 4.9 for FlintMQ's."""
    return fetch_jars(_LINES.get(name, _LINES[JAVA_49])[0])


def java_peer(name: str, work: Path) -> Peer:
    """Return a Java broker and name server of a line that need little memory, not started yet."""
    return Peer(work, _HEAP | _LINES[name][0])


def java_settings(name: str) -> tuple[str, ...]:
    """Return the settings of a Java broker of a line."""
    return (*BROKER, *JAVA, *_LINES[name][1])


def certificate(work: Path) -> tuple[Path, Path]:
    """Return a new certificate that signs itself, and its key."""
    paths = work / "server.pem", work / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    arguments = [*command.split(), "-out", str(paths[0]), "-keyout", str(paths[1])]
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)
    return paths


def _accounts(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"accounts:\n- accessKey: {ACCOUNT[0]}\n  secretKey: {ACCOUNT[1]}\n  admin: true\n")
    path.chmod(0o600)


@contextmanager
def _secured_flintmq(work: Path, name_server: str) -> Iterator[None]:
    _accounts(work / "plain_acl.yml")
    own = (f"store.path={work / 'secured'}", f"namesrv.addresses={name_server}", "broker.name=secured")
    secure = ("broker.cluster=Secured", "aclEnable=true", f"acl.file={work / 'plain_acl.yml'}")
    with flintmq.Broker(load_config(None, (*SETTINGS, *own, *secure, "autoCreateTopicEnable=false"), {})):
        yield


@contextmanager
def _secured_java(name: str, work: Path, name_server: str) -> Iterator[None]:
    peer = Peer(work, _HEAP | _LINES[name][0] | {"PEER_BROKER": "secured", "PEER_CLUSTER": "Secured"})
    peer.namesrv = name_server
    store = work / "secured"
    if name == JAVA_49:
        _accounts(Path(f"{store}.run") / "conf" / "plain_acl.yml")
        secure: tuple[str, ...] = ("aclEnable=true",)
    else:
        account = f'{{"username":"{ACCOUNT[0]}","password":"{ACCOUNT[1]}"}}'
        provider = "org.apache.rocketmq.auth.authentication.provider"
        secure = (
            "authenticationEnabled=true",
            f"authenticationProvider={provider}.DefaultAuthenticationProvider",
            f"authenticationMetadataProvider={provider}.LocalAuthenticationMetadataProvider",
            f"initAuthenticationUser={account}",
            f'innerClientAuthenticationCredentials={{"accessKey":"{ACCOUNT[0]}","secretKey":"{ACCOUNT[1]}"}}',
        )
    with peer.broker(store, *BROKER, *JAVA, *secure, "autoCreateTopicEnable=false", kill=True):
        yield


def signer() -> AclSigner:
    """Return the object that signs requests as :data:`ACCOUNT`."""
    return AclSigner(*ACCOUNT)


@attrs.frozen
class Room:
    """A broker, names of topics and groups, and a folder that only one test of a feature uses."""

    site: Site
    name: str
    folder: Path

    @property
    def address(self) -> str:
        """``host:port`` of the name server."""
        return self.site.name_server

    def group(self, which: str = "g") -> str:
        """Return the name of a group of this test."""
        return f"{self.name}-{which}"

    async def topic(self, queues: int = 4, which: str = "t", named: str = "", **options: Any) -> str:
        """Create a topic, and return its name when the name server knows it."""
        topic = named or f"{self.name}-{which}"
        async with AdminClient(self.address, hooks=options.pop("hooks", ())) as admin:
            targets = {} if "cluster" in options else {"address": next(iter((await admin.masters()).values()))}
            await admin.create_topic(topic, queues=queues, **targets, **options)
            await until(lambda: known(admin, topic, queues), f"the name server to know {topic}")
        return topic

    def settings(self, **changes: Any) -> ConsumerSettings:
        """Return settings of a consumer that begins at the first message and looks for queues often."""
        quick = {"rebalance_interval_s": 0.2, "commit_interval_s": 0.2, "lock_interval_s": 0.2, "retry_delay_s": 0.05}
        return ConsumerSettings(**{"consume_from": "CONSUME_FROM_FIRST_OFFSET", "delay_level": 1, **quick, **changes})

    async def consume(
        self, topic: str, count: int, expression: str = "*", expression_type: str = "TAG", **options: Any
    ) -> list[MessageExt]:
        """Return the first messages that a member of a new group consumes."""
        seen: list[MessageExt] = []
        done = asyncio.Event()

        async def listen(message: MessageExt) -> None:
            seen.append(message)
            if len(seen) >= count:
                done.set()

        group, settings = options.pop("group", self.group()), options.pop("settings", self.settings())
        async with Consumer(group, self.address, listen, settings=settings, **options) as consumer:
            await consumer.subscribe(topic, expression, expression_type)
            await asyncio.wait_for(done.wait(), LIMIT_S)
        return seen

    async def stored(self, topic: str, count: int, **options: Any) -> list[MessageExt]:
        """Return the visible messages of a topic, queue by queue, once there are at least the given number."""
        async with PullConsumer(self.group("stored"), self.address, **options) as consumer:
            queues = await consumer.queues(topic)

            async def visible() -> bool:
                return sum([await consumer.max_offset(queue) for queue in queues]) >= count

            await until(visible, f"{count} messages of {topic}")  # Java's brokers show them a moment after the answer
            return [message for queue in queues for message in await read_queue(consumer, queue)]


async def read_queue(consumer: PullConsumer, queue: MessageQueue) -> list[MessageExt]:
    """Return every message that a queue has now."""
    found: list[MessageExt] = []
    at, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
    while at < end:
        result = await consumer.pull(queue, at)
        found += result.messages
        at = result.next_begin_queue_offset
    return found


async def known(admin: AdminClient, topic: str, queues: int) -> bool:
    """Return whether the name server knows a topic with this number of queues."""
    try:
        route = await admin.topic_route(topic)
    except RefusedError:
        return False
    return all(queue.read_queue_nums == queues for queue in route.queue_datas)


async def until(holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll until a condition holds; brokers are other processes, which send no notification."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    while not await holds():
        assert loop.time() < deadline_s, f"waited {limit_s:g} s for {what}"
        await asyncio.sleep(0.02)


class Sites:
    """The brokers of a session, each started when a test first asks for it."""

    def __init__(self, work: Path, held: ExitStack) -> None:
        self._work = work
        self._held = held
        self._started: dict[str, Site] = {}

    def room(self, name: str, folder: Path) -> Room:
        """Return a room at a broker."""
        if name not in self._started:
            self._started[name] = start_site(name, self._work / name, self._held)
        return Room(self._started[name], f"m{secrets.token_hex(4)}", folder)


def site_params(names: tuple[str, ...] = tuple(SITES)) -> list[Any]:
    """Return the parameters of a test that runs at each broker; FlintMQ's by default, the others with ``--slow``."""
    java = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(180)]
    return [pytest.param(name, marks=java if name != FLINTMQ else [], id=name) for name in names]


@attrs.frozen
class Feature:
    """A row of the table in docs/compatibility.md."""

    area: str
    name: str
    differs: dict[str, str]
    """Descriptions of different behavior, keyed by broker; the test checks that behavior, too."""


def feature(area: str, name: str, *, differs: dict[str, str] | None = None) -> Callable[[Any], Any]:
    """Make a test of a coroutine function: it is run in a room at each broker."""

    def decorate(work: Callable[[Room], Any]) -> Any:
        @pytest.mark.parametrize("room", site_params(), indirect=True)
        def test(room: Room) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(2 * LIMIT_S):
                    await work(room)

            asyncio.run(bounded())

        test.__name__ = cast("Any", work).__name__
        test.__doc__ = work.__doc__
        cast("Any", test).feature = Feature(area, name, differs or {})
        return test

    return decorate
