"""Settings of the broker's identity, addresses, name servers and replication, and settings of the name server."""

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
    """Return a broker's role in lower case if it is written in capitals, as in RocketMQ. Return any other text unchanged."""
    return text.lower() if text.isupper() else text


@attrs.frozen(kw_only=True)
class BrokerSection:
    """``broker:`` — the broker's identity."""

    name: str = option("broker-a", rocketmq="brokerName", pattern=NAME, expects="a name without blanks")
    """Name of the broker. A master and its slaves have the same name."""
    cluster: str = option("DefaultCluster", rocketmq="brokerClusterName", pattern=NAME, expects="a name without blanks")
    """Name of the broker's cluster."""
    id: int = option(0, rocketmq="brokerId", minimum=0, maximum=2**63 - 1)
    """Number of the broker among the brokers with the same name: 0 is the master, any other number a slave."""
    role: str = option(
        "async_master",
        rocketmq="brokerRole",
        choices=ROLES,
        also=tuple(role.upper() for role in ROLES),
        converter=_role,
        feature="replication",
    )
    """Role of the broker in replication. A ``sync_master`` acknowledges a message only after a slave has received it. A
    ``slave`` copies its master and refuses messages from producers."""
    region: str = option("DefaultRegion", rocketmq="regionId")
    """Id of the broker's region. Every message gets this id as its property MSG_REGION."""
    permission: int = option(6, rocketmq="brokerPermission", minimum=0, maximum=7)
    """Permission of clients on this broker: 4 to read, 2 to write, 6 for both."""
    trace_on: bool = option(True, rocketmq="traceOn")
    """Allows producers and consumers to write traces of messages."""
    shutdown_timeout_ms: int = option(10_000, minimum=0, maximum=DAY_MS)
    """Time for which a broker that stops waits for the requests under way before it closes the connections."""

    def __attrs_post_init__(self) -> None:
        if self.role == "slave" and self.id == 0:
            raise ConfigError(
                "'broker.id' is 0, which is the id of the master: give a slave another number", key="broker.id"
            )

    @property
    def is_slave(self) -> bool:
        """Return whether the broker is a slave, which copies a master."""
        return self.role == "slave"


