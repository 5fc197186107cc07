"""The client library: producers, consumers and administration of RocketMQ 4.9 brokers, FlintMQ's or any other.

A name of this package is imported from its module only when a program first uses the name. A broker uses only the client's
connections, and therefore does not import the modules of consumers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.core.broker.topic_config import MessageQueue
    from flintmq.core.errors import (
        FlintError,
        InvalidArgumentError,
        RefusedError,
        RemotingConnectError,
        RemotingError,
        RemotingTimeoutError,
    )
    from flintmq.remoting.client.access import AclSigner
    from flintmq.remoting.client.admin import AdminClient
    from flintmq.remoting.client.allocation import (
        AllocateStrategy,
        allocate_averagely,
        allocate_by_circle,
        allocate_by_config,
        allocate_by_consistent_hash,
        allocate_by_machine_room,
        allocate_nearby,
    )
    from flintmq.remoting.client.broker_api import PullResult, PullStatus
    from flintmq.remoting.client.codec import Codec, JsonCodec
    from flintmq.remoting.client.consumer import Consumer
    from flintmq.remoting.client.consumer_settings import ConsumeResult, ConsumerSettings
    from flintmq.remoting.client.handlers import Consumers
    from flintmq.remoting.client.instance import ClientInstance
    from flintmq.remoting.client.message import CodecError, Message, MessageExt
    from flintmq.remoting.client.offset_store import OffsetStore
    from flintmq.remoting.client.producer import Producer
    from flintmq.remoting.client.pull_consumer import PullConsumer
    from flintmq.remoting.client.request_reply import make_reply
    from flintmq.remoting.client.send_result import PartlySentError, SendResult, SendStatus
    from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionResult, TransactionState
    from flintmq.remoting.client.transport import RemotingClient, RpcHook

__all__ = [
    "AclSigner",
    "AdminClient",
    "AllocateStrategy",
    "ClientInstance",
    "Codec",
    "CodecError",
    "ConsumeResult",
    "Consumer",
    "ConsumerSettings",
    "Consumers",
    "FlintError",
    "InvalidArgumentError",
    "JsonCodec",
    "Message",
    "MessageExt",
    "MessageQueue",
    "OffsetStore",
    "PartlySentError",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "RefusedError",
    "RemotingClient",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeoutError",
    "RpcHook",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "allocate_averagely",
    "allocate_by_circle",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_by_machine_room",
    "allocate_nearby",
    "make_reply",
]

_HOMES = {
    ".access": ("AclSigner",),
    ".admin": ("AdminClient",),
    ".allocation": (
        "AllocateStrategy",
        "allocate_averagely",
        "allocate_by_circle",
        "allocate_by_config",
        "allocate_by_consistent_hash",
        "allocate_by_machine_room",
        "allocate_nearby",
    ),
    ".broker_api": ("PullResult", "PullStatus"),
    ".codec": ("Codec", "JsonCodec"),
    ".consumer": ("Consumer",),
    ".consumer_settings": ("ConsumeResult", "ConsumerSettings"),
    ".handlers": ("Consumers",),
    ".instance": ("ClientInstance",),
    ".offset_store": ("OffsetStore",),
    ".message": ("CodecError", "Message", "MessageExt", "MessageQueue"),
    ".producer": ("Producer",),
    ".pull_consumer": ("PullConsumer",),
    ".request_reply": ("make_reply",),
    ".send_result": ("PartlySentError", "SendResult", "SendStatus"),
    ".transaction_producer": ("TransactionProducer", "TransactionResult", "TransactionState"),
    ".transport": ("RemotingClient", "RpcHook"),
    "flintmq.core.errors": (
        "FlintError",
        "InvalidArgumentError",
        "RefusedError",
        "RemotingConnectError",
        "RemotingError",
        "RemotingTimeoutError",
    ),
}
"""Public names that ``flintmq.client`` and ``flintmq`` re-export, keyed by module. A leading dot marks a module of
``flintmq.remoting.client``."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'flintmq.remoting.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
