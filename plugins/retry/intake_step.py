"""Makes dead letters of messages that clients send to their retry topic once too often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flintmq.core.broker.topic_name import DLQ_QUEUE_NUMS, RETRY_PREFIX, dlq_topic
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import Sent
from flintmq.core.record import properties as props
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.retry.retry import is_dead_on_send, without_delay

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_DLQ_QUEUE_ID: Final = 0
_NOT_STORED: Final = (props.WAIT, props.CLUSTER)


class RetryStep:
    """Looks at messages to retry topics (:class:`flintmq.core.kernel.ports.IntakeStep`). Loop thread.

    A client that sends to its retry topic itself is held to the same maximum as one that sends a message back.

    Args:
        api: the tables of the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.property_names: frozenset[str] = frozenset()
        self.topic_prefixes = (RETRY_PREFIX,)

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that was delivered often enough to the dead letters of its group; later steps go on with it.

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
            message.topic = dlq_topic(name)
            message.queue_id = _DLQ_QUEUE_ID
            self._api.topics.create_in_send_back(message.topic, DLQ_QUEUE_NUMS)
            message.properties = kept = without_delay(message.properties)
            stored = {key: value for key, value in kept.items() if key not in _NOT_STORED}
            stored[props.CLUSTER] = self._api.config.broker.cluster
            message.properties_bytes = props.properties_to_string(stored).encode("utf-8", "surrogatepass")
        return False
