"""The built-in request processors, registered through the same hook as a third party's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flintmq.core.broker.stats_table import SAMPLE_INTERVAL_S
from flintmq.core.hookspecs import RegisterProcessor, hookimpl
from flintmq.plugins.acl import account_store
from flintmq.remoting.codes import RequestCode as Code
from flintmq.remoting.processors import acl, reply_message, send_message
from flintmq.remoting.processors.acl import AclProcessor
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor
from flintmq.remoting.processors.admin_clients import AdminClientProcessor
from flintmq.remoting.processors.admin_groups import AdminGroupProcessor
from flintmq.remoting.processors.admin_topics import AdminTopicProcessor
from flintmq.remoting.processors.client_manage import ClientManageProcessor
from flintmq.remoting.processors.consumer_manage import ConsumerManageProcessor
from flintmq.remoting.processors.end_transaction import EndTransactionProcessor, ResumeCheckProcessor
from flintmq.remoting.processors.pull_message import PullMessageProcessor
from flintmq.remoting.processors.query_message import QueryMessageProcessor
from flintmq.remoting.processors.reply_message import ReplyMessageProcessor
from flintmq.remoting.processors.runtime_info import RuntimeInfo
from flintmq.remoting.processors.send_back import SendBackProcessor
from flintmq.remoting.processors.send_message import SendMessageProcessor

if TYPE_CHECKING:
    from flintmq.plugins.broker import Broker

TABLE: Final[tuple[tuple[str, tuple[int, ...], Callable[[Any], Any], str], ...]] = (
    ("send_message", send_message.CODES, lambda b: SendMessageProcessor(b.state, b.pool("send")), "send"),
    ("send_back", (Code.CONSUMER_SEND_MSG_BACK,), lambda b: SendBackProcessor(b.state), "send"),
    ("pull_message", (Code.PULL_MESSAGE,), lambda b: PullMessageProcessor(b.state, b.server), "pull"),
    ("reply_message", reply_message.CODES, lambda b: ReplyMessageProcessor(b.state), "reply"),
    ("end_transaction", (Code.END_TRANSACTION,), lambda b: EndTransactionProcessor(b.state), "end_transaction"),
    ("resume_check", (Code.RESUME_CHECK_HALF_MESSAGE,), lambda b: ResumeCheckProcessor(b.state), "admin"),
    (
        "query_message",
        (Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID),
        lambda b: QueryMessageProcessor(b.state),
        "query",
    ),
    ("heartbeat", (Code.HEART_BEAT,), lambda b: ClientManageProcessor(b.state), "heartbeat"),
    (
        "client_manage",
        (Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG),
        lambda b: ClientManageProcessor(b.state),
        "client",
    ),
    (
        "consumer_manage",
        (Code.GET_CONSUMER_LIST_BY_GROUP, Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET),
        lambda b: ConsumerManageProcessor(b.state),
        "consumer",
    ),
    (
        "admin_topics",
        (
            Code.UPDATE_AND_CREATE_TOPIC,
            Code.DELETE_TOPIC_IN_BROKER,
            Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.GET_TOPIC_STATS_INFO,
            Code.QUERY_TOPIC_CONSUME_BY_WHO,
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            Code.GET_MAX_OFFSET,
            Code.GET_MIN_OFFSET,
            Code.GET_EARLIEST_MSG_STORETIME,
            Code.QUERY_CONSUME_QUEUE,
            Code.CLEAN_EXPIRED_CONSUMEQUEUE,
            Code.CLEAN_UNUSED_TOPIC,
        ),
        lambda b: AdminTopicProcessor(b.state, b.state.cleaner.clean_expired_queues),
        "admin",
    ),
    (
        "admin_groups",
        (
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            Code.DELETE_SUBSCRIPTIONGROUP,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_ALL_CONSUMER_OFFSET,
            Code.LOCK_BATCH_MQ,
            Code.UNLOCK_BATCH_MQ,
            Code.GET_CONSUME_STATS,
            Code.GET_BROKER_CONSUME_STATS,
            Code.CLONE_GROUP_OFFSET,
            Code.QUERY_CONSUME_TIME_SPAN,
            Code.QUERY_CORRECTION_OFFSET,
        ),
        lambda b: AdminGroupProcessor(b.state),
        "admin",
    ),
    (
        "admin_clients",
        (
            Code.GET_CONSUMER_CONNECTION_LIST,
            Code.GET_PRODUCER_CONNECTION_LIST,
            Code.GET_ALL_PRODUCER_INFO,
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            Code.GET_CONSUMER_RUNNING_INFO,
            Code.CONSUME_MESSAGE_DIRECTLY,
        ),
        lambda b: AdminClientProcessor(b.state),
        "admin",
    ),
    (
        "admin_broker",
        (
            Code.UPDATE_BROKER_CONFIG,
            Code.GET_BROKER_CONFIG,
            Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_ALL_DELAY_OFFSET,
            Code.VIEW_BROKER_STATS_DATA,
            Code.DELETE_EXPIRED_COMMITLOG,
        ),
        lambda b: _admin_broker(b),
        "admin",
    ),
    ("acl", acl.CODES, lambda b: AclProcessor(b.state, account_store(b.authenticators)), "admin"),
)
"""Name, codes, factory (given the broker) and bounded queue of the processors."""


class ProcessorsPlugin:
    """Sending, pulling, queries, clients, offsets and administration."""

    plugin_name = "processors"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        for name, codes, factory, pool in TABLE:
            register(name, tuple(int(code) for code in codes), factory, pool=pool)


def _admin_broker(broker: Broker) -> AdminBrokerProcessor:
    info = RuntimeInfo(broker.state, broker.pools)
    stats = broker.state.stats
    broker.timers.every(SAMPLE_INTERVAL_S, info.sample, "runtime figures")
    broker.timers.every(SAMPLE_INTERVAL_S, stats.sample, "statistics")
    broker.timers.every(60.0, stats.roll_put_times, "times of appends")
    return AdminBrokerProcessor(broker.state, info, stats.table, broker.state.cleaner.delete_manually)
