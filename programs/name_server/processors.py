"""The name server's own request processors, registered through the same hook as third-party processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flintmq.core.kernel.hookspecs import ApiContext, RegisterProcessor, hookimpl
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.remoting.processors.namesrv import NamesrvConfigProcessor, NamesrvRouteProcessor

if TYPE_CHECKING:
    from flintmq.programs.name_server.name_server import NameServer


class NamesrvProcessorsPlugin:
    """Registers the processors of requests about routes, about the key-value configuration, and about the name server's
    settings."""

    plugin_name = "namesrv_processors"

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register("routes", declared_by(NamesrvRouteProcessor), _routes, at="nameserver")
        register("kv_config", declared_by(NamesrvConfigProcessor), _kv_config, at="nameserver")


def _routes(context: ApiContext[object]) -> NamesrvRouteProcessor:
    server = cast("NameServer", context.api)
    return NamesrvRouteProcessor(
        server.routes, server.kv, lambda: server.settings.config.order_message_enable, server.listener_names
    )


def _kv_config(context: ApiContext[object]) -> NamesrvConfigProcessor:
    server = cast("NameServer", context.api)
    return NamesrvConfigProcessor(server.kv, server.settings)
