"""Signs what a client sends (docs/internals/protocol.md, Access control)."""

from __future__ import annotations

import secrets
import time

from flintmq.config.secret import Secret
from flintmq.remoting.wire.command import RemotingCommand
from flintmq.remoting.wire.signature import add_signature


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
        """Answers are not signed."""
