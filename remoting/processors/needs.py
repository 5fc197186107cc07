"""Access rules, each of which computes the rights that an account needs to send a request.

The declaration of a request handler names the access rule of its request codes. The rules differ from RocketMQ's in these
points:

* Batch sends (320) need PUB, as single sends do.
* A send to a retry topic needs the right to the consumer group of the retry topic.
* Every account may send messages to the trace topic. Other rights that the same request needs are checked.
* Requests that contain the physical offset of a message (33, 36, 37) need the right to the topic of that message.
* Every request for administration needs the account of an administrator.
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
    """Return the right that an account needs to act as a member of a consumer group."""
    return Need(name, Permission.SUB, is_group=True)


def topic_need(name: str, permission: Permission) -> Need:
    """Return the right to a permission, such as PUB or SUB, in a topic.

    For a retry topic, return the right to act as a member of the topic's consumer group.
    """
    if name.startswith(RETRY_PREFIX):
        return group_need(name[len(RETRY_PREFIX) :])
    return Need(name, permission)


def named(caller: Caller, field: str) -> str:
    """Return a required field of a request. The field names the topic or the consumer group whose access is checked.

    Raises:
        RefusedError: the request does not have the field, or the field is empty.
    """
    value = caller.ext_fields.get(field)
    if not value:
        raise system_error(f"AclException: the request has no {field}", reason="acl.unspecific")
    return value


def topic(permission: Permission) -> AccessRule:
    """Return an access rule that requires a permission in the topic of the request."""
    return AccessRule(Access.CLIENT, lambda caller, _facts: (topic_need(named(caller, "topic"), permission),))


def group(field: str = "consumerGroup") -> AccessRule:
    """Return an access rule that requires the right to a consumer group, which a field of the request names."""
    return AccessRule(Access.CLIENT, lambda caller, _facts: (group_need(named(caller, field)),))


def topic_and_group(field: str = "consumerGroup") -> AccessRule:
    """Return an access rule that requires rights to the topic and the consumer group of the request.

    The right to the topic is the right to read.
    """
    return AccessRule(
        Access.CLIENT,
        lambda caller, _facts: (topic_need(named(caller, "topic"), Permission.SUB), group_need(named(caller, field))),
    )


def given_group() -> AccessRule:
    """Return an access rule that requires the right to the request's consumer group, if the request names one."""

    def needs(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        name = caller.ext_fields.get("consumerGroup")
        return (group_need(name),) if name else ()

    return AccessRule(Access.CLIENT, needs)


def group_and_given_topic() -> AccessRule:
    """Return an access rule that requires the right to the consumer group of the request.

    If the request also names a topic, the rule requires the right to read the topic, too.
    """

    def needs(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        name = caller.ext_fields.get("topic")
        wanted = (group_need(named(caller, "consumerGroup")),)
        return (*wanted, topic_need(name, Permission.SUB)) if name else wanted

    return AccessRule(Access.CLIENT, needs)


def send(field: str) -> AccessRule:
    """Return an access rule that requires the right to write to a topic, which a field of the request names.

    Every account may write to the trace topic.
    """

    def needs(caller: Caller, facts: AccessFacts) -> Sequence[Need]:
        name = named(caller, field)
        return () if name == facts.trace_topic else (topic_need(name, Permission.PUB),)

    return AccessRule(Access.CLIENT, needs)


def record(
    model: type[R], permission: Permission, also: Callable[[R], Sequence[Need]] = lambda _header: ()
) -> AccessRule:
    """Return the access rule for requests that name a record by its physical offset in the log.

    The account needs a permission in the topic of the record. If no record begins at the physical offset, no permission is
    needed, and the processor refuses the request.

    Args:
        model: the type of the header, which has ``commit_log_offset_bytes``.
        permission: the permission in the record's topic.
        also: a function that returns, for a request's header, further rights that the request needs.
    """

    def needs(caller: Caller, facts: AccessFacts) -> Sequence[Need]:
        header = model.of_fields(dict(caller.ext_fields))
        found = facts.topic_at(header.commit_log_offset_bytes)
        return (*also(header), *(() if found is None else (topic_need(found, permission),)))

    return AccessRule(Access.CLIENT, needs)


def body(needs: Callable[[bytes], Sequence[Need]]) -> AccessRule:
    """Return an access rule that requires rights to the topics and consumer groups in the body of the request.

    Args:
        needs: a function that returns, for a request's body, the rights that the request needs. If the function raises a
            ``FlintError``, the request is refused.
    """

    def checked(caller: Caller, _facts: AccessFacts) -> Sequence[Need]:
        try:
            return needs(caller.body)
        except FlintError as error:
            raise system_error(str(error)[:500], reason="acl.unspecific") from error

    return AccessRule(Access.CLIENT, checked)
