"""A record in OFFSET_MOVED_EVENT for each consumer that asked for what is not there.

See docs/internals/algorithms.md, Retention.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from flintmq.config.rocketmq.system_topics import OFFSET_MOVED_EVENT
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.core.client_log import client_log
from flintmq.core.errors import RefusedError
from flintmq.core.record import properties as props
from flintmq.core.record.properties import properties_to_string
from flintmq.core.record.record import MessageExtBrokerInner
from flintmq.remoting.wire import bodies

log = client_log("flintmq.broker")

_REPEAT_S: Final = 10.0
_REMEMBERED_MAX: Final = 1024


class OffsetMovedEvents:
    """Stores them. Loop thread.

    A client that asks again and again for the same wrong offset gets one record in ten seconds: with RocketMQ each of its
    pulls makes the log grow (``compat: strict`` does so too).
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._last: OrderedDict[tuple[str, str, int], tuple[int, int, float]] = OrderedDict()

    def moved(self, group: str, topic: str, queue_id: int, requested: int, corrected: int, remote_address: str) -> None:
        """Note that a pull at queue offset ``requested`` was answered with the offset ``corrected``."""
        state = self._state
        if state.config.store.compat == "safe" and self._is_repeat((group, topic, queue_id), requested, corrected):
            return
        log.warning(
            "%s (%s) asked for queue offset %d of %s queue %d and is sent to %d",
            group,
            remote_address,
            requested,
            topic,
            queue_id,
            corrected,
        )
        event = bodies.OffsetMovedEvent(
            consumer_group=group,
            message_queue=MessageQueue(state.config.broker.name, queue_id, topic),
            offset_new=corrected,
            offset_request=requested,
        )
        try:
            state.sink.put([self._message(group, event.encode())]).requests()
        except RefusedError as error:  # the answer to the pull matters more than its trace
            log.warning("no record of it: %s", error.remark)

    def _message(self, group: str, body: bytes) -> MessageExtBrokerInner:
        named = {props.KEYS: group, props.TAGS: group, props.DELAY: "0"}
        return MessageExtBrokerInner(
            OFFSET_MOVED_EVENT,
            0,
            body,
            named,
            properties_to_string(named).encode("utf-8", "surrogatepass"),
            self._state.clock.now_ms(),
            self._state.store_host,
            self._state.store_host,
        )

    def _is_repeat(self, key: tuple[str, str, int], requested: int, corrected: int) -> bool:
        now_s = self._state.clock.monotonic_s()
        before = self._last.get(key)
        if before is not None and before[:2] == (requested, corrected) and now_s - before[2] < _REPEAT_S:
            return True
        self._last[key] = (requested, corrected, now_s)
        self._last.move_to_end(key)
        if len(self._last) > _REMEMBERED_MAX:
            self._last.popitem(last=False)
        return False
