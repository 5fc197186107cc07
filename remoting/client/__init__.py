"""The client library: producers, consumers and administration of RocketMQ 4.9 brokers, FlintMQ's or any other."""

from __future__ import annotations

from flintmq.remoting.bodies import MessageQueue
from flintmq.remoting.client.acl_signer import AclSigner
from flintmq.remoting.client.admin import AdminClient
from flintmq.remoting.client.blocking import BlockingRemotingClient
from flintmq.remoting.client.broker_api import PullResult, PullStatus
from flintmq.remoting.client.consumer import Consumer, ConsumeResult, ConsumerSettings
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
