"""Permissions and rules that say which accounts may send a request code.

The declaration of a request code has one :class:`AccessRule` (:func:`flintmq.core.kernel.ports.processor.handles`). An
authenticator compares the permissions that the rule needs with the permissions of the account.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec


class Permission(enum.Flag):
    """The actions on a topic or a group that an account owns or a request needs.

    An account that owns a permission may do everything that its flags name. A request that needs a permission needs only
    one of its flags: ``ANY`` is met by ``PUB`` or by ``SUB``.
    """

    DENY = 0
    PUB = enum.auto()
    SUB = enum.auto()
    ANY = PUB | SUB

    def covers(self, needed: Permission) -> bool:
        """Return whether an account that owns this permission meets the needed one: they have a flag in common."""
        return bool(self & needed)


class Need(msgspec.Struct, frozen=True):
    """A topic or a consumer group that a request uses, and the permission that the request needs for it."""

    name: str
    """The name of the topic or of the consumer group."""
    permission: Permission
    """Needed permission; the account must own at least one of its flags."""
    is_group: bool = False

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


class Access(enum.Enum):
    """The accounts that may use a request code."""

    PUBLIC = "public"
    """Everyone, without a signature too."""
    CLIENT = "client"
    """Every account that owns the permissions that the rule needs."""
    ADMIN = "admin"
    """Administrators."""


TopicAt = Callable[[int], "str | None"]
"""Returns the topic that clients know a record by, given its physical offset; None when the record does not exist."""


class AccessFacts(msgspec.Struct, frozen=True):
    """Facts about the broker that a rule may look up to find the topics that a request uses."""

    trace_topic: str
    """The topic of message traces, which every account may write to (``topics.trace_topic_name``)."""
    topic_at: TopicAt
    """Function that returns the topic of a record in the log."""


class AccessRule(msgspec.Struct, frozen=True):
    """The accounts that may send a request code, and the permissions that they need."""

    access: Access
    needs: Callable[[Caller, AccessFacts], Sequence[Need]] | None = None
    """Function that returns the topics and groups that a request uses; None if any account will do. Called only for ``CLIENT``.

    It raises ``RefusedError`` if the request does not name its topic or group.
    """


PUBLIC: Final = AccessRule(Access.PUBLIC)
"""Everyone, without a signature too."""
ACCOUNT: Final = AccessRule(Access.CLIENT)
"""Every account: the request shows where data is, but not the data."""
ADMIN: Final = AccessRule(Access.ADMIN)
"""Administrators: the request changes something for others, or shows everything."""


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request and what it sent, for an authenticator to judge."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes
    rule: AccessRule | None = None
    """Access rule of the request code; None if the code declares none."""
