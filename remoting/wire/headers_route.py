"""Headers of the name server and of what a broker tells it (docs/internals/protocol.md, Request codes)."""

from __future__ import annotations

from flintmq.core.io.typed_json import Int, Long
from flintmq.remoting.wire.header_codec import CommandHeader


class GetRouteInfoRequestHeader(CommandHeader, kw_only=True):
    """105: which brokers hold a topic."""

    topic: str
    accept_standard_json_only: bool = False
    """True: the body must be strict JSON."""


class BrokerIdentityRequestHeader(CommandHeader, kw_only=True):
    """104 and 322: which broker is speaking."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class RegisterBrokerRequestHeader(BrokerIdentityRequestHeader, kw_only=True):
    """103: a broker is alive and holds these topics."""

    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int = 0
    """CRC-32 of the body & 0x7FFFFFFF; 0 is not checked."""
    flint_advertised: str | None = None
    """Other addresses of the broker (:mod:`flintmq.core.broker.advertised`); RocketMQ's name server does not look at it."""


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    """Filled for a slave only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(BrokerIdentityRequestHeader, kw_only=True):
    """104: a broker leaves."""


class QueryDataVersionRequestHeader(BrokerIdentityRequestHeader, kw_only=True):
    """322: is what you know of me still current?"""


class QueryDataVersionResponseHeader(CommandHeader, kw_only=True):
    changed: bool


class PutKVConfigRequestHeader(CommandHeader, kw_only=True):
    """100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandHeader, kw_only=True):
    """101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    value: str | None = None


class DeleteKVConfigRequestHeader(CommandHeader, kw_only=True):
    """102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader, kw_only=True):
    """219."""

    namespace: str


class DeleteTopicFromNamesrvRequestHeader(CommandHeader, kw_only=True):
    """216."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(CommandHeader, kw_only=True):
    """224."""

    cluster: str


class WipeWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """205: takes a broker's topics out of writing."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(CommandHeader, kw_only=True):
    """327: puts them back."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    add_topic_count: Int