@attrs.frozen(kw_only=True)
class ListenSection:
    """``listen:`` — the ports and addresses of the broker, and the limits of its connections."""

    enable: bool = option(True)
    """Whether the broker accepts connections. ``false`` is for an embedded broker with all its clients in the same process. An
    embedded broker with ``false`` has no port, and does not register with name servers."""
    host: str = option("127.0.0.1", rocketmq="bindAddress", pattern=r"\S+", expects="a host name or address")
    """Address at which the broker listens; ``0.0.0.0`` is every interface."""
    port: int = option(10911, rocketmq="listenPort", minimum=0, maximum=65535)
    """Port at which the broker listens for clients; 0 for any free port."""
    vip: bool = option(True)
    """Also listens at ``port`` - 2, to which clients with the VIP channel send requests. As in RocketMQ, pulls are not answered
    at that port."""
    advertised_host: str | None = option(
        None, rocketmq="brokerIP1", pattern=r"[^\s;,=]{1,255}", expects="a host name, an address, or 'client'"
    )
    """Host under which clients reach this broker. The name server returns this host to clients. null is ``host``, or an address
    of this machine if ``host`` is every interface. ``client`` is the address at which the client reached the name server, if
    broker and name server run on one machine."""
    advertised_port: int | None = option(None, minimum=1, maximum=65535)
    """Port under which clients reach this broker. The name server returns this port to clients; null is ``port``."""
    advertised: tuple[str, ...] = option(
        (), pattern=r"[A-Za-z0-9_-]{1,64}=[^\s;,=]{1,255}:\d{1,5}", expects="a list of LISTENER=HOST:PORT"
    )
    """Other addresses of this broker, ``LISTENER=HOST:PORT`` each. The name server returns HOST:PORT to clients that connect to
    its listener LISTENER in ``nameserver.listeners``."""
    ha_port: int | None = option(None, rocketmq="haListenPort", minimum=0, maximum=65535)
    """Port at which a master listens for its slaves; 0 for any free port. null is ``port`` + 1, or any free port if ``port`` is
    0."""
    idle_timeout_ms: int = option(
        120_000, rocketmq="serverChannelMaxIdleTimeSeconds", rocketmq_unit="s", minimum=1_000, maximum=DAY_MS
    )
    """Time after which a connection is closed if no byte is received or sent on it."""
    backlog: int = option(1024, rocketmq="serverSocketBacklog", minimum=1, maximum=65535)
    """Number of connections that may wait until the broker accepts them."""
    max_connections: int = option(10_000, minimum=1, maximum=1_000_000)
    """Largest number of open connections. At this number, the broker closes each further connection at once. The broker also
    reserves some of the process's file descriptors (ulimit -n) for the store. If only reserved descriptors are free, a further
    connection is not closed, but waits until another connection ends."""
    max_connections_per_address: int = option(8_000, minimum=1, maximum=1_000_000)
    """Largest number of open connections from one address; further connections are closed at once. The name server has the same
    limit."""
    max_buffered_bytes: int = option(1024 * MIB, minimum=64 * MIB, maximum=1024 * 1024 * MIB)
    """Largest total size of the incomplete frames and unsent answers of all connections. If the total is larger, the connection
    that buffers the most bytes is closed."""
    max_frame_bytes: int = option(16 * MIB, minimum=64 * 1024, maximum=16 * MIB)
    """Largest size of a frame. If a peer sends a larger frame, its connection is closed."""
    loop: str = option("asyncio", choices=("auto", "asyncio", "uvloop"))
    """Event loop to use; ``auto`` uses uvloop if it is installed."""
    loop_blocked_warn_ms: int = option(500, minimum=0, maximum=DAY_MS)
    """Time for which the event loop, and with it every client, may be blocked before the broker warns. The log and ``flintmq
    status`` name the plugin, the hook and the line that block the loop. 0 switches the warning off."""
    insecure: bool = option(False)
    """Allows a broker or name server without access control to listen at an address that other machines reach."""
    tls: TlsSection = attrs.field(factory=TlsSection)
    """Settings of TLS for the broker's connections."""

    def __attrs_post_init__(self) -> None:
        if self.vip and self.port in (1, 2):
            raise ConfigError(
                f"'listen.vip' needs a second port, which is 'listen.port' minus 2, and port {self.port - 2} does not exist: "
                "choose another 'listen.port', or set 'listen.vip' to false",
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
    """Name servers with which the broker registers, ``host:port`` each; empty for none."""
    register_interval_ms: int = option(
        30_000, rocketmq="registerNameServerPeriod", minimum=1_000, maximum=DAY_MS, feature="registration"
    )
    """Interval between two registrations of the broker. RocketMQ limits this interval to 10 to 60 s."""
    register_timeout_ms: int = option(
        6_000, rocketmq="registerBrokerTimeoutMills", minimum=1, maximum=DAY_MS, feature="registration"
    )
    """Longest time of one registration of the broker with a name server."""
    access_key: str | None = option(None)
    """Name of the account that signs registrations, if the name servers have access control. The account must be an
    administrator."""
    secret_key: Secret | None = option(None, secret=True)  # noqa: RUF009
    """Secret key of the account ``namesrv.access_key``."""
    tls: bool | None = option(None, rocketmq="useTLS")
    """Uses TLS for connections to name servers; null uses TLS if ``listen.tls`` requires TLS."""
    tls_ca: str | None = option(None, rocketmq="tls.client.trustCertPath")
    """PEM file of the authorities that must have signed the certificates of name servers. null trusts
    ``listen.tls.certificate``, or the system's authorities if ``listen.tls.certificate`` is not set."""

    def __attrs_post_init__(self) -> None:
        if (self.access_key is None) is not (self.secret_key is None):
            raise ConfigError(
                "'namesrv.access_key' and 'namesrv.secret_key' must both be set, or neither", key="namesrv.access_key"
            )


@attrs.frozen(kw_only=True)
class NamesrvConfig:
    """``nameserver:`` — the name server. RocketMQ's names are accepted in this section and by ``flintmq namesrv``."""

    host: str = option("127.0.0.1", rocketmq="bindAddress", pattern=r"\S+", expects="a host name or address")
    """Address at which the name server listens."""
    port: int = option(9876, rocketmq="listenPort", minimum=0, maximum=65535)
    """Port at which the name server listens; 0 for any free port."""
    listeners: tuple[str, ...] = option(
        (), pattern=r"[A-Za-z0-9_-]{1,64}=([^\s;,=]{1,255}:)?\d{1,5}", expects="a list of NAME=PORT or NAME=HOST:PORT"
    )
    """Further addresses at which the name server listens, ``NAME=PORT`` or ``NAME=HOST:PORT`` each. HOST is ``host`` if left
    out. Clients of such a listener get the addresses that brokers advertise for NAME (``listen.advertised``)."""
    kv_path: str | None = option(None, rocketmq="kvConfigPath")
    """File of the name server's key-value configuration; null keeps the key-value configuration in memory only."""
    acl_enable: bool = option(False, rocketmq="aclEnable")
    """Lets the name server accept only requests that an account of ``acl:`` has signed. Brokers then need
    ``namesrv.access_key``."""
    authenticators: tuple[str, ...] = option((), pattern=r"\S+", expects="a list of names")
    """Names of the name server's authenticators, in the order in which they are called. ``nameserver.acl_enable`` adds
    ``acl``."""
    order_message_enable: bool = option(False, rocketmq="orderMessageEnable")
    """Adds the order configuration of an ordered topic to the route that the name server returns."""
    scan_interval_ms: int = option(10_000, rocketmq="scanNotActiveBrokerInterval", minimum=100, maximum=DAY_MS)
    """Interval between two checks of the name server for brokers that have stopped registering."""
    broker_expiry_ms: int = option(120_000, minimum=1_000, maximum=DAY_MS)
    """Time without a registration after which the name server removes a broker from the routes."""
    idle_timeout_ms: int = option(
        120_000, rocketmq="serverChannelMaxIdleTimeSeconds", rocketmq_unit="s", minimum=1_000, maximum=DAY_MS
    )
    """Time after which the name server closes a connection if no byte is received or sent on it."""


SECRET_MIN_LENGTH: Final = 16
"""Smallest length of ``ha.secret``, in characters. An attacker who records the network traffic could find a shorter secret by
trying all possible secrets."""


@attrs.frozen(kw_only=True)
class HaSection:
    """``ha:`` — replication. ``broker.role`` is the role of the broker; the master's port is ``listen.ha_port``."""

    FEATURE: ClassVar = "replication"

    enable: bool = option(False)
    """Allows slaves to follow an ``async_master``. A ``sync_master`` and a ``slave`` replicate even if this is false."""
    compat: str = option("flintmq", choices=("flintmq", "rocketmq"))
    """Protocol of replication. With ``flintmq``, master and slave prove that they know ``ha.secret``, every frame is checked,
    and a slave replicates only a log that continues its own log. ``rocketmq`` is RocketMQ's protocol, which does not check any
    of this. Any program that reaches the port can then read the whole log."""
    secret: Secret | None = option(None, secret=True)  # noqa: RUF009
    """Secret that master and slaves share, at least 16 characters long. Its environment variable is ``FLINTMQ_HA__SECRET``."""
    secret_file: str | None = option(None)
    """File that contains the secret of replication, used instead of ``ha.secret``. Only its owner may be able to read the
    file."""
    host: str | None = option(None, pattern=r"\S+", expects="a host name or address")
    """Address at which a master listens for slaves; null is ``listen.host``."""
    advertised_host: str | None = option(None, rocketmq="brokerIP2")
    """Host that the name server returns to slaves as the address of their master; null is the host that clients get."""
    master_address: str | None = option(
        None, rocketmq="haMasterAddress", pattern=ADDRESS, expects="host:port of the master's replication port"
    )
    """On a slave, the host and the replication port of its master; null asks the name server."""
    tls: bool | None = option(None)
    """Encrypts replication with TLS, with the certificate of ``listen.tls`` and the authorities of ``namesrv.tls_ca``. null
    encrypts if ``listen.tls`` requires TLS. Encryption needs ``ha.compat: flintmq``."""
    send_heartbeat_interval_ms: int = option(5_000, rocketmq="haSendHeartbeatInterval", minimum=10, maximum=DAY_MS)
    """Time without data on a replication connection after which master or slave sends a heartbeat."""
    housekeeping_interval_ms: int = option(20_000, rocketmq="haHousekeepingInterval", minimum=50, maximum=DAY_MS)
    """Time without received data after which a replication connection is closed."""
    transfer_batch_bytes: int = option(32 * 1024, rocketmq="haTransferBatchSize", minimum=1024, maximum=8 * MIB)
    """Largest number of bytes of the log in one frame of replication."""
    reconnect_interval_ms: int = option(5_000, minimum=10, maximum=DAY_MS)
    """Time that a slave waits before it connects to its master again."""
    sync_interval_ms: int = option(10_000, minimum=10, maximum=DAY_MS)
    """Interval at which a slave copies its master's topics, groups and offsets."""
    slave_fallbehind_max_bytes: int = option(256 * MIB, rocketmq="haSlaveFallbehindMax", minimum=0, maximum=2**62)
    """Largest lag of a slave for which a sync master waits. If every slave lags more, sends are answered
    SLAVE_NOT_AVAILABLE."""
    slave_timeout_ms: int = option(3_000, rocketmq="slaveTimeout", minimum=1, maximum=DAY_MS)
    """Longest time that a send to a sync master waits for a slave. A send that waits longer is answered FLUSH_SLAVE_TIMEOUT."""
    max_slaves: int = option(16, minimum=1, maximum=1_000)
    """Largest number of connected slaves; the connections of further slaves are closed."""
    truncate: str = option("proven", choices=("proven", "always", "never"))
    """Reaction of a slave whose log ends with bytes that the master's log does not have. With ``never``, the slave does not
    replicate. With ``always``, the slave moves these bytes to ``flint/quarantine`` and replicates if both logs share an epoch
    (docs/replication.md). With ``proven``, the slave does this only if the epochs prove that the master's recovery removed the
    bytes and that no client got an answer for them."""

    def __attrs_post_init__(self) -> None:
        if self.secret is not None and self.secret_file is not None:
            raise ConfigError(
                "'ha.secret' and 'ha.secret_file' are both set: set only one of them", key="ha.secret_file"
            )
        if self.secret is not None and len(self.secret) < SECRET_MIN_LENGTH:
            raise ConfigError(f"'ha.secret' must be at least {SECRET_MIN_LENGTH} characters long", key="ha.secret")
        if self.send_heartbeat_interval_ms >= self.housekeeping_interval_ms:
            raise ConfigError(
                "'ha.send_heartbeat_interval_ms' must be less than 'ha.housekeeping_interval_ms'",
                key="ha.send_heartbeat_interval_ms",
            )
