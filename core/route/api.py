"""The interface of a name server that plugins can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.config.sections.models import NamesrvConfig
    from flintmq.core.route.kv_config import KVConfigManager
    from flintmq.core.route.route_manager import RouteInfoManager


class NameServerApi(Protocol):
    """A name server's settings and tables, as plugins can use them. Used only on the event loop's thread."""

    @property
    def config(self) -> NamesrvConfig:
        """The settings with which the name server was started."""
        ...

    @property
    def routes(self) -> RouteInfoManager:
        """The registered brokers and their topics."""
        ...

    @property
    def kv(self) -> KVConfigManager:
        """The key-value configuration, such as the order configuration of topics."""
        ...

    @property
    def address(self) -> str:
        """The address by which clients and brokers reach the name server, ``host:port``."""
        ...
