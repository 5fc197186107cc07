"""FlintMQ: a RocketMQ 4.9 compatible message broker and name server, as a library.

::

    import flintmq

    with flintmq.NameServer() as nameserver, flintmq.Broker("broker.yaml") as broker:
        broker.put([flintmq.Message("Orders", b"hello", tags="new")])

The module of each name is imported when the name is first used, so a program that uses only the client library does not import
the store. The names of the client library (:mod:`flintmq.client`) are here as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig as BrokerConfig
    from flintmq.config import ConfigError as ConfigError
    from flintmq.config import LoadedConfig as LoadedConfig
    from flintmq.config import load_config as load_config
    from flintmq.config import option as option
    from flintmq.core.io.clock import Clock as Clock
    from flintmq.core.kernel.hookspecs import hookimpl as hookimpl
    from flintmq.flush.group_commit import GroupCommit as GroupCommit
    from flintmq.flush.transient_store_pool import AnonymousBufferPool as AnonymousBufferPool
    from flintmq.programs.broker.broker import Broker as Broker
    from flintmq.programs.name_server.name_server import NameServer as NameServer
    from flintmq.remoting.client import *  # noqa: F403

__version__ = "0.1.0"

_HOMES = {
    "AnonymousBufferPool": "flintmq.flush.transient_store_pool",
    "Broker": "flintmq.programs.broker.broker",
    "BrokerConfig": "flintmq.config",
    "Clock": "flintmq.core.io.clock",
    "ConfigError": "flintmq.config",
    "GroupCommit": "flintmq.flush.group_commit",
    "LoadedConfig": "flintmq.config",
    "NameServer": "flintmq.programs.name_server.name_server",
    "hookimpl": "flintmq.core.kernel.hookspecs",
    "load_config": "flintmq.config",
    "option": "flintmq.config",
}
"""For each public name of this package that is not a name of the client library: the module that defines the name."""
_CLIENT = "flintmq.remoting.client"
_SUBPACKAGES = frozenset(
    {"client", "config", "core", "dispatchers", "flush", "plugins", "programs", "protocol", "remoting", "testing"}
)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"flintmq.{name}")
    client = importlib.import_module(_CLIENT)
    if name == "__all__":
        return sorted({*_HOMES, *client.__all__})
    home = _HOMES.get(name)
    if home is None and name not in client.__all__:
        raise AttributeError(f"module 'flintmq' has no attribute {name!r}")
    value = getattr(client if home is None else importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__"), *_SUBPACKAGES})
