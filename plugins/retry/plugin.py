"""The plugin ``retry``: the hooks by which retries and dead letters join the broker."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterIntakeStep, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.plugins.retry.intake_step import RetryStep
from flintmq.plugins.retry.processor import SendBackProcessor


class RetryPlugin:
    """Messages that a consumer refuses come again later, and are dead letters after too many attempts."""

    plugin_name = "retry"

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("retry", RetryStep)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("send_back", declared_by(SendBackProcessor), lambda broker: SendBackProcessor(broker.state))
