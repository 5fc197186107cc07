"""What a request code needs: the classes of codes, and one rule each."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import attrs

from flintmq.core.acl.permission import Need
from flintmq.core.kernel.ports import Caller

TopicAt = Callable[[int], "str | None"]
"""The topic that clients know a record by, of its physical offset; None when there is no such record."""


class Access(enum.Enum):
    """Who may use a request code."""

    PUBLIC = "public"
    """Everyone, unsigned too."""
    CLIENT = "client"
    """Every account that has what the rule needs."""
    ADMIN = "admin"
    """Administrators."""
    PUSHED = "pushed"
    """Nobody: brokers send it to clients."""
    UNSERVED = "unserved"
    """Nobody answers it: whoever is known here is told so (code 3)."""


NeedsOf = Callable[[Caller, TopicAt], Sequence[Need]]
"""What a request needs. Raises ``RefusedError`` when it does not say what it is about."""


def _nothing(_caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
    return ()


@attrs.frozen
class Rule:
    """The rule of one request code."""

    access: Access
    needs: NeedsOf = _nothing
    """Asked for ``CLIENT`` alone."""
