"""Settings of the broker as a server: its identity, its addresses, its name servers, replication; and the name server's."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.config.secret import Secret
from flintmq.config.sections.security import TlsSection
from flintmq.config.units import DAY_MS, MIB

NAME = r"\S{1,127}"
ADDRESS = r"[^\s;,]+:\d{1,5}"
ROLES: Final = ("async_master", "sync_master", "slave")


def _role(text: str) -> str:
    """Return RocketMQ's spelling, which is in capitals, as ours."""
    return text.lower() if text.isupper() else text


@attrs.frozen(kw_only=True)
class BrokerSection:
    """``broker:`` — the broker's identity."""

    name: str = option("broker-a", rocketmq="brokerName", pattern=NAME, expects="a name without blanks")
    """The broker's name: masters and slaves of one set share it."""
    cluster: str = option("DefaultCluster", rocketmq="brokerClusterName", pattern=NAME, expects="a name without blanks")
    """The cluster the broker belongs to."""
    id: int = option(0, rocketmq="brokerId", minimum=0, maximum=2**63 - 1)
    """0 is the master of its set, anything else a slave."""
    role: str = option(
        "async_master",
        rocketmq="brokerRole",
        choices=ROLES,
        also=tuple(role.upper() for role in ROLES),
        converter=_role,
        feature="replication",
    )
    """A ``sync_master`` acknowledges only what a slave holds; a ``slave`` copies its master and takes no messages."""
    region: str = option("DefaultRegion", rocketmq="regionId")
    """The region's id, given to every message as MSG_REGION."""
    permission: int = option(6, rocketmq="brokerPermission", minimum=0, maximum=7)
    """What clients may do: 4 read, 2 write, 6 both."""
    trace_on: bool = option(True, rocketmq="traceOn")
    """Tells producers and consumers that they may trace messages."""
    shutdown_timeout_ms: int = option(10_000, minimum=0, maximum=DAY_MS)
    """How long a stop waits for requests under way before connections are closed."""

    def __attrs_post_init__(self) -> None:
        if self.role == "slave" and self.id == 0:
            raise ConfigError("'broker.id' 0 is the master's: a slave needs another one", key="broker.id")

    @property
    def is_slave(self) -> bool:
        """Return whether it copies a master."""
        return self.role == "slave"


@attrs.frozen(kw_only=True)
class ListenSection:
    """``listen:`` — sockets."""

    enable: bool = option(True)
    """Takes connections. ``false`` is for a broker inside a program, all clients of which are in the same process: it has no
    port, and no name server to register with."""
    host: str = option("127.0.0.1", rocketmq="bindAddress", pattern=r"\S+", expects="a host name or address")
    """The address to listen at; ``0.0.0.0`` is every interface."""
    port: int = option(10911, rocketmq="listenPort", minimum=0, maximum=65535)
    """The port clients speak to; 0 takes a free one."""
    vip: bool = option(True)
    """Also answers at ``port`` - 2, where clients with the VIP channel switched on send to; as in RocketMQ, no pull is answered
    there."""
    advertised_host: str | None = option(
        None, rocketmq="brokerIP1", pattern=r"[^\s;,=]{1,255}", expects="a host name, an address, or 'client'"
    )
    """The host the name server hands out for this broker; null is ``host``, or where that is every interface, an address of
    this machine. ``client`` is the address at which the client reached the name server, where both run on one machine."""
    advertised_port: int | None = option(None, minimum=1, maximum=65535)
    """The port it hands out; null is ``port``."""
    advertised: tuple[str, ...] = option(
        (), pattern=r"[A-Za-z0-9_-]{1,64}=[^\s;,=]{1,255}:\d{1,5}", expects="a list of LISTENER=HOST:PORT"
    )
    """What it hands out instead to clients that ask at a listener of ``nameserver.listeners``: ``LISTENER=HOST:PORT`` each."""
    ha_port: int | None = option(None, rocketmq="haListenPort", minimum=0, maximum=65535)
    """The port slaves replicate from; null is ``port`` + 1, or a free one where ``port`` is 0; 0 takes a free one."""
    idle_timeout_ms: int = option(
        120_000, rocketmq="serverChannelMaxIdleTimeSeconds", rocketmq_unit="s", minimum=1_000, maximum=DAY_MS
    )
    """A connection silent for so long is closed."""
    backlog: int = option(1024, rocketmq="serverSocketBacklog", minimum=1, maximum=65535)
    """Connections that may wait to be accepted."""
    max_connections: int = option(10_000, minimum=1, maximum=1_000_000)
    """Open connections; further ones are closed at once. Whatever it says, some of the process's descriptors (ulimit -n) are
    left to the store: connections beyond wait to be accepted."""
    max_connections_per_address: int = option(8_000, minimum=1, maximum=1_000_000)
    """Of them from one address; counts for the name server, too."""
    max_buffered_bytes: int = option(1024 * MIB, minimum=64 * MIB, maximum=1024 * 1024 * MIB)
    """Halves of frames and answers not read, of all connections together: beyond it the one that holds most is closed."""
    max_frame_bytes: int = option(16 * MIB, minimum=64 * 1024, maximum=16 * MIB)
    """A peer that announces a longer frame is disconnected."""
    loop: str = option("asyncio", choices=("auto", "asyncio", "uvloop"))
    """The event loop; ``auto`` takes uvloop where it is installed."""
    loop_blocked_warn_ms: int = option(500, minimum=0, maximum=DAY_MS)
    """How long something may block the event loop, and with it every client, before the log and ``flintmq status`` name the
    plugin, the hook and the line that does; 0 never."""
    insecure: bool = option(False)
    """Allows a broker or name server without access control to listen at an address that other machines reach."""
    tls: TlsSection = attrs.field(factory=TlsSection)
    """Encrypted connections."""

    def __attrs_post_init__(self) -> None:
        if self.vip and self.port in (1, 2):
            raise ConfigError(
                f"'listen.vip' needs port - 2, which does not exist for port {self.port}: choose another or vip: false",
                key="listen.vip",
            )


