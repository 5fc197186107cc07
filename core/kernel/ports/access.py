"""What a request code needs of the account that sends it: the words that access rules are written in.

A server has one :class:`AccessRule` per request code (:mod:`flintmq.remoting.server.access_rules`); an authenticator
compares what a rule needs with what an account owns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import attrs

from flintmq.core.kernel.ports.auth import Caller


class Permission(enum.Flag):
    """What an account may do with a topic or a group.

    Every flag of an owned permission counts. Of a needed one, one flag is enough, so that ``ANY`` means either.
    """

    DENY = 0
    PUB = enum.auto()
    SUB = enum.auto()
    ANY = PUB | SUB

    def covers(self, needed: Permission) -> bool:
        """Return whether the owner of this permission may do what is needed."""
        return bool(self & needed)


@attrs.frozen
class Need:
    """One topic or consumer group that a request is about, and what it does with it."""

    name: str
    """The name of the topic or of the consumer group."""
    permission: Permission
    """One of these flags is enough."""
    is_group: bool = False

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


class Access(enum.Enum):
    """Who may use a request code."""

    PUBLIC = "public"
    """Everyone, without a signature too."""
    CLIENT = "client"
    """Every account that has what the rule needs."""
    ADMIN = "admin"
    """Administrators."""
    PUSHED = "pushed"
    """Nobody: brokers send it to clients."""
    UNSERVED = "unserved"
    """Nobody: no processor answers it. A known account gets REQUEST_CODE_NOT_SUPPORTED."""


TopicAt = Callable[[int], "str | None"]
"""Returns the topic that clients know a record by, given its physical offset; None when there is no such record."""

NeedsOf = Callable[[Caller, TopicAt], Sequence[Need]]
"""Returns what a request needs. Raises ``RefusedError`` when the request does not say what it is about."""


def _nothing(_caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
    return ()


@attrs.frozen
class AccessRule:
    """The rule of one request code."""

    access: Access
    needs: NeedsOf = _nothing
    """Asked for ``CLIENT`` alone."""
