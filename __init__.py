"""FlintMQ: a RocketMQ 4.9 compatible message broker and name server, as a library.

::

    import flintmq

    with flintmq.NameServer() as nameserver, flintmq.Broker("broker.yaml") as broker:
        broker.put([flintmq.Message("Orders", b"hello", tags="new")])

What the names stand for is imported when a name is first used: a client needs no store, ``flintmq --help`` no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.config import BrokerConfig, load_config
    from flintmq.core.errors import FlintError
    from flintmq.core.kernel.hookspecs import hookimpl
    from flintmq.plugins.broker.broker import Broker
    from flintmq.plugins.name_server.name_server import NameServer
    from flintmq.remoting.client.message import Message, MessageExt
    from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionState

__version__ = "0.1.0"

__all__ = [
    "Broker",
    "BrokerConfig",
    "FlintError",
    "Message",
    "MessageExt",
    "NameServer",
    "TransactionProducer",
    "TransactionState",
    "hookimpl",
    "load_config",
]

_HOMES = {
    "Broker": "flintmq.plugins.broker.broker",
    "BrokerConfig": "flintmq.config",
    "FlintError": "flintmq.core.errors",
    "Message": "flintmq.remoting.client.message",
    "MessageExt": "flintmq.remoting.client.message",
    "NameServer": "flintmq.plugins.name_server.name_server",
    "TransactionProducer": "flintmq.remoting.client.transaction_producer",
    "TransactionState": "flintmq.remoting.client.transaction_producer",
    "hookimpl": "flintmq.core.kernel.hookspecs",
    "load_config": "flintmq.config",
}
_SUBPACKAGES = frozenset({"config", "core", "dispatchers", "flush", "plugins", "remoting"})


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"flintmq.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flintmq' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