@attrs.frozen(kw_only=True)
class NamesrvSection:
    """``namesrv:`` — the name servers this broker registers with."""

    addresses: tuple[str, ...] = option(
        (),
        rocketmq="namesrvAddr",
        separators=";,",
        pattern=ADDRESS,
        expects="a list of host:port",
        feature="registration",
    )
    """``host:port`` of each name server; empty registers with none."""
    register_interval_ms: int = option(
        30_000, rocketmq="registerNameServerPeriod", minimum=1_000, maximum=DAY_MS, feature="registration"
    )
    """How often the broker registers again. RocketMQ itself keeps this within 10 s and 60 s."""
    register_timeout_ms: int = option(
        6_000, rocketmq="registerBrokerTimeoutMills", minimum=1, maximum=DAY_MS, feature="registration"
    )
    """How long one registration may take."""
    access_key: str | None = option(None)
    """The account that registrations are signed with, where the name servers ask for one; it must be an administrator's."""
    secret_key: Secret | None = option(None, secret=True)  # noqa: RUF009
    """Its secret key."""
    tls: bool | None = option(None, rocketmq="useTLS")
    """Speaks TLS with the name servers; null does so when ``listen.tls`` is required here."""
    tls_ca: str | None = option(None, rocketmq="tls.client.trustCertPath")
    """PEM file of the authorities that name servers' certificates must come from; null trusts ``listen.tls.certificate``, or
    without one the system's authorities."""

    def __attrs_post_init__(self) -> None:
        if (self.access_key is None) is not (self.secret_key is None):
            raise ConfigError("'namesrv.access_key' and 'namesrv.secret_key' go together", key="namesrv.access_key")


@attrs.frozen(kw_only=True)
class NamesrvConfig:
    """``nameserver:`` — the name server itself. RocketMQ's names count in this section and for ``flintmq namesrv``."""

    host: str = option("127.0.0.1", rocketmq="bindAddress", pattern=r"\S+", expects="a host name or address")
    """The address to listen at."""
    port: int = option(9876, rocketmq="listenPort", minimum=0, maximum=65535)
    """The port to listen at; 0 takes a free one."""
    listeners: tuple[str, ...] = option(
        (), pattern=r"[A-Za-z0-9_-]{1,64}=([^\s;,=]{1,255}:)?\d{1,5}", expects="a list of NAME=PORT or NAME=HOST:PORT"
    )
    """Where it listens besides, ``NAME=PORT`` or ``NAME=HOST:PORT`` each (``host`` where none is given). Clients that ask there
    get what brokers advertise for that name (``listen.advertised``)."""
    kv_path: str | None = option(None, rocketmq="kvConfigPath")
    """The file that keeps the key-value configuration; null keeps it in memory."""
    acl_enable: bool = option(False, rocketmq="aclEnable")
    """The name server, too, takes only requests signed by an account of ``acl:``; brokers then need ``namesrv.access_key``."""
    authenticators: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """The name server's authenticators in force, by name, in order; ``acl`` is what ``acl_enable`` adds."""
    order_message_enable: bool = option(False, rocketmq="orderMessageEnable")
    """Adds a topic's order configuration to its route."""
    scan_interval_ms: int = option(10_000, rocketmq="scanNotActiveBrokerInterval", minimum=100, maximum=DAY_MS)
    """How often brokers that stopped registering are looked for."""
    broker_expiry_ms: int = option(120_000, minimum=1_000, maximum=DAY_MS)
    """A broker silent for so long is forgotten."""
    idle_timeout_ms: int = option(
        120_000, rocketmq="serverChannelMaxIdleTimeSeconds", rocketmq_unit="s", minimum=1_000, maximum=DAY_MS
    )
    """A connection silent for so long is closed."""


