"""How a client signs and encrypts, as the environment says.

Keys are variables, not options, because a command line is seen by everyone on the machine, and options of a Spark query end in
its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from flintmq.config.errors import ConfigError
from flintmq.remoting.client.acl_signer import AclSigner
from flintmq.remoting.tls import client_context

ACCESS_KEY: Final = "FLINT_ACCESS_KEY"
SECRET_KEY: Final = "FLINT_SECRET_KEY"
TLS_CA: Final = "FLINT_TLS_CA"


def options_of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Options for :class:`~flintmq.remoting.client.instance.ClientInstance`.

    Args:
        environ: the environment; ``FLINT_ACCESS_KEY``, ``FLINT_SECRET_KEY`` and ``FLINT_TLS_CA`` count.

    Raises:
        ConfigError: one of the two keys is missing, or the file of authorities cannot be used.
    """
    found: dict[str, Any] = {}
    access_key, secret_key = environ.get(ACCESS_KEY), environ.get(SECRET_KEY)
    if bool(access_key) is not bool(secret_key):
        raise ConfigError(f"{ACCESS_KEY} and {SECRET_KEY} go together")
    if access_key and secret_key:
        found["hooks"] = [AclSigner(access_key, secret_key)]
    if environ.get(TLS_CA):
        try:
            found["ssl_context"] = client_context(environ[TLS_CA])
        except ConfigError as error:
            raise ConfigError(f"{TLS_CA}: {error}") from error
    return found
