"""The plugin ``retry``, which stores refused messages in retry topics, and in dead letter topics after the last attempt.

A request processor stores each message that a consumer sends back. An intake step, which the broker calls before it stores a
message, checks the messages that are sent to retry topics. After the last attempt, the step redirects the message to the dead
letter topic.
"""

from __future__ import annotations

from typing import Final

from flintmq.core.broker import perm
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.redirected_message import check_deliverable
from flintmq.core.broker.stats import DEAD_LETTERS
from flintmq.core.broker.topic_config import UNIT_SUB_FLAG
from flintmq.core.broker.topic_name import DLQ_QUEUE_NUMS, RETRY_PREFIX, dlq_topic
from flintmq.core.errors import RefusedError
from flintmq.core.io import chance
from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports import Sent
from flintmq.core.kernel.ports.access import Permission
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.core.record import properties as props
from flintmq.core.record.host import offset_message_id
from flintmq.core.record.properties import RETRY_TOPIC
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.retry.retry import SendBackPlan, is_dead_on_send, plan_send_back
from flintmq.remoting.processors import needs
from flintmq.remoting.processors.answers import group_missing
from flintmq.remoting.processors.needs import group_need
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_message import ConsumerSendMsgBackRequestHeader

_DLQ_QUEUE_ID: Final = 0
_NOT_STORED: Final = (props.WAIT, props.CLUSTER)


class RetryPlugin:
    """The plugin that delivers refused messages again later, and makes them dead letters after too many attempts."""

    plugin_name = "retry"

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("retry", lambda context: RetryStep(context.api))

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("send_back", declared_by(SendBackProcessor), lambda context: SendBackProcessor(context.api))


class RetryStep:
    """Limits the attempts of messages sent to retry topics (:class:`flintmq.core.kernel.ports.IntakeStep`). Used only on the
    event loop's thread.

    The limit is the same whether a client sends to its retry topic itself or sends a message back.

    Args:
        api: the broker, for its tables.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.property_names: frozenset[str] = frozenset()
        self.topic_prefixes = (RETRY_PREFIX,)

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message to its group's dead letter topic after the last attempt. Return False, so that the broker also
        calls the later intake steps for the message.

        Raises:
            RefusedError: the group of the topic does not exist.
        """
        if sent is None:
            return False
        name = message.topic.removeprefix(RETRY_PREFIX)
        group = self._api.groups.select(name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}",
                reason="group.missing",
                key="groups.auto_create (autoCreateSubscriptionGroup)",
            )
        if is_dead_on_send(group, message.reconsume_times, sent.max_reconsume_times, sent.version):
            self._api.figures.counts.table.add(DEAD_LETTERS, f"{message.topic}@{name}")
            message.topic = dlq_topic(name)
            message.queue_id = _DLQ_QUEUE_ID
            self._api.topics.create_in_send_back(message.topic, DLQ_QUEUE_NUMS)
            message.properties = {key: value for key, value in message.properties.items() if key != props.DELAY}
            stored = {key: value for key, value in message.properties.items() if key not in _NOT_STORED}
            stored[props.CLUSTER] = self._api.settings.current.broker.cluster
            message.properties_bytes = props.properties_to_string(stored).encode("utf-8", "surrogatepass")
        return False


class SendBackProcessor(DeclaredProcessor):
    """Stores a refused message in its group's retry topic or dead letter topic. Used only on the event loop's thread."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    @handles(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        header=ConsumerSendMsgBackRequestHeader,
        pool="send",
        needs=needs.record(
            ConsumerSendMsgBackRequestHeader, Permission.SUB, lambda header: (group_need(header.group),)
        ),
    )
    async def send_back(self, request: Request) -> Response:
        """Store a message that a consumer could not process and has sent back with CONSUMER_SEND_MSG_BACK. The message goes to
        the retry topic of the consumer's group or, after the last attempt, to the group's dead letter topic. It is dropped if
        the group has no retry queues."""
        api = self._api
        if not api.role.takes_writes:
            api.log.check_writeable()
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = api.groups.select(header.group)
        if group is None:
            raise group_missing(header.group)
        perm.check_broker_writeable(api.settings.current.broker)
        if group.retry_queue_nums <= 0:
            return Response()  # A consumer group without retry queues drops the messages that its consumers send back.
        record = api.outlet.message_at(header.commit_log_offset_bytes)
        if record is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {header.commit_log_offset_bytes}",
                reason="message.gone",
            )
        plan = plan_send_back(
            record,
            offset_message_id(record.store_host.hex().upper(), record.commit_log_offset_bytes),
            group,
            delay_level=header.delay_level,
            requested_max=header.max_reconsume_times,
            version=request.version,
            choose_queue=chance.below,
        )
        message = plan.message(record, api.address.packed)
        message.queue_id = api.topics.queue_inside(plan.topic, plan.queue_id)
        self._place(message, plan)
        flag = UNIT_SUB_FLAG if header.unit_mode else 0
        config = api.topics.create_in_send_back(plan.topic, plan.queue_nums, topic_sys_flag=flag)
        if not perm.is_writeable(config.perm):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{plan.topic}] sending message is forbidden",
                reason="topic.not_writeable",
                measured=f"permission {config.perm}",
                key="the topic's permission (mqadmin updateTopicPerm)",
            )
        stored = api.put([message])
        try:
            stored.requests()
        except RefusedError as error:
            error.code = ResponseCode.SYSTEM_ERROR
            raise
        api.figures.counts.sent_back(plan.properties[RETRY_TOPIC], header.group)
        if plan.is_dead_letter:
            api.figures.counts.table.add(DEAD_LETTERS, f"{plan.properties[RETRY_TOPIC]}@{header.group}")
        await stored.acknowledge(strict=api.settings.current.store.compat == "strict")
        return Response()

    def _place(self, message: MessageExtBrokerInner, plan: SendBackPlan) -> None:
        """Redirect a refused message to the schedule topic, in which it waits for its delay level. A dead letter is not
        redirected. Raise SYSTEM_ERROR if the message could not be delivered."""
        try:
            if plan.is_dead_letter or not self._api.intake.steps.take(message):
                check_deliverable(message, plan.topic, self._api.settings.current.store.commit_log_file_bytes)
        except RefusedError as error:
            error.code = ResponseCode.SYSTEM_ERROR
            raise
