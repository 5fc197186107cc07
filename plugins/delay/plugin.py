"""The plugin ``delay``: the hooks by which delay levels join the broker."""

from __future__ import annotations

from flintmq.config.rocketmq.system_topics import SCHEDULE_TOPIC
from flintmq.core.kernel.hookspecs import (
    RegisterIntakeStep,
    RegisterProcessor,
    RegisterService,
    RegisterSystemTopic,
    hookimpl,
)
from flintmq.core.kernel.ports import SystemTopic
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.plugins.delay.intake_step import DelayStep
from flintmq.plugins.delay.processor import DelayOffsetProcessor
from flintmq.plugins.delay.service import DelayService
from flintmq.plugins.delay.tags_codes import delay_tags_codes

QUEUE_NUMS = 18
"""Queues of the schedule topic: RocketMQ's, one for each of its levels."""


class DelayPlugin:
    """Messages that wait for one of a broker's delay levels, and are delivered then."""

    plugin_name = "delay"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(
            SystemTopic(
                SCHEDULE_TOPIC,
                queue_nums=QUEUE_NUMS,
                holds_messages=True,
                keeps_queues=True,
                counts_queues=True,
                tags_codes=delay_tags_codes,
            )
        )

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("delay", DelayService)

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("delay", DelayStep)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("delay_offset", declared_by(DelayOffsetProcessor), lambda broker: DelayOffsetProcessor(broker.state))
