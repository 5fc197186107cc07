"""Settings of the console: the web pages that show a cluster."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option


@attrs.frozen(kw_only=True)
class ConsoleSection:
    """``console:`` — web pages that show and change the cluster, served by a process of their own (docs/console.md). Needs the
    extra ``console``."""

    FEATURE: ClassVar = "console"

    enable: bool = option(False)
    """Starts the console with the broker, and ends it with the broker."""
    host: str = option("127.0.0.1")
    """The address that the console listens at. Others than loopback are for clusters with access control, and with
    ``certificate``."""
    port: int = option(9880, minimum=0, maximum=65535)
    """The port that the console listens at; 0 takes a free one."""
    host_names: tuple[str, ...] = option((), pattern=r"[A-Za-z0-9.-]{1,253}", expects="a list of host names")
    """Names under which browsers reach the console, beside localhost and IP addresses. Requests under any other name are
    refused: a foreign page could have made its own name point here (DNS rebinding)."""
    certificate: str | None = option(None)
    """The certificate chain for HTTPS, a PEM file; null for plain HTTP."""
    key: str | None = option(None)
    """The private key, a PEM file; null when it is in the certificate's file."""

    def __attrs_post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("'console.key' needs 'console.certificate'", key="console.key")
