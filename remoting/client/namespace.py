"""Names of topics and groups within a namespace, as clients of RocketMQ 4.9 write them (``NamespaceUtil``).

Programs use plain names; brokers and name servers see ``NAMESPACE%TOPIC`` and ``%RETRY%NAMESPACE%GROUP``. The code that sends
requests adds the namespace to names (wraps them), and the code that reads answers removes the namespace. The rest of the client
uses plain names only.
"""

from __future__ import annotations

from typing import Final

import attrs
from msgspec.structs import replace

from flintmq.config.rocketmq.system_topics import SYSTEM_TOPICS
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.broker.topic_name import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    check_group_name,
    reply_topic,
)
from flintmq.core.errors import InvalidArgumentError, RefusedError
from flintmq.remoting.client.message import MessageExt

_SEPARATOR: Final = "%"
_REPLIES: Final = reply_topic("")
"""The ending of the names of reply topics. Brokers own reply topics, so this client adds no namespace to the names of reply
topics. The Java client adds a namespace."""


def _checked(_instance: object, _attribute: object, name: str) -> None:
    if name:
        try:
            check_group_name(name)
        except RefusedError as refused:
            raise InvalidArgumentError(f"namespace: {refused.remark}") from refused
        if _SEPARATOR in name:
            raise InvalidArgumentError(
                f"namespace {name!r} contains '{_SEPARATOR}', which separates a namespace from a name"
            )


@attrs.frozen
class Namespace:
    """A namespace of topics and groups. A namespace with an empty name changes no names.

    Raises:
        ValueError: brokers refuse this name.
    """

    name: str = attrs.field(default="", validator=_checked)

    def wrap(self, resource: str) -> str:
        """Return the name of a topic or group with the namespace; system names, and names that already have the namespace, are
        returned unchanged."""
        if not self.name or not resource or _is_system(resource):
            return resource
        prefix, plain = _parted(resource)
        start = f"{self.name}{_SEPARATOR}"
        return resource if plain.startswith(start) else f"{prefix}{start}{plain}"

    def unwrap(self, resource: str) -> str:
        """Return the name of a topic or group without the namespace."""
        if not self.name:
            return resource
        prefix, plain = _parted(resource)
        return prefix + plain.removeprefix(f"{self.name}{_SEPARATOR}")

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the namespace in its topic name."""
        return MessageQueue(queue.broker_name, queue.queue_id, self.wrap(queue.topic)) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue without the namespace in its topic name."""
        return MessageQueue(queue.broker_name, queue.queue_id, self.unwrap(queue.topic)) if self.name else queue

    def wrap_subscription(self, subscription: SubscriptionData) -> SubscriptionData:
        """Return a subscription with the namespace in its topic name."""
        return replace(subscription, topic=self.wrap(subscription.topic)) if self.name else subscription

    def unwrap_message(self, message: MessageExt) -> MessageExt:
        """Return a message without the namespace in its topic name."""
        return replace(message, topic=self.unwrap(message.topic)) if self.name else message


NO_NAMESPACE: Final = Namespace()


def _is_system(resource: str) -> bool:
    return (
        resource in SYSTEM_TOPICS
        or resource.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))
        or resource.endswith(_REPLIES)
    )


def _parted(resource: str) -> tuple[str, str]:
    """Split a name into its ``%RETRY%`` or ``%DLQ%`` prefix (empty if it has none) and the rest."""
    prefix = next((prefix for prefix in (RETRY_PREFIX, DLQ_PREFIX) if resource.startswith(prefix)), "")
    return prefix, resource[len(prefix) :]
