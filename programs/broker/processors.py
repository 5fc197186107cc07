"""The broker's own request processors, registered through the same hook as a third party's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flintmq.core.broker.stats_table import SAMPLE_INTERVAL_S
from flintmq.core.kernel.hookspecs import RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.processor import DeclaredProcessor, declared_by
from flintmq.programs.broker.broker_report import BrokerReportProcessor
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor, RuntimeInfo
from flintmq.remoting.processors.admin_clients import AdminClientProcessor
from flintmq.remoting.processors.admin_groups import AdminGroupProcessor
from flintmq.remoting.processors.admin_topics import AdminTopicProcessor
from flintmq.remoting.processors.clients import ClientManageProcessor, ConsumerManageProcessor
from flintmq.remoting.processors.pull_message import PullMessageProcessor
from flintmq.remoting.processors.query_message import QueryMessageProcessor
from flintmq.remoting.processors.reply_message import ReplyMessageProcessor
from flintmq.remoting.processors.send_message import SendMessageProcessor

if TYPE_CHECKING:
    from flintmq.programs.broker.broker import Broker

_OF_STATE: dict[str, type[DeclaredProcessor]] = {
    "reply_message": ReplyMessageProcessor,
    "query_message": QueryMessageProcessor,
    "client_manage": ClientManageProcessor,
    "consumer_manage": ConsumerManageProcessor,
    "admin_topics": AdminTopicProcessor,
    "admin_groups": AdminGroupProcessor,
    "admin_clients": AdminClientProcessor,
}
"""Processors that need nothing but the broker's state, by name."""


class ProcessorsPlugin:
    """Sending, pulling, queries, clients, offsets and administration."""

    plugin_name = "processors"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("send_message", declared_by(SendMessageProcessor), _send_message)
        register("pull_message", declared_by(PullMessageProcessor), _pull_message)
        for name, made in _OF_STATE.items():
            register(name, declared_by(made), partial(_of_state, made))
        register("admin_broker", declared_by(AdminBrokerProcessor), _admin_broker)
        register("broker_report", declared_by(BrokerReportProcessor), _broker_report)


def _of_state(made: type, broker: Broker) -> DeclaredProcessor:
    processor: DeclaredProcessor = made(broker.state)
    return processor


def _send_message(broker: Broker) -> SendMessageProcessor:
    return SendMessageProcessor(broker.state, broker.server, broker.pool("send"))


def _pull_message(broker: Broker) -> PullMessageProcessor:
    return PullMessageProcessor(broker.state, broker.server)


def _broker_report(broker: Broker) -> BrokerReportProcessor:
    return BrokerReportProcessor(broker.state, broker.loaded)


def _admin_broker(broker: Broker) -> AdminBrokerProcessor:
    """Make the processor, and sample its figures from the start on."""
    info = RuntimeInfo(broker.state, broker.pools.by_name, broker.kernel.blame_code)
    broker.runtime_info = info
    stats = broker.state.stats
    broker.timers.every(SAMPLE_INTERVAL_S, info.sample, "runtime figures")
    return AdminBrokerProcessor(broker.state, info, stats.table)
