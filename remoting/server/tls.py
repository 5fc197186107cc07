"""Makes the TLS contexts of servers and clients, which accept TLS 1.2 and later versions."""

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
    """A server's TLS context, which is renewed when the certificate's files change. Used only on the event loop's thread.

    Later handshakes use the renewed context. Open connections are not affected.

    Raises:
        ConfigError: a file is missing, or is not a certificate or key.
    """

    def __init__(self, section: TlsSection) -> None:
        self._section = section
        self._stamps = self._stamp()
        self._failed: tuple[object, ...] | None = None
        self.context = server_context(section)
        self.certificate = section.certificate or ""
        """Path of the file with the TLS certificate."""
        self.expires_ms = expires_ms(self.certificate)
        """Time at which the TLS certificate expires, in ms since 1970; None if the certificate cannot be read."""
        self.required = section.mode_in_force == "required"
        """Whether connections without TLS are closed."""

    def reload(self) -> bool:
        """Renew the server's TLS context if a certificate or key file has changed. Return whether the context was renewed.

        If the new files cannot be used, for example because certificate and key do not match, an error is logged once, and the
        context stays.
        """
        stamps = self._stamp()
        if stamps in (self._stamps, self._failed):
            return False
        try:
            self.context = server_context(self._section)
        except ConfigError as error:
            self._failed = stamps
            log.error("tls.not_read_again", "the previous certificate remains in use: %(error)s", error=error)
            return False
        self._stamps, self._failed = stamps, None
        self.expires_ms = expires_ms(self.certificate)
        log.info("tls.read_again", "certificate %(path)s was read again", path=self._section.certificate)
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
    """Return a server's TLS context, made from the section ``listen.tls``.

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
    """Return a client's TLS context for :class:`~flintmq.remoting.client.transport.RemotingClient`.

    Args:
        ca: PEM file of the authorities or server certificates to trust. With this file, host names are not checked, because
            clients get IP addresses from name servers. None trusts the system's authorities, and host names are checked.
        certificate: PEM file of the client's certificate, if the server requires one.
        key: PEM file of the private key; None if it is in the certificate's file.
        password: password of the private key.
        verify: False accepts any certificate. Connections are then encrypted, but are not protected against a server that
            impersonates the real one.

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
        # A password is always given, so that OpenSSL never asks for a password on the terminal.
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
