"""The module that the plugin's entry point names: the hook that registers the send processor and the pull processor."""

from __future__ import annotations

from flintmq.core.kernel.hookspecs import RegisterProcessor, hookimpl
from flintmq.protocol import declared_by
from flintmq_plain_processors.pull import PlainPull
from flintmq_plain_processors.send import PlainSend


@hookimpl
def flintmq_request_processors(register: RegisterProcessor) -> None:
    register("plain_send", declared_by(PlainSend), lambda context: PlainSend(context.api))
    register("plain_pull", declared_by(PlainPull), lambda context: PlainPull(context.api))
