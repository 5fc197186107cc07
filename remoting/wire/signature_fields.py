"""The extFields by which a request is signed, apart from what signs: a server without accounts loads no digests."""

from __future__ import annotations

from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""RocketMQ's client signs it, RocketMQ's broker verifies without it: both are accepted."""
SIGNED_AT: Final = "FlintSignedAt"
"""``<ms since 1970>-<random>``, written by FlintMQ's client for ``acl.replay_window_ms``."""
