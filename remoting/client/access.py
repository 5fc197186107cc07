"""How a client identifies itself and encrypts: an account's keys, a TLS context, or neither."""

from __future__ import annotations

import ssl
from typing import Any

import attrs

from flintmq.config.secret import Secret
from flintmq.remoting.client.acl_signer import AclSigner
from flintmq.remoting.wire.command import RemotingCommand


@attrs.frozen(kw_only=True)
class Access:
    """What a client needs of a broker and name server that are not open to everyone.

    Args:
        signer: signs every request; None where nothing is asked for.
        ssl_context: see :func:`flintmq.remoting.server.tls.client_context`; None for plain connections.
    """

    signer: AclSigner | None = None
    ssl_context: ssl.SSLContext | None = None

    @classmethod
    def of(cls, access_key: str, secret_key: Secret | str, ssl_context: ssl.SSLContext | None = None) -> Access:
        """With an account's keys."""
        return cls(signer=AclSigner(access_key, secret_key), ssl_context=ssl_context)

    def options(self) -> dict[str, Any]:
        """Keyword arguments of :class:`~flintmq.remoting.client.instance.ClientInstance` and of every client made on one."""
        found: dict[str, Any] = {}
        if self.signer is not None:
            found["hooks"] = [self.signer]
        if self.ssl_context is not None:
            found["ssl_context"] = self.ssl_context
        return found

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """The command as it is to be sent."""
        if self.signer is not None:
            self.signer.before_request("", command)
        return command


ANYONE = Access()
"""Neither signs nor encrypts."""
