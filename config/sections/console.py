"""Settings of the console: the web pages that show a cluster."""

from __future__ import annotations

from typing import ClassVar

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.fields import option


@attrs.frozen(kw_only=True)
class ConsoleSection:
    """``console:`` — web pages that show and change the cluster, served by a separate process (docs/console.md). Needs the
    extra ``console``."""

    FEATURE: ClassVar = "console"

    enable: bool = option(False)
    """Starts the console together with the broker, and stops the console when the broker stops."""
    host: str = option("127.0.0.1")
    """Address that the console listens at. An address other than loopback is for clusters with access control, and should be
    used with ``certificate``."""
    port: int = option(9880, minimum=0, maximum=65535)
    """Port that the console listens at; 0 for any free port."""
    host_names: tuple[str, ...] = option((), pattern=r"[A-Za-z0-9.-]{1,253}", expects="a list of host names")
    """Host names under which browsers reach the console, besides localhost and IP addresses. Requests for other host names are
    refused, which protects against DNS rebinding by foreign web pages."""
    certificate: str | None = option(None)
    """PEM file of the console's certificate chain for HTTPS; null for plain HTTP."""
    key: str | None = option(None)
    """PEM file of the console's private key for HTTPS; null if the file ``certificate`` contains the key."""

    def __attrs_post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("'console.key' needs 'console.certificate'", key="console.key")
