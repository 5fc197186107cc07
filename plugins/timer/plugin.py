"""The plugin ``timer``: the hooks by which messages that name their time of delivery join the broker."""

from __future__ import annotations

from flintmq.config.rocketmq.system_topics import TIMER_TOPIC
from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterService, RegisterSystemTopic, hookimpl
from flintmq.core.kernel.ports import SystemTopic
from flintmq.plugins.timer.intake_step import timer_step
from flintmq.plugins.timer.service import TimerService


class TimerPlugin:
    """Messages delivered at any time, by a wheel that survives restarts. ``delay.timer_enable: false`` switches it off."""

    plugin_name = "timer"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(SystemTopic(TIMER_TOPIC, is_listed=False, holds_messages=True, keeps_queues=True))

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("timer", TimerService)

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("timer", timer_step)
