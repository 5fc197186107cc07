"""The bits of a command's ``flag`` field (RocketMQ: ``RemotingCommand.RPC_TYPE``, ``RPC_ONEWAY``)."""

from __future__ import annotations

from typing import Final

RESPONSE_FLAG: Final = 1
"""The command answers a request."""
ONEWAY_FLAG: Final = 2
"""The request wants no answer."""
