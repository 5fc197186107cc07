"""Sends messages that ask for a delay level to the schedule topic, where they wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.broker.deliverable import check_deliverable, illegal_message
from flintmq.core.kernel.ports import Sent
from flintmq.core.record import properties as props
from flintmq.core.record.batch import MessageBatch
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.core.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, transaction_type
from flintmq.plugins.delay.delay_levels import DelayLevels

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi

_NAMES: Final = frozenset({props.DELAY})


class DelayStep:
    """Redirects messages with the property ``DELAY`` (:class:`flintmq.core.kernel.ports.IntakeStep`). Loop thread.

    Args:
        api: the settings of the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._levels = DelayLevels(api.config.delay.levels)
        self.property_names = _NAMES
        self.topic_prefixes: tuple[str, ...] = ()

    def take(self, message: MessageExtBrokerInner, sent: Sent | None) -> bool:
        """Redirect a message that asks for a level of at least 1.

        Raises:
            RefusedError: it could never be delivered.
        """
        real_topic = message.topic
        if not redirect_to_schedule(message, self._levels):
            return False
        check_deliverable(message, real_topic, self._api.config.store.commit_log_file_bytes)
        return True

    def would_take(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message asks for a delay."""
        return wanted_level(properties, self._levels) > 0

    def check_batch(self, shared: Mapping[str, str], batch: MessageBatch) -> None:
        """Refuse a batch with a delay level, as RocketMQ does. Raises ``RefusedError``."""
        if props.DELAY in shared:
            raise illegal_message("batch.delay", "a batch with a delay level", self._api.config.store.max_message_bytes)


def wanted_level(properties: Mapping[str, str], levels: DelayLevels) -> int:
    """Return the delay level that a message asks for, at most the highest; 0 for none."""
    wanted = properties.get(props.DELAY, "")
    return levels.clamp(int(wanted)) if wanted.isascii() and wanted.isdigit() and len(wanted) < 10 else 0


def redirect_to_schedule(message: MessageExtBrokerInner, levels: DelayLevels) -> bool:
    """Send a message that asks for a delay to the schedule topic instead; return whether it did.

    Its properties gain REAL_TOPIC and REAL_QID, DELAY is cut to the highest level. Messages of a transaction that is not
    committed are left alone.
    """
    if transaction_type(message.sys_flag) not in (TRANSACTION_NOT, TRANSACTION_COMMIT):
        return False
    level = wanted_level(message.properties, levels)
    if not level:
        return False
    message.properties = {
        **message.properties,
        props.DELAY: str(level),
        props.REAL_TOPIC: message.topic,
        props.REAL_QUEUE_ID: str(message.queue_id),
    }
    message.properties_bytes = props.properties_to_string(message.properties).encode("utf-8", "replace")
    message.topic = SCHEDULE_TOPIC
    message.queue_id = level - 1
    return True
