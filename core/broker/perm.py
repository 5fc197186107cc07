"""Permission bits of topics and brokers (docs/internals/protocol.md, Flag words)."""

from __future__ import annotations

from typing import Final

from flintmq.config.sections.models import BrokerSection
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode

READ: Final = 4
WRITE: Final = 2
INHERIT: Final = 1
"""Permission bit of a template topic. A topic that a send creates gets the settings of a template topic."""
READ_WRITE: Final = READ | WRITE


def is_readable(perm: int) -> bool:
    return perm & READ != 0


def is_writeable(perm: int) -> bool:
    return perm & WRITE != 0


def check_broker_writeable(broker: BrokerSection) -> None:
    """Raise an error if the broker's permission does not include the write bit.

    Raises:
        RefusedError: NO_PERMISSION, with the remark of RocketMQ.
    """
    if not is_writeable(broker.permission):
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.name}] sending message is forbidden",
            reason="broker.not_writeable",
            measured=f"permission {broker.permission}",
            key="broker.permission (brokerPermission)",
        )


def is_inherited(perm: int) -> bool:
    return perm & INHERIT != 0


def perm_text(perm: int) -> str:
    """Return a permission as three letters, which remarks and tools show: ``RWX``, ``RW-`` or ``R--``."""
    return ("R" if perm & READ else "-") + ("W" if perm & WRITE else "-") + ("X" if perm & INHERIT else "-")
