"""What a request code needs of the account that sends it: the words that access rules are written in.

The declaration of a request code has one :class:`AccessRule` (:func:`flintmq.core.kernel.ports.processor.handles`); an
authenticator compares what the rule needs with what an account owns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec


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


class Need(msgspec.Struct, frozen=True):
    """One topic or consumer group that a request is about, and what it does with it."""

    name: str
    """The name of the topic or of the consumer group."""
    permission: Permission
    """One of these flags is enough."""
    is_group: bool = False

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


class Access(enum.Enum):
    """The accounts that may use a request code."""

    PUBLIC = "public"
    """Everyone, without a signature too."""
    CLIENT = "client"
    """Every account that has what the rule needs."""
    ADMIN = "admin"
    """Administrators."""


TopicAt = Callable[[int], "str | None"]
"""Returns the topic that clients know a record by, given its physical offset; None when the record does not exist."""


class AccessFacts(msgspec.Struct, frozen=True):
    """What a rule may look up to say what a request needs."""

    trace_topic: str
    """The topic of message traces, which every account may write to (``topics.trace_topic_name``)."""
    topic_at: TopicAt
    """The topic of a record in the log."""


class AccessRule(msgspec.Struct, frozen=True):
    """What one request code needs of its sender."""

    access: Access
    needs: Callable[[Caller, AccessFacts], Sequence[Need]] | None = None
    """Returns the topics and groups that a request is about; asked for ``CLIENT`` alone. None: nothing but an account.

    Raises ``RefusedError`` when the request does not say what it is about.
    """


PUBLIC: Final = AccessRule(Access.PUBLIC)
"""Everyone, without a signature too."""
ACCOUNT: Final = AccessRule(Access.CLIENT)
"""Every account: the code shows where things are, not what is in them."""
ADMIN: Final = AccessRule(Access.ADMIN)
"""Administrators: the code changes something for others, or shows everything."""


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request and what it sent, for an authenticator to judge."""

    remote_host: str
    code: int
    ext_fields: Mapping[str, str]
    body: bytes
    rule: AccessRule | None = None
    """What the declaration of the request code says that it needs; None for a code without a declared rule."""
