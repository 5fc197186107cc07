"""A client's credentials and encryption, read from environment variables: an account's keys and a TLS context.

Keys are passed in the environment, because other users of a machine can see command lines, and a Spark query's options appear
in its plan.

========================= ==========================================================================
``FLINT_ACCESS_KEY``      the account that signs requests
``FLINT_SECRET_KEY``      the account's secret key; or ``FLINT_SECRET_KEY_FILE``, a file that contains it
``FLINT_TLS_CA``          enables TLS and trusts these authorities or certificates (a PEM file)
``FLINT_TLS``             enables TLS and trusts the system's authorities
``FLINT_TLS_CERTIFICATE`` the client's certificate (PEM), for servers that require one; ``FLINT_TLS_KEY`` is its key
``FLINT_TLS_INSECURE``    enables TLS without verifying the server's certificate
========================= ==========================================================================
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.core.io import chance
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.remoting.server.tls import client_context
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.remoting.wire.signature import add_signature


@attrs.frozen(kw_only=True)
class Access:
    """The credentials and the encryption that a client uses for brokers and name servers with access control or TLS.

    Args:
        signer: signs every request; None if requests are not signed.
        ssl_context: see :func:`flintmq.remoting.server.tls.client_context`; None for plain connections.
    """

    signer: AclSigner | None = None
    ssl_context: ssl.SSLContext | None = None

    def options(self) -> dict[str, Any]:
        """Return the credentials and the TLS context as keyword arguments for a client.

        A client is a :class:`~flintmq.remoting.client.instance.ClientInstance`, a producer or a consumer.
        """
        return {"hooks": [self.signer] if self.signer is not None else [], "ssl_context": self.ssl_context}

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """Sign a command in place, if this access has a signer, and return the command."""
        if self.signer is not None:
            self.signer.before_request("", command)
        return command


ANYONE = Access()
"""The access of a client that does not sign its requests and does not use TLS."""


class AclSigner:
    """A hook for :class:`~flintmq.remoting.client.instance.ClientInstance` that signs every request with an account's keys.

    Each signed request also contains the current time, by which a FlintMQ broker detects replayed requests
    (``acl.replay_window_ms``). RocketMQ's brokers use the time only as one of the signed fields.

    Args:
        access_key: the name of the account.
        secret_key: the account's secret key.
        clock: the clock for the time of the requests.
    """

    def __init__(self, access_key: str, secret_key: Secret | str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._access_key = access_key
        self._secret = secret_key if isinstance(secret_key, Secret) else Secret(secret_key)

    def before_request(self, _address: str, command: RemotingCommand) -> None:
        """Add the current time and the account's signature to a request's fields."""
        fields = {} if command.ext_fields is None else command.ext_fields
        signed_at = f"{self._clock.now_ms()}-{chance.secret_bytes(8).hex()}"
        add_signature(fields, command.body, self._access_key, self._secret, signed_at)
        command.ext_fields = fields

    def after_response(self, _address: str, _command: RemotingCommand, _answer: RemotingCommand) -> None:
        """Do nothing, because the answers of servers are not signed."""


ACCESS_KEY: Final = "FLINT_ACCESS_KEY"
SECRET_KEY: Final = "FLINT_SECRET_KEY"
SECRET_KEY_FILE: Final = "FLINT_SECRET_KEY_FILE"
TLS: Final = "FLINT_TLS"
TLS_CA: Final = "FLINT_TLS_CA"
TLS_CERTIFICATE: Final = "FLINT_TLS_CERTIFICATE"
TLS_KEY: Final = "FLINT_TLS_KEY"
TLS_INSECURE: Final = "FLINT_TLS_INSECURE"


def access_of(environ: Mapping[str, str]) -> Access:
    """Return the credentials and the TLS context that environment variables configure.

    Args:
        environ: the environment variables, see the module's table.

    Raises:
        ConfigError: only one of the access key and the secret key is set, or a file that a variable names cannot be used. The
            error's text never contains the secret key.
    """
    access_key, secret_key = environ.get(ACCESS_KEY), _secret_key(environ)
    if bool(access_key) is not bool(secret_key):
        raise ConfigError(f"{ACCESS_KEY} and {SECRET_KEY} (or {SECRET_KEY_FILE}) must both be set, or neither")
    signer = AclSigner(access_key, secret_key) if access_key and secret_key else None
    return Access(signer=signer, ssl_context=_tls(environ))


def _secret_key(environ: Mapping[str, str]) -> Secret | None:
    file = environ.get(SECRET_KEY_FILE)
    if not file:
        key = environ.get(SECRET_KEY)
        return Secret(key) if key else None
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{SECRET_KEY_FILE}: {file} is not text") from error
    except OSError as error:
        raise ConfigError(f"{SECRET_KEY_FILE}: {file}: {error.strerror or error}") from error
    if not key:
        raise ConfigError(f"{SECRET_KEY_FILE}: {file} is empty")
    return Secret(key)


def _tls(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    insecure = _is_on(environ, TLS_INSECURE)
    ca, certificate, key = (environ.get(name) or None for name in (TLS_CA, TLS_CERTIFICATE, TLS_KEY))
    if not (insecure or ca or certificate or _is_on(environ, TLS)):
        return None
    try:
        return client_context(ca, certificate, key, verify=not insecure)
    except ConfigError as error:
        name = {"ca": TLS_CA, "certificate": TLS_CERTIFICATE}.get(error.key or "", TLS)
        raise ConfigError(f"{name}: {error}") from error


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() not in ("", "0", "false", "no", "off")
