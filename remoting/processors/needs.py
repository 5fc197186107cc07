"""What request codes need of the account that signs them, for the declarations of handlers.

Compared with RocketMQ: batch sends (320) need PUB as single ones do; a send to a retry topic needs the right to its own group;
a trace is always taken, but everything else that the same request needs is asked for; codes that name a message by its place
in the log (33, 36, 37) need the right to the topic found there; and administration needs an administrator for every code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.access import Access, AccessFacts, AccessRule, Caller, Need, Permission
from flintmq.core.kernel.ports.processor import Header
from flintmq.remoting.wire.refusal import system_error


class _NamesARecord(Header, Protocol):
    commit_log_offset_bytes: int


R = TypeVar("R", bound=_NamesARecord)


def group_need(name: str) -> Need:
    """Return the need to act as a member of a consumer group."""
    return Need(name, Permission.SUB, is_group=True)


def topic_need(name: str, permission: Permission) -> Need:
    """Return the need of a topic; a retry topic belongs to its group, whose members may do everything with it."""
    if name.startswith(RETRY_PREFIX):
        return group_need(name[len(RETRY_PREFIX) :])
    return Need(name, permission)


def named(caller: Caller, field: str) -> str:
    """Return a field of a request that must have it.

    Raises:
        RefusedError: the request has no such field, so that it does not say what it is about.
    """
    value = caller.ext_fields.get(field)
    if not value:
        raise system_error(f"AclException: the request has no {field}", reason="acl.unspecific")
    return value


def topic(permission: Permission) -> AccessRule:
    """Need a right to the topic of a request."""
    return AccessRule(Access.CLIENT, lambda caller, _facts: (topic_need(named(caller, "topic"), permission),))


def group(field: str = "consumerGroup") -> AccessRule:
    """Need the right to the consumer group of a request."""
    return AccessRule(Access.CLIENT, lambda caller, _facts: (group_need(named(caller, field)),))


def topic_and_group(field: str = "consumerGroup") -> AccessRule:
    """Need the right to read a topic as a member of a group."""
    return AccessRule(
        Access.CLIENT,
        lambda caller, _facts: (topic_need(named(caller, "topic"), Permission.SUB), group_need(named(caller, field))),
    )


def given_group() -> AccessRule:
    """Need the right to the consumer group of a request, where it is given."""

    def needs(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        name = caller.ext_fields.get("consumerGroup")
        return (group_need(name),) if name else ()

    return AccessRule(Access.CLIENT, needs)


def group_and_given_topic() -> AccessRule:
    """Need the right to a group, and to read a topic where one is given."""

    def needs(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        name = caller.ext_fields.get("topic")
        wanted = (group_need(named(caller, "consumerGroup")),)
        return (*wanted, topic_need(name, Permission.SUB)) if name else wanted

    return AccessRule(Access.CLIENT, needs)


def send(field: str) -> AccessRule:
    """Need the right to write to the topic that a field names; every account may write traces."""

    def needs(caller: Caller, facts: AccessFacts) -> Sequence[Need]:
        name = named(caller, field)
        return () if name == facts.trace_topic else (topic_need(name, Permission.PUB),)

    return AccessRule(Access.CLIENT, needs)


def record(
    model: type[R], permission: Permission, also: Callable[[R], Sequence[Need]] = lambda _header: ()
) -> AccessRule:
    """Need a right to the topic of the record that a header names by its physical offset.

    A record that does not exist needs nothing: the processor tells the client that it is missing.

    Args:
        model: the typed header, with ``commit_log_offset_bytes``.
        permission: the right to the record's topic.
        also: further needs that the header names.
    """

    def needs(caller: Caller, facts: AccessFacts) -> Sequence[Need]:
        header = model.of_fields(dict(caller.ext_fields))
        found = facts.topic_at(header.commit_log_offset_bytes)
        return (*also(header), *(() if found is None else (topic_need(found, permission),)))

    return AccessRule(Access.CLIENT, needs)


def body(needs: Callable[[bytes], Sequence[Need]]) -> AccessRule:
    """Need what a request's body names.

    Args:
        needs: reads the body; what it raises refuses the request.
    """

    def checked(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        try:
            return needs(caller.body)
        except FlintError as error:
            raise system_error(str(error)[:500], reason="acl.unspecific") from error

    return AccessRule(Access.CLIENT, checked)