SECRET_MIN_LENGTH: Final = 16
"""A listener could try shorter ones one by one."""


@attrs.frozen(kw_only=True)
class HaSection:
    """``ha:`` — replication. ``broker.role`` says which end a broker is; the master's port is ``listen.ha_port``."""

    FEATURE: ClassVar = "replication"

    enable: bool = option(False)
    """Lets slaves follow an ``async_master``; a ``sync_master`` and a ``slave`` replicate anyway."""
    compat: str = option("flintmq", choices=("flintmq", "rocketmq"))
    """Who is at the other end. ``flintmq``: both ends prove that they know ``ha.secret``, every frame is checked, and a
    master that is another one than before is not followed. ``rocketmq``: RocketMQ's stream, which has none of that: any
    program that reaches the port reads the whole log."""
    secret: Secret | None = option(None, secret=True)  # noqa: RUF009
    """What both ends must know, 16 characters or more; in the environment: ``FLINTMQ_HA__SECRET``."""
    secret_file: str | None = option(None)
    """A file with the secret, readable by its owner only; instead of ``ha.secret``."""
    host: str | None = option(None, pattern=r"\S+", expects="a host name or address")
    """The address that slaves connect to; null is ``listen.host``."""
    advertised_host: str | None = option(None, rocketmq="brokerIP2")
    """The host that the name server gives to slaves; null gives them the host that clients get."""
    master_address: str | None = option(
        None, rocketmq="haMasterAddress", pattern=ADDRESS, expects="host:port of the master's replication port"
    )
    """A slave's: where its master's replication port is; null asks the name server."""
    tls: bool | None = option(None)
    """Encrypts the stream, with ``listen.tls``'s certificate and with ``namesrv.tls_ca`` to trust; null does so when
    ``listen.tls`` is required. Only with ``compat: flintmq``."""
    send_heartbeat_interval_ms: int = option(5_000, rocketmq="haSendHeartbeatInterval", minimum=10, maximum=DAY_MS)
    """How long an end is silent before it says that it lives."""
    housekeeping_interval_ms: int = option(20_000, rocketmq="haHousekeepingInterval", minimum=50, maximum=DAY_MS)
    """A connection on which nothing came for so long is closed."""
    transfer_batch_bytes: int = option(32 * 1024, rocketmq="haTransferBatchSize", minimum=1024, maximum=8 * MIB)
    """Bytes of the log in one frame."""
    reconnect_interval_ms: int = option(5_000, minimum=10, maximum=DAY_MS)
    """How long a slave waits before it connects again."""
    sync_interval_ms: int = option(10_000, minimum=10, maximum=DAY_MS)
    """How often a slave takes over its master's topics, groups and offsets."""
    slave_fallbehind_max_bytes: int = option(256 * MIB, rocketmq="haSlaveFallbehindMax", minimum=0, maximum=2**62)
    """A slave that is further behind counts for a sync master as none: SLAVE_NOT_AVAILABLE."""
    slave_timeout_ms: int = option(3_000, rocketmq="slaveTimeout", minimum=1, maximum=DAY_MS)
    """How long a sync master's send waits for a slave before it is answered FLUSH_SLAVE_TIMEOUT."""
    max_slaves: int = option(16, minimum=1, maximum=1_000)
    """Connections of slaves; further ones are closed."""
    truncate: str = option("proven", choices=("proven", "always", "never"))
    """What a slave does with the end of its log that its master does not have. ``proven``: moves it to ``flint/quarantine``
    when the epochs prove that the master's recovery cut it and that no client got an answer for it, and otherwise does
    not follow. ``always``: moves it there whenever both logs share an epoch. ``never``: does not follow."""

    def __attrs_post_init__(self) -> None:
        if self.secret is not None and self.secret_file is not None:
            raise ConfigError("'ha.secret' and 'ha.secret_file' are two names for one thing", key="ha.secret_file")
        if self.secret is not None and len(self.secret) < SECRET_MIN_LENGTH:
            raise ConfigError(f"'ha.secret' must be at least {SECRET_MIN_LENGTH} characters long", key="ha.secret")
        if self.send_heartbeat_interval_ms >= self.housekeeping_interval_ms:
            raise ConfigError(
                "'ha.send_heartbeat_interval_ms' must be less than 'ha.housekeeping_interval_ms'",
                key="ha.send_heartbeat_interval_ms",
            )
