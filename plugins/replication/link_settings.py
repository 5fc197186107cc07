"""Reads the settings of replication's connections from the configuration: times, sizes, the secret, encryption."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.sections.server import SECRET_MIN_LENGTH
from flintmq.plugins.replication.agreement import Truncate

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig


@attrs.frozen(kw_only=True)
class LinkSettings:
    """The settings of a master or a slave for the connections of replication."""

    heartbeat_s: float
    """Time in seconds after which a heartbeat is sent over a replication connection if no other frame was sent."""
    housekeeping_s: float
    """Time in seconds after which a replication connection is closed if no frame was received."""
    batch_bytes: int
    """Maximum number of bytes of the log in one frame of a replication stream."""
    secret: bytes | None = attrs.field(default=None, repr=False)
    """Secret that the master and its slaves share; None to use RocketMQ's stream, which needs no secret."""
    truncate: Truncate = "proven"
    """For a slave: value of the setting ``ha.truncate``. The end of a slave's log may have records that the master's log lacks.
    The setting says when the slave may remove these records."""


def link_settings(config: BrokerConfig) -> LinkSettings:
    """Return the settings of the connections between master and slaves. Raises ``ConfigError`` if the secret is missing or
    cannot be used."""
    ha = config.ha
    return LinkSettings(
        heartbeat_s=ha.send_heartbeat_interval_ms / 1000,
        housekeeping_s=ha.housekeeping_interval_ms / 1000,
        batch_bytes=ha.transfer_batch_bytes,
        secret=load_secret(config),
        truncate=cast("Truncate", ha.truncate),
    )


def wants_tls(config: BrokerConfig) -> bool:
    """Return whether the connections between master and slaves are encrypted with TLS."""
    ha = config.ha
    if ha.compat == "rocketmq":
        return False
    return ha.tls if ha.tls is not None else config.listen.tls.mode_in_force == "required"


def load_secret(config: BrokerConfig) -> bytes | None:
    """Return the secret that master and slaves share; None with ``ha.compat: rocketmq``, because RocketMQ's stream cannot use a
    secret.

    Raises:
        ConfigError: the secret is missing or too short, or other users may read its file.
    """
    ha = config.ha
    if ha.compat == "rocketmq":
        return None
    if ha.secret is not None:
        return ha.secret.reveal().encode("utf-8")
    if ha.secret_file is None:
        raise ConfigError(
            "replication needs a secret that both ends know: set ha.secret_file (a file of mode 0600) or ha.secret. If the "
            "other end is a RocketMQ broker, which knows no secret, set ha.compat: rocketmq; everyone who reaches the port "
            "can then read the log",
            key="ha.secret_file",
        )
    path = Path(ha.secret_file)
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"'ha.secret_file' {path}: {error.strerror}", key="ha.secret_file") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and os.name == "posix":
        raise ConfigError(f"'ha.secret_file' {path} can be read by other users: chmod 600", key="ha.secret_file")
    if len(secret) < SECRET_MIN_LENGTH:
        raise ConfigError(f"'ha.secret_file' {path} must hold at least {SECRET_MIN_LENGTH} bytes", key="ha.secret_file")
    return secret
