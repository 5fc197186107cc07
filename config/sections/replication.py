"""Settings of replication (``ha:``): the master and its slaves, and how they authenticate."""

from __future__ import annotations

from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option
from flintmq.config.secret import Secret

DAY_MS = 86_400_000
MIB = 1024 * 1024
SECRET_MIN_LENGTH: Final = 16
"""A listener could try shorter ones one by one."""
ADDRESS = r"[^\s;,]+:\d{1,5}"


@attrs.frozen(kw_only=True)
class HaSection:
    """``ha:`` — replication. ``broker.role`` says which end a broker is; the master's port is ``listen.ha_port``."""

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
    send_heartbeat_interval_ms: int = option(
        5_000, rocketmq="haSendHeartbeatInterval", unit="ms", minimum=10, maximum=DAY_MS
    )
    """How long an end is silent before it says that it lives."""
    housekeeping_interval_ms: int = option(
        20_000, rocketmq="haHousekeepingInterval", unit="ms", minimum=50, maximum=DAY_MS
    )
    """A connection on which nothing came for so long is closed."""
    transfer_batch_bytes: int = option(
        32 * 1024, rocketmq="haTransferBatchSize", unit="bytes", minimum=1024, maximum=8 * MIB
    )
    """Bytes of the log in one frame."""
    reconnect_interval_ms: int = option(5_000, unit="ms", minimum=10, maximum=DAY_MS)
    """How long a slave waits before it connects again."""
    sync_interval_ms: int = option(10_000, unit="ms", minimum=10, maximum=DAY_MS)
    """How often a slave takes over its master's topics, groups and offsets."""
    slave_fallbehind_max_bytes: int = option(
        256 * MIB, rocketmq="haSlaveFallbehindMax", unit="bytes", minimum=0, maximum=2**62
    )
    """A slave that is further behind counts for a sync master as none: SLAVE_NOT_AVAILABLE."""
    slave_timeout_ms: int = option(3_000, rocketmq="slaveTimeout", unit="ms", minimum=1, maximum=DAY_MS)
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
