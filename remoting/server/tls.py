"""TLS contexts of servers and clients. TLS 1.2 is the least that is spoken."""

from __future__ import annotations

import ssl
from pathlib import Path

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.config.sections.models import TlsSection
from flintmq.core.log_events import event_log
from flintmq.remoting.server.certificate import expires_ms

log = event_log("flintmq.tls")


class ServerTls:
    """A server's context, renewed when its files change. Loop thread.

    A renewed context counts for handshakes from then on; connections there are go on as they are.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """

    def __init__(self, section: TlsSection) -> None:
        self._section = section
        self._stamps = self._stamp()
        self._failed: tuple[object, ...] | None = None
        self.context = server_context(section)
        self.certificate = section.certificate or ""
        """The file of the certificate."""
        self.expires_ms = expires_ms(self.certificate)
        """When the certificate ends, in ms since 1970; None where that cannot be read."""
        self.required = section.mode_in_force == "required"
        """Connections in clear are closed."""

    def reload(self) -> bool:
        """Renew the context when a file has changed; return whether it did. Files that do not fit one another change nothing,
        and that is logged once."""
        stamps = self._stamp()
        if stamps in (self._stamps, self._failed):
            return False
        try:
            self.context = server_context(self._section)
        except ConfigError as error:
            self._failed = stamps
            log.error("tls.not_read_again", "the certificate stays as it is: %(error)s", error=error)
            return False
        self._stamps, self._failed = stamps, None
        self.expires_ms = expires_ms(self.certificate)
        log.info("tls.read_again", "certificate %(path)s read again", path=self._section.certificate)
        return True

    def _stamp(self) -> tuple[object, ...]:
        found: list[object] = []
        for name in (self._section.certificate, self._section.key, self._section.client_ca):
            try:
                status = None if name is None else Path(name).stat()
            except OSError:
                status = None
            found.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def server_context(section: TlsSection) -> ssl.SSLContext:
    """Return the context of ``listen.tls``.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load(context, section.certificate or "", section.key, section.key_password, "listen.tls.certificate")
    if section.client_ca is not None:
        _trust(context, section.client_ca, "listen.tls.client_ca")
        context.verify_mode = ssl.CERT_REQUIRED if section.require_client_certificate else ssl.CERT_OPTIONAL
    return context


def client_context(
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    *,
    password: Secret | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Return a context for :class:`~flintmq.remoting.client.transport.RemotingClient`.

    Args:
        ca: PEM file of the authorities (or the very certificates) to trust. Host names are not compared then, because
            clients are handed addresses by name servers; None trusts the system's authorities, with names compared.
        certificate: PEM file of the client's own certificate, where the server asks for one.
        key: its private key; None when it is in the same file.
        password: opens the private key.
        verify: False takes any certificate: encrypted, but open to everybody in between.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False
        _trust(context, str(ca), "ca")
    if certificate is not None:
        _load(context, str(certificate), None if key is None else str(key), password, "certificate")
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str | None, password: Secret | None, setting: str) -> None:
    opened_by = password.reveal() if password is not None else ""
    try:
        # A password is always given, so that OpenSSL never asks for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: opened_by)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else str(error)
        raise ConfigError(
            f"'{setting}' {certificate} and its key cannot be used: {reason}", key=setting, file=certificate
        ) from error


def _trust(context: ssl.SSLContext, file: str, setting: str) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{setting}' {file} cannot be used: {error}", key=setting, file=file) from error
