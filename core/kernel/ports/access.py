"""Permissions and rules, which define the accounts that may send a request code.

The declaration of a request code has one :class:`AccessRule` (:func:`flintmq.core.kernel.ports.processor.handles`). An
authenticator compares the permissions that the rule needs with the permissions of the account.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec


class Permission(enum.Flag):
    """The actions on a topic or a consumer group that an account may perform, or that a request performs.

    An account that owns a permission may perform all actions that the permission's flags name. A request that needs a
    permission needs only one of the permission's flags: ``ANY`` is met by ``PUB`` or by ``SUB``.
    """

    DENY = 0
    PUB = enum.auto()
    SUB = enum.auto()
    ANY = PUB | SUB

    def covers(self, needed: Permission) -> bool:
        """Return whether an account with this permission meets a needed permission: the two must have a flag in common."""
        return bool(self & needed)


class Need(msgspec.Struct, frozen=True):
    """A topic or a consumer group that a request uses, and the permission that the request needs for it."""

    name: str
    """The name of the topic or of the consumer group."""
    permission: Permission
    """Permission that the request needs. The account must own at least one flag of the permission."""
    is_group: bool = False

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


class Access(enum.Enum):
    """The accounts that may use a request code."""

    PUBLIC = "public"
    """Access for everyone, even without a signature."""
    CLIENT = "client"
    """Access for every account that owns the permissions that the request's rule needs."""
    ADMIN = "admin"
    """Access for administrators only."""


TopicAt = Callable[[int], "str | None"]
"""Function that returns the topic to which a client sent a record, given the record's physical offset; None if no record begins
there. The record may wait in another topic, for example until its delay is over."""


class AccessFacts(msgspec.Struct, frozen=True):
    """Facts about the broker that an access rule may look up to find the topics that a request uses."""

    trace_topic: str
    """The topic of message traces, which every account may write to (``topics.trace_topic_name``)."""
    topic_at: TopicAt
    """Function that returns the topic of a record in the log, given the record's physical offset."""


class AccessRule(msgspec.Struct, frozen=True):
    """The accounts that may send a request code, and the permissions that they need."""

    access: Access
    needs: Callable[[Caller, AccessFacts], Sequence[Need]] | None = None
    """Function that returns the topics and groups that a request uses, with the needed permissions; None if every account may
    send the request. The function is called only if :attr:`access` is ``CLIENT``.

    The function raises ``RefusedError`` if the request does not name its topic or group.
    """


PUBLIC: Final = AccessRule(Access.PUBLIC)
"""Rule for requests that everyone may send, even without a signature."""
ACCOUNT: Final = AccessRule(Access.CLIENT)
"""Rule for requests that every account may send, because their answers show where data is, but not the data."""
ADMIN: Final = AccessRule(Access.ADMIN)
"""Rule for requests that only administrators may send, because these requests change something for others, or show
everything."""


class Caller(msgspec.Struct, frozen=True):
    """The sender and the content of a request, which an authenticator accepts or refuses."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes
    rule: AccessRule | None = None
    """Access rule of the request's code; None if no rule is declared for the code."""
