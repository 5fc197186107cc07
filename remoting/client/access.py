"""How a client identifies itself and encrypts: an account's keys, a TLS context, or neither; as the environment says.

Keys are variables, because a command line is seen by everyone on the machine, and options of a Spark query end in its plan.

======================== ==========================================================================
``FLINT_ACCESS_KEY``      the account that requests are signed with
``FLINT_SECRET_KEY``      its secret key; or ``FLINT_SECRET_KEY_FILE``, a file that holds it
``FLINT_TLS_CA``          encrypts and trusts these authorities, or these very certificates (PEM)
``FLINT_TLS``             encrypts and trusts the system's authorities
``FLINT_TLS_CERTIFICATE`` our own certificate, where one is asked for (PEM); ``FLINT_TLS_KEY`` its key
``FLINT_TLS_INSECURE``    encrypts and trusts any server that answers
======================== ==========================================================================
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.secret import Secret
from flintmq.remoting.server.tls import client_context
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.remoting.wire.signature import add_signature


@attrs.frozen(kw_only=True)
class Access:
    """What a client needs of a broker and name server that are not open to everyone.

    Args:
        signer: signs every request; None where nothing is asked for.
        ssl_context: see :func:`flintmq.remoting.server.tls.client_context`; None for plain connections.
    """

    signer: AclSigner | None = None
    ssl_context: ssl.SSLContext | None = None

    def options(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~flintmq.remoting.client.instance.ClientInstance` and of every client made on one."""
        return {"hooks": [self.signer] if self.signer is not None else [], "ssl_context": self.ssl_context}

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """Return the command as it is to be sent."""
        if self.signer is not None:
            self.signer.before_request("", command)
        return command


ANYONE = Access()
"""Neither signs nor encrypts."""


class AclSigner:
    """A hook for :class:`~flintmq.remoting.client.instance.ClientInstance`: every request carries the account's signature.

    Each is dated as well, so that a FlintMQ broker can tell a replayed one (``acl.replay_window_ms``); other brokers sign
    over the date like over any other field.

    Args:
        access_key: the account.
        secret_key: its secret key.
    """

    def __init__(self, access_key: str, secret_key: Secret | str) -> None:
        self._access_key = access_key
        self._secret = secret_key if isinstance(secret_key, Secret) else Secret(secret_key)

    def before_request(self, _address: str, command: RemotingCommand) -> None:
        """Sign a request as it will be sent."""
        fields = {} if command.ext_fields is None else command.ext_fields
        signed_at = f"{time.time_ns() // 1_000_000}-{secrets.token_hex(8)}"
        add_signature(fields, command.body, self._access_key, self._secret, signed_at)
        command.ext_fields = fields

    def after_response(self, _address: str, _command: RemotingCommand, _answer: RemotingCommand) -> None:
        """Leave answers alone: they are not signed."""


ACCESS_KEY: Final = "FLINT_ACCESS_KEY"
SECRET_KEY: Final = "FLINT_SECRET_KEY"
SECRET_KEY_FILE: Final = "FLINT_SECRET_KEY_FILE"
TLS: Final = "FLINT_TLS"
TLS_CA: Final = "FLINT_TLS_CA"
TLS_CERTIFICATE: Final = "FLINT_TLS_CERTIFICATE"
TLS_KEY: Final = "FLINT_TLS_KEY"
TLS_INSECURE: Final = "FLINT_TLS_INSECURE"


def access_of(environ: Mapping[str, str]) -> Access:
    """Return how a client signs and encrypts.

    Args:
        environ: the environment, see above.

    Raises:
        ConfigError: one of the two keys is missing, or a file cannot be used; no message has the secret key.
    """
    access_key, secret_key = environ.get(ACCESS_KEY), _secret_key(environ)
    if bool(access_key) is not bool(secret_key):
        raise ConfigError(f"{ACCESS_KEY} and {SECRET_KEY} (or {SECRET_KEY_FILE}) go together")
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
