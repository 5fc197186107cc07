"""What every request code needs of the account that signs it.

A code that is not here is refused; a test holds the table against :class:`~flintmq.remoting.wire.codes.RequestCode`.
Compared with RocketMQ: batch sends (320) need PUB as single ones do; a send to a retry topic needs the right to its own group;
a trace is always taken, but nothing else that the same request needs is passed over; codes that name a message by its place in
the log (33, 36, 37) need the right to the topic found there; and administration needs an administrator for every code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.core.errors import FlintError, RefusedError
from flintmq.core.kernel.ports import Caller
from flintmq.core.kernel.ports.access import Access, AccessRule, Need, NeedsOf, Permission, TopicAt
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode as Code
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_message import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    ViewMessageRequestHeader,
)

PUB: Final = Permission.PUB
SUB: Final = Permission.SUB
ANY: Final = Permission.ANY


def group_need(group: str) -> Need:
    """Return what acting as a member of a consumer group needs."""
    return Need(group, Permission.SUB, is_group=True)


def topic_need(topic: str, permission: Permission) -> Need:
    """Return what a use of a topic needs. A retry topic belongs to its group, whose members may read and write it."""
    if topic.startswith(RETRY_PREFIX):
        return group_need(topic[len(RETRY_PREFIX) :])
    return Need(topic, permission)


def _field(caller: Caller, name: str) -> str:
    value = caller.ext_fields.get(name)
    if not value:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"AclException: the request has no {name}", reason="acl.unspecific"
        )
    return value


def _topic(permission: Permission, name: str = "topic") -> NeedsOf:
    """One topic, named by a field."""
    return lambda caller, _topic_at: (topic_need(_field(caller, name), permission),)


def _group(name: str = "consumerGroup") -> NeedsOf:
    """One consumer group, named by a field."""
    return lambda caller, _topic_at: (group_need(_field(caller, name)),)


def _both(group: str = "consumerGroup") -> NeedsOf:
    """To read a topic as a member of a group."""
    return lambda caller, _topic_at: (topic_need(_field(caller, "topic"), SUB), group_need(_field(caller, group)))


def _send(name: str, trace_topic: str) -> NeedsOf:
    """To write to a topic. Traces are taken from everyone who is known here."""

    def needs(caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
        topic = _field(caller, name)
        return () if topic == trace_topic else (topic_need(topic, PUB),)

    return needs


def _leaving(caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
    group = caller.ext_fields.get("consumerGroup")
    return (group_need(group),) if group else ()


def _stats_of_group(caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
    topic = caller.ext_fields.get("topic")
    return (group_need(_field(caller, "consumerGroup")), *((topic_need(topic, SUB),) if topic else ()))


def _record(topic: str | None, permission: Permission) -> tuple[Need, ...]:
    """A record that is not there needs nothing: whoever asks for it is told so."""
    return () if topic is None else (topic_need(topic, permission),)


def _view(caller: Caller, topic_at: TopicAt) -> Sequence[Need]:
    header = decode_header(ViewMessageRequestHeader, dict(caller.ext_fields))
    return _record(topic_at(header.commit_log_offset_bytes), SUB)


def _send_back(caller: Caller, topic_at: TopicAt) -> Sequence[Need]:
    header = decode_header(ConsumerSendMsgBackRequestHeader, dict(caller.ext_fields))
    return (group_need(header.group), *_record(topic_at(header.commit_log_offset_bytes), SUB))


def _end_transaction(caller: Caller, topic_at: TopicAt) -> Sequence[Need]:
    header = decode_header(EndTransactionRequestHeader, dict(caller.ext_fields))
    return _record(topic_at(header.commit_log_offset_bytes), PUB)


def _of_body(needs: Callable[[bytes], Sequence[Need]]) -> NeedsOf:
    """What a body says."""

    def checked(caller: Caller, _topic_at: TopicAt) -> Sequence[Need]:
        try:
            return needs(caller.body)
        except FlintError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)[:500], reason="acl.unspecific") from error

    return checked


def _heartbeat(body: bytes) -> list[Need]:
    found = []
    for consumer in bodies.HeartbeatData.of_request(body).consumer_data_set:
        found.append(group_need(consumer.group_name))
        found += [topic_need(wanted.topic, SUB) for wanted in consumer.subscription_data_set]
    return found


def _locks(body: bytes) -> list[Need]:
    wanted = bodies.LockBatchRequestBody.of_request(body)
    return [group_need(wanted.consumer_group), *(topic_need(queue.topic, SUB) for queue in wanted.mq_set)]


def _client_config(body: bytes) -> list[Need]:
    wanted = bodies.CheckClientRequestBody.of_request(body)
    subscription = wanted.subscription_data
    return [group_need(wanted.group), *((topic_need(subscription.topic, SUB),) if subscription else ())]


_NEEDS: Final[Mapping[int, NeedsOf]] = {
    Code.PULL_MESSAGE: _both(),
    Code.QUERY_MESSAGE: _topic(SUB),
    Code.QUERY_CONSUMER_OFFSET: _both(),
    Code.UPDATE_CONSUMER_OFFSET: _both(),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _topic(ANY),
    Code.GET_MAX_OFFSET: _topic(ANY),
    Code.GET_MIN_OFFSET: _topic(ANY),
    Code.GET_EARLIEST_MSG_STORETIME: _topic(ANY),
    Code.VIEW_MESSAGE_BY_ID: _view,
    Code.HEART_BEAT: _of_body(_heartbeat),
    Code.UNREGISTER_CLIENT: _leaving,
    Code.CONSUMER_SEND_MSG_BACK: _send_back,
    Code.END_TRANSACTION: _end_transaction,
    Code.GET_CONSUMER_LIST_BY_GROUP: _group(),
    Code.LOCK_BATCH_MQ: _of_body(_locks),
    Code.UNLOCK_BATCH_MQ: _of_body(_locks),
    Code.CHECK_CLIENT_CONFIG: _of_body(_client_config),
    Code.GET_TOPIC_STATS_INFO: _topic(ANY),
    Code.GET_CONSUMER_CONNECTION_LIST: _group(),
    Code.GET_CONSUME_STATS: _stats_of_group,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _topic(ANY),
    Code.QUERY_CONSUME_TIME_SPAN: _both("group"),
}
"""Codes of ordinary clients that are about topics and groups."""

_SENDS: Final = {
    Code.SEND_MESSAGE: "topic",
    Code.SEND_MESSAGE_V2: "b",
    Code.SEND_BATCH_MESSAGE: "b",
    Code.SEND_REPLY_MESSAGE: "topic",
    Code.SEND_REPLY_MESSAGE_V2: "b",
}
"""Sends, with the field that names the topic."""

_CLIENT: Final = (
    Code.GET_ROUTEINFO_BY_TOPIC,
    Code.GET_BROKER_CLUSTER_INFO,
    Code.GET_KV_CONFIG,
    Code.GET_KVLIST_BY_NAMESPACE,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
)
"""Any account: where things are, not what is in them."""

_ADMIN: Final = (
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.GET_ALL_TOPIC_CONFIG,
    Code.UPDATE_BROKER_CONFIG,
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.UPDATE_AND_CREATE_ACL_CONFIG,
    Code.DELETE_ACL_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG,
    Code.PUT_KV_CONFIG,
    Code.DELETE_KV_CONFIG,
    Code.REGISTER_BROKER,
    Code.UNREGISTER_BROKER,
    Code.QUERY_DATA_VERSION,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.WIPE_WRITE_PERM_OF_BROKER,
    Code.ADD_WRITE_PERM_OF_BROKER,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    Code.DELETE_SUBSCRIPTIONGROUP,
    Code.DELETE_TOPIC_IN_BROKER,
    Code.DELETE_TOPIC_IN_NAMESRV,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.GET_TOPICS_BY_CLUSTER,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.QUERY_CORRECTION_OFFSET,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.GET_UNIT_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    Code.CLONE_GROUP_OFFSET,
    Code.VIEW_BROKER_STATS_DATA,
    Code.CLEAN_UNUSED_TOPIC,
    Code.GET_BROKER_CONSUME_STATS,
    Code.UPDATE_NAMESRV_CONFIG,
    Code.GET_NAMESRV_CONFIG,
    Code.QUERY_CONSUME_QUEUE,
    Code.RESUME_CHECK_HALF_MESSAGE,
    Code.GET_ALL_PRODUCER_INFO,
    Code.DELETE_EXPIRED_COMMITLOG,
)
"""Administrators: what changes something for others, and what tells about everything."""

_PUSHED: Final = (
    Code.CHECK_TRANSACTION_STATE,
    Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
"""Sent by brokers to clients."""

_UNSERVED: Final = (
    Code.QUERY_BROKER_OFFSET,
    Code.GET_TOPIC_CONFIG_LIST,
    Code.GET_TOPIC_NAME_LIST,
    Code.TRIGGER_DELETE_FILES,
    Code.SUSPEND_CONSUMER,
    Code.RESUME_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    Code.RESET_CONSUMER_OFFSET_IN_BROKER,
    Code.ADJUST_CONSUMER_THREAD_POOL,
    Code.WHO_CONSUME_THE_MESSAGE,
    Code.REGISTER_FILTER_SERVER,
    Code.REGISTER_MESSAGE_FILTER_CLASS,
)
"""Answered by nobody."""


def access_rules(trace_topic: str, extra_codes: Sequence[str] = ()) -> dict[int, AccessRule]:
    """The rule of every request code.

    Args:
        trace_topic: the topic of message traces (``topics.trace_topic_name``).
        extra_codes: ``CODE=public|client|admin`` for codes of plugins; they may also change a built-in code's class.
    """
    rules: dict[int, AccessRule] = {int(code): AccessRule(Access.CLIENT, needs) for code, needs in _NEEDS.items()}
    rules |= {int(code): AccessRule(Access.CLIENT, _send(name, trace_topic)) for code, name in _SENDS.items()}
    for access, codes in (
        (Access.CLIENT, _CLIENT),
        (Access.ADMIN, _ADMIN),
        (Access.PUSHED, _PUSHED),
        (Access.UNSERVED, _UNSERVED),
    ):
        rules |= {int(code): AccessRule(access) for code in codes}
    for entry in extra_codes:
        code, _, word = entry.partition("=")
        rules[int(code)] = AccessRule(Access(word))
    return rules
