"""The broker's own request processors, registered through the same hook as third-party processors."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from flintmq.core.kernel.hookspecs import ApiContext, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.programs.broker.broker_report import BrokerReportProcessor
from flintmq.remoting.processors.admin_broker import AdminBrokerProcessor
from flintmq.remoting.processors.admin_clients import AdminClientProcessor
from flintmq.remoting.processors.admin_groups import AdminGroupProcessor
from flintmq.remoting.processors.admin_topics import AdminTopicProcessor
from flintmq.remoting.processors.clients import ClientManageProcessor, ConsumerManageProcessor
from flintmq.remoting.processors.pull_message import PullMessageProcessor
from flintmq.remoting.processors.query_message import QueryMessageProcessor
from flintmq.remoting.processors.reply_message import ReplyMessageProcessor
from flintmq.remoting.processors.send_message import SendMessageProcessor

_PROCESSORS: Final[dict[str, type[Any]]] = {
    "send_message": SendMessageProcessor,
    "pull_message": PullMessageProcessor,
    "reply_message": ReplyMessageProcessor,
    "query_message": QueryMessageProcessor,
    "client_manage": ClientManageProcessor,
    "consumer_manage": ConsumerManageProcessor,
    "admin_topics": AdminTopicProcessor,
    "admin_groups": AdminGroupProcessor,
    "admin_clients": AdminClientProcessor,
    "admin_broker": AdminBrokerProcessor,
    "broker_report": BrokerReportProcessor,
}


class ProcessorsPlugin:
    """Registers the processors for sending, pulling, queries, clients, offsets and administration."""

    plugin_name = "processors"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        for name, made in _PROCESSORS.items():
            register(name, declared_by(made), partial(_make, made))


def _make(processor: type[Any], context: ApiContext[object]) -> Any:
    return processor(context.api)
