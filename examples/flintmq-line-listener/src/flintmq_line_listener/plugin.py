"""The module that the entry point names: hooks that register the listener as a service, and its configuration section."""

from __future__ import annotations

import attrs

from flintmq.core.kernel.hookspecs import ApiContext, RegisterConfigSection, RegisterService, hookimpl
from flintmq_line_listener.listener import LineListener


@attrs.frozen(kw_only=True)
class LineSection:
    """The section ``line_listener`` of the configuration."""

    host: str = "127.0.0.1"
    """Address to listen on. Every program that can connect to this address may read and write every topic."""
    port: int | None = None
    """Port to listen on; 0 chooses a free port. If the port is not set, the plugin does not listen."""


def make_listener(context: ApiContext[LineSection]) -> LineListener | None:
    settings = context.settings
    return LineListener(context.api, settings.host, settings.port) if settings.port is not None else None


@hookimpl
def flintmq_config_sections(register: RegisterConfigSection) -> None:
    register("line_listener", LineSection)


@hookimpl
def flintmq_services(register: RegisterService) -> None:
    register("line_listener", make_listener)
