"""What a plugin may touch of a name server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.config.sections.models import NamesrvConfig
    from flintmq.core.route.kv_config import KVConfigManager
    from flintmq.core.route.route_manager import RouteInfoManager


class NameServerApi(Protocol):
    """The surface of a name server for plugins: its settings and its tables. Everything belongs to the loop's thread."""

    @property
    def config(self) -> NamesrvConfig:
        """The settings that the name server was started with."""
        ...

    @property
    def routes(self) -> RouteInfoManager:
        """Which broker has which topics, as they registered."""
        ...

    @property
    def kv(self) -> KVConfigManager:
        """The key-value tables, such as that of ordered topics."""
        ...

    @property
    def address(self) -> str:
        """The address that clients and brokers know, ``host:port``."""
        ...
