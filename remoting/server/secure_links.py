"""Makes the TLS contexts of a server and its slaves, the alarms for certificates, and a broker's client for name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.config.units import DAY_MS
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.remoting.client.transport import RemotingClient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from flintmq.config import BrokerConfig
    from flintmq.core.io.clock import Clock
    from flintmq.remoting.server.tls import ServerTls

TLS_RELOAD_S: Final = 5.0
"""Seconds between two checks whether a certificate file has changed."""


def server_tls(config: BrokerConfig) -> ServerTls | None:
    """Return the TLS context of a server's ports, as ``listen.tls`` describes it; None if TLS is disabled.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """
    section = config.listen.tls
    if section.mode_in_force == "disabled":
        return None
    from flintmq.remoting.server.tls import ServerTls

    return ServerTls(section)


def certificate_alarms(tls: ServerTls, config: Callable[[], BrokerConfig], clock: Clock) -> Iterator[Alarm]:
    """Yield an alarm if a server's certificate has expired, or expires within ``alarms.certificate_days``."""
    days, file = config().alarms.certificate_days, tls.certificate
    if tls.expires_ms is None:
        return
    left_ms = tls.expires_ms - clock.now_ms()
    renew = "replace the file, which is read again within seconds, or set listen.tls.certificate to another file"
    if left_ms <= 0:
        text = f"the certificate {file} has expired, and clients that check it do not connect: {renew}"
        yield Alarm("certificate.expired", CRITICAL, file, text, left_ms, "ms", 0, "listen.tls.certificate")
    elif left_ms < days * DAY_MS:
        text = f"the certificate {file} expires in {left_ms / DAY_MS:.1f} days: {renew}"
        yield Alarm(
            "certificate.expiring", WARNING, file, text, left_ms, "ms", days * DAY_MS, "alarms.certificate_days"
        )


def name_server_client(config: BrokerConfig) -> RemotingClient:
    """Return a client for name servers, which signs and encrypts requests if the section ``namesrv`` says so.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """
    client = RemotingClient(ssl_context=_name_server_tls(config))
    namesrv = config.namesrv
    if namesrv.access_key is not None and namesrv.secret_key is not None:
        from flintmq.remoting.client.access import AclSigner

        client.add_hook(AclSigner(namesrv.access_key, namesrv.secret_key))
    return client


def _name_server_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    tls = config.listen.tls
    wanted = config.namesrv.tls if config.namesrv.tls is not None else tls.mode_in_force == "required"
    return replication_client_tls(config) if wanted else None


def replication_client_tls(config: BrokerConfig) -> ssl.SSLContext:
    """Return the TLS context of a slave's connection to its master. Connections to name servers use the same context.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """
    from flintmq.remoting.server.tls import client_context

    tls = config.listen.tls
    return client_context(config.namesrv.tls_ca or tls.certificate, tls.certificate, tls.key, password=tls.key_password)
