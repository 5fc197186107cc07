"""The client library: producers, consumers and administration of RocketMQ 4.9 brokers, FlintMQ's or any other.

What the names stand for is imported when a name is first used: a broker needs a connection of a client's, and no consumer.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.core.broker.message_queue import MessageQueue
    from flintmq.remoting.client.acl_signer import AclSigner
    from flintmq.remoting.client.admin import AdminClient
    from flintmq.remoting.client.blocking import BlockingRemotingClient
    from flintmq.remoting.client.broker_api import PullResult, PullStatus
    from flintmq.remoting.client.consumer import Consumer
    from flintmq.remoting.client.consumer_settings import ConsumeResult, ConsumerSettings
    from flintmq.remoting.client.instance import ClientInstance
    from flintmq.remoting.client.message import Message, MessageExt
    from flintmq.remoting.client.producer import Producer, SendResult, SendStatus
    from flintmq.remoting.client.pull_consumer import PullConsumer
    from flintmq.remoting.client.request_reply import make_reply
    from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionResult, TransactionState
    from flintmq.remoting.client.transport import RemotingClient, RpcHook

__all__ = [
    "AclSigner",
    "AdminClient",
    "BlockingRemotingClient",
    "ClientInstance",
    "ConsumeResult",
    "Consumer",
    "ConsumerSettings",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "RemotingClient",
    "RpcHook",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "make_reply",
]

_HOMES = {
    "AclSigner": "flintmq.remoting.client.acl_signer",
    "AdminClient": "flintmq.remoting.client.admin",
    "BlockingRemotingClient": "flintmq.remoting.client.blocking",
    "ClientInstance": "flintmq.remoting.client.instance",
    "ConsumeResult": "flintmq.remoting.client.consumer_settings",
    "Consumer": "flintmq.remoting.client.consumer",
    "ConsumerSettings": "flintmq.remoting.client.consumer_settings",
    "Message": "flintmq.remoting.client.message",
    "MessageExt": "flintmq.remoting.client.message",
    "MessageQueue": "flintmq.remoting.wire.bodies",
    "Producer": "flintmq.remoting.client.producer",
    "PullConsumer": "flintmq.remoting.client.pull_consumer",
    "PullResult": "flintmq.remoting.client.broker_api",
    "PullStatus": "flintmq.remoting.client.broker_api",
    "RemotingClient": "flintmq.remoting.client.transport",
    "RpcHook": "flintmq.remoting.client.transport",
    "SendResult": "flintmq.remoting.client.producer",
    "SendStatus": "flintmq.remoting.client.producer",
    "TransactionProducer": "flintmq.remoting.client.transaction_producer",
    "TransactionResult": "flintmq.remoting.client.transaction_producer",
    "TransactionState": "flintmq.remoting.client.transaction_producer",
    "make_reply": "flintmq.remoting.client.request_reply",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'flintmq.remoting.client' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
