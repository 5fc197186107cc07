"""Headers of the name server, and what a broker registers there (docs/internals/protocol.md, Request codes and Registration).

Compressed, the body of a registration is a zlib stream of::

    int32 length | DataVersion JSON | int32 topics | (int32 length | "name read write perm SINGLE_TAG") * topics |
    int32 length | filter server list JSON

which loses a topic's ``order`` and system flag.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import msgspec

from flintmq.core.broker.topic_config import TopicConfig, TopicConfigSerializeWrapper
from flintmq.core.errors import JsonSyntaxError, JsonTypeError, RefusedError
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.io.typed_json import read_as
from flintmq.core.limits import JSON_BODY_MAX_BYTES, REGISTERED_TOPICS_MAX, REQUEST_JSON_DIALECT_MAX_BYTES
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.bodies import RegisterBrokerBody
from flintmq.remoting.wire.codes import V3_0_11
from flintmq.remoting.wire.header_codec import CommandHeader, Int, Long
from flintmq.remoting.wire.json_body import decode_body, dumps


class GetRouteInfoRequestHeader(CommandHeader, kw_only=True):
    """105: which brokers hold a topic."""

    topic: str
    accept_standard_json_only: bool = False
    """True: the body must be strict JSON."""


LEFT_BROKERS: Final = "flintLeftBrokers"
"""A field of the answer to 105, FlintMQ's own: brokers that had the topic and are registered no more, separated by ``;``."""


class BrokerIdentityRequestHeader(CommandHeader, kw_only=True):
    """104 and 322: which broker leaves, or asks whether what is known of it is still current."""

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
    """Other addresses of the broker (:mod:`flintmq.core.broker.address`); RocketMQ's name server does not look at it."""
    flint_whole: bool = False
    """The topics are all that the broker has; RocketMQ's name server does not look at it."""


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    """Filled for a slave only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class QueryDataVersionResponseHeader(CommandHeader, kw_only=True):
    changed: bool


class KVKeyRequestHeader(CommandHeader, kw_only=True):
    """101 and 102: about one value."""

    namespace: str
    key: str


class PutKVConfigRequestHeader(KVKeyRequestHeader, kw_only=True):
    """100."""

    value: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    value: str | None = None


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


class BrokerNameRequestHeader(CommandHeader, kw_only=True):
    """205 and 327: takes a broker's topics out of writing, and puts them back."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    wipe_topic_count: Int


class AddWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    add_topic_count: Int


_INT32: Final = struct.Struct(">i")
_COMPRESSION_LEVEL: Final = 9
CRC32_MASK: Final = 0x7FFFFFFF
"""What of a CRC-32 a registration carries: Java's int has a sign."""


def body_crc32(data: bytes) -> int:
    """Return the checksum a registration carries for its body as sent."""
    return zlib.crc32(data) & CRC32_MASK


def encode_register_broker_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Return the body of a REGISTER_BROKER request."""
    if not compressed:
        return body.encode()
    wrapper = body.topic_config_serialize_wrapper
    parts = [_sized(dumps(wrapper.data_version)), _INT32.pack(len(wrapper.topic_config_table))]
    parts += (
        _sized(
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
            f"{topic.topic_filter_type}".encode()
        )
        for topic in wrapper.topic_config_table.values()
    )
    parts.append(_sized(msgspec.json.encode(body.filter_server_list)))
    return zlib.compress(b"".join(parts), _COMPRESSION_LEVEL)


def _sized(part: bytes) -> bytes:
    return _INT32.pack(len(part)) + part


def decode_register_broker_body(data: bytes, *, compressed: bool, version: int, crc32: int = 0) -> RegisterBrokerBody:
    """Return the body of a REGISTER_BROKER request; an absent one is DataVersion {0,0} with no topics.

    Args:
        data: as received.
        compressed: the header's flag.
        version: the broker's version ordinal: before V3_0_11 the body is the bare topic table.
        crc32: the header's ``bodyCrc32``; 0 is not checked.

    Raises:
        RefusedError: the checksum differs (``crc32 not match``).
        JsonSyntaxError: it cannot be read.
    """
    if crc32 and body_crc32(data) != crc32:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, "crc32 not match", reason="register.crc", measured=str(body_crc32(data))
        )
    if not data:
        return RegisterBrokerBody()
    if version < V3_0_11:
        _check_topics(data.count(b'"topicName"'))
        wrapper = decode_body(data, TopicConfigSerializeWrapper, dialect_max_bytes=REQUEST_JSON_DIALECT_MAX_BYTES)
        return RegisterBrokerBody([], wrapper)
    if not compressed:
        _check_topics(data.count(b'"topicName"'))
        return decode_body(data, RegisterBrokerBody, dialect_max_bytes=REQUEST_JSON_DIALECT_MAX_BYTES)
    try:
        return _decode_parts(_inflate(data))
    except JsonTypeError:
        raise
    except (struct.error, ValueError, zlib.error) as failure:
        raise JsonSyntaxError(f"the compressed registration is malformed: {failure}") from failure


def _check_topics(count: int) -> None:
    if count > REGISTERED_TOPICS_MAX:
        raise JsonSyntaxError(f"{count} topics are registered; at most {REGISTERED_TOPICS_MAX}")


def _inflate(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(data, JSON_BODY_MAX_BYTES)
    if not stream.eof:
        raise ValueError(f"it is cut off or longer than {JSON_BODY_MAX_BYTES} bytes")
    return plain


def _decode_parts(plain: bytes) -> RegisterBrokerBody:
    version, position = _part(plain, 0)
    (topics,) = _INT32.unpack_from(plain, position)
    position += _INT32.size
    _check_topics(topics)
    table: dict[str, TopicConfig] = {}
    for _ in range(topics):
        line, position = _part(plain, position)
        name, read, write, perm, filter_type = line.decode().split(" ")
        table[name] = read_as(
            {
                "perm": perm,
                "readQueueNums": read,
                "topicFilterType": filter_type,
                "topicName": name,
                "writeQueueNums": write,
            },
            TopicConfig,
        )
    filters, position = _part(plain, position)
    return RegisterBrokerBody(
        decode_body(filters or b"[]", list[str]), TopicConfigSerializeWrapper(decode_body(version, DataVersion), table)
    )


def _part(plain: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _INT32.unpack_from(plain, position)
    start = position + _INT32.size
    end = start + length
    if length < 0 or end > len(plain):
        raise ValueError(f"a part of {length} bytes at {position} of {len(plain)}")
    return plain[start:end], end
