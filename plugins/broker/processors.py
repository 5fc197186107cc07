"""The built-in request processors, registered through the same hook as a third party's.

What every broker does with every message is made when it starts; all else is imported and made with the first request that
asks for it (:class:`LateProcessor`), so that a broker holds in memory what it is used for.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from flintmq.core.broker.stats_table import SAMPLE_INTERVAL_S
from flintmq.core.kernel.hookspecs import RegisterProcessor, hookimpl
from flintmq.remoting.processors import send_message
from flintmq.remoting.processors.pull_message import PullMessageProcessor
from flintmq.remoting.processors.runtime_info import RuntimeInfo
from flintmq.remoting.processors.send_message import SendMessageProcessor
from flintmq.remoting.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    from flintmq.plugins.broker.broker import Broker
    from flintmq.remoting.server.request import Handler, Request, Response


class LateProcessor:
    """Stands for a processor until a request comes for it. Loop thread.

    Args:
        codes: what it answers.
        make: imports and makes it.
    """

    def __init__(self, codes: tuple[int, ...], make: Callable[[], Any]) -> None:
        self._codes = codes
        self._make = make
        self._made: Mapping[int, Handler] | None = None

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys(self._codes, self._handle)

    def _handle(self, request: Request) -> Awaitable[Response | None] | Response | None:
        if self._made is None:
            self._made = self._make().handlers()
        return self._made[request.code](request)


def _late(codes: tuple[int, ...], target: str, *arguments: Callable[[Any], object]) -> Callable[[Any], LateProcessor]:
    """A factory for a class of ``remoting/processors``, which is given the state and what the arguments make of the broker."""
    module, _, name = target.partition(":")

    def make(broker: Broker) -> Any:
        cls = getattr(importlib.import_module(f"flintmq.remoting.processors.{module}"), name)
        return cls(broker.state, *(argument(broker) for argument in arguments))

    return lambda broker: LateProcessor(codes, lambda: make(broker))


_Row = tuple[str, tuple[int, ...], Callable[[Any], Any], str]


def _row(name: str, codes: tuple[int, ...], target: str, pool: str, *arguments: Callable[[Any], object]) -> _Row:
    return name, codes, _late(codes, target, *arguments), pool


_ADMIN_BROKER: Final = (
    Code.UPDATE_BROKER_CONFIG,
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_ALL_DELAY_OFFSET,
    Code.VIEW_BROKER_STATS_DATA,
    Code.DELETE_EXPIRED_COMMITLOG,
)
TABLE: Final[tuple[_Row, ...]] = (
    ("send_message", send_message.CODES, lambda b: SendMessageProcessor(b.state, b.pool("send")), "send"),
    ("pull_message", (Code.PULL_MESSAGE,), lambda b: PullMessageProcessor(b.state, b.server), "pull"),
    _row("send_back", (Code.CONSUMER_SEND_MSG_BACK,), "send_back:SendBackProcessor", "send"),
    _row(
        "reply_message",
        (Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
        "reply_message:ReplyMessageProcessor",
        "reply",
    ),
    _row("end_transaction", (Code.END_TRANSACTION,), "end_transaction:EndTransactionProcessor", "end_transaction"),
    _row("resume_check", (Code.RESUME_CHECK_HALF_MESSAGE,), "end_transaction:ResumeCheckProcessor", "admin"),
    _row(
        "query_message",
        (Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID),
        "query_message:QueryMessageProcessor",
        "query",
    ),
    _row("heartbeat", (Code.HEART_BEAT,), "client_manage:ClientManageProcessor", "heartbeat"),
    _row(
        "client_manage",
        (Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG),
        "client_manage:ClientManageProcessor",
        "client",
    ),
    _row(
        "consumer_manage",
        (Code.GET_CONSUMER_LIST_BY_GROUP, Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET),
        "consumer_manage:ConsumerManageProcessor",
        "consumer",
    ),
    _row(
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
        "admin_topics:AdminTopicProcessor",
        "admin",
        lambda b: b.state.cleaner.clean_expired_queues,
    ),
    _row(
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
        "admin_groups:AdminGroupProcessor",
        "admin",
    ),
    _row(
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
        "admin_clients:AdminClientProcessor",
        "admin",
    ),
    (
        "admin_broker",
        _ADMIN_BROKER,
        lambda b: _admin_broker(b),
        "admin",
    ),
)
"""Name, codes, factory (given the broker) and bounded queue of the processors."""


class ProcessorsPlugin:
    """Sending, pulling, queries, clients, offsets and administration."""

    plugin_name = "processors"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        for name, codes, factory, pool in TABLE:
            register(name, tuple(int(code) for code in codes), factory, pool=pool)


def _admin_broker(broker: Broker) -> LateProcessor:
    """The figures are sampled from the start, whoever asks for them when."""
    info = RuntimeInfo(broker.state, broker.pools, broker.kernel.blame_code)
    stats = broker.state.stats
    broker.timers.every(SAMPLE_INTERVAL_S, info.sample, "runtime figures")
    broker.timers.every(SAMPLE_INTERVAL_S, stats.sample, "statistics")
    broker.timers.every(60.0, stats.roll_put_times, "times of appends")
    make = _late(
        _ADMIN_BROKER,
        "admin_broker:AdminBrokerProcessor",
        lambda _: info,
        lambda _: stats.table,
        lambda b: b.state.cleaner.delete_manually,
    )
    return make(broker)
