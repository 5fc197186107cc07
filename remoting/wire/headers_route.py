"""Headers of requests to the name server, and the body of a broker's registration.

See docs/internals/protocol.md, Request codes and Registration. A compressed body of a registration is a zlib stream of::

    int32 length | DataVersion JSON | int32 number of topics | (for each topic: int32 length | topic) |
    int32 length | filter server list JSON

Each topic is a text ``name read write perm SINGLE_TAG``, where read and write are numbers of queues. The compressed form does
not contain a topic's ``order`` and system flag.
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
    """The header of request 105, which asks for the brokers and queues of a topic."""

    topic: str
    accept_standard_json_only: bool = False
    """Whether the answer's body must be standard JSON, which quotes all keys."""


LEFT_BROKERS: Final = "flintLeftBrokers"
"""Name of a header field in a name server's answer to a request for a topic's route (code 105). Only FlintMQ sends this field.
The field lists the brokers that had the topic and are not registered any more, as names separated by ``;``."""


class BrokerIdentityRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 104 and 322. Request 104 unregisters a broker, request 322 asks for the broker's data version."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class RegisterBrokerRequestHeader(BrokerIdentityRequestHeader, kw_only=True):
    """The header of request 103, which registers a broker with its topics."""

    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int = 0
    """CRC-32 of the registration's body & 0x7FFFFFFF; 0 if the name server must not check the body."""
    flint_advertised: str | None = None
    """Other addresses of the broker (:mod:`flintmq.core.broker.address`). RocketMQ's name server ignores the field."""
    flint_whole: bool = False
    """Whether the registration's body contains all topics of the broker. RocketMQ's name server ignores the field."""


class RegisterBrokerResponseHeader(CommandHeader, kw_only=True):
    """The header of the answer to request 103, which registers a broker with its topics.

    A slave gets the addresses of its master. For a master, the fields are None.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None


class QueryDataVersionResponseHeader(CommandHeader, kw_only=True):
    changed: bool


class KVKeyRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 101 and 102, which read and delete the value of a key in a namespace of the name server."""

    namespace: str
    key: str


class PutKVConfigRequestHeader(KVKeyRequestHeader, kw_only=True):
    """The header of request 100, which sets the value of a key in a namespace of the name server."""

    value: str


class GetKVConfigResponseHeader(CommandHeader, kw_only=True):
    value: str | None = None


class GetKVListByNamespaceRequestHeader(CommandHeader, kw_only=True):
    """The header of request 219, which lists the keys and values of a namespace of the name server."""

    namespace: str


class DeleteTopicFromNamesrvRequestHeader(CommandHeader, kw_only=True):
    """The header of request 216, which removes a topic from the name server's routes."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(CommandHeader, kw_only=True):
    """The header of request 224, which lists the topics of a cluster."""

    cluster: str


class BrokerNameRequestHeader(CommandHeader, kw_only=True):
    """The header of requests 205 and 327, which remove and restore the write permission of a broker's topics."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    wipe_topic_count: Int


class AddWritePermOfBrokerResponseHeader(CommandHeader, kw_only=True):
    add_topic_count: Int


_INT32: Final = struct.Struct(">i")
_COMPRESSION_LEVEL: Final = 9
CRC32_MASK: Final = 0x7FFFFFFF
"""Bits of the body's CRC-32 that a registration contains. The highest bit is not sent, because Java's int is signed."""


def body_crc32(data: bytes) -> int:
    """Return the checksum of a broker's registration, for the header of the registration.

    Args:
        data: the body as it is sent, compressed or not.
    """
    return zlib.crc32(data) & CRC32_MASK


def encode_register_broker_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Return the body of a REGISTER_BROKER request as bytes.

    The body is in JSON, or in the compressed form that the module's docstring describes.
    """
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
    """Return the decoded body of a REGISTER_BROKER request. An empty body gives no topics and the data version {0,0}.

    Args:
        data: the body as received.
        compressed: the field ``compressed`` of the header.
        version: the ordinal of the broker's version. Before V3_0_11 the body is only the table of topics.
        crc32: the field ``bodyCrc32`` of the header; 0 if it is not to be checked.

    Raises:
        RefusedError: the checksum differs (``crc32 not match``).
        JsonSyntaxError: the body is malformed, or has too many topics.
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
        raise ValueError(f"the decompressed body is incomplete or longer than {JSON_BODY_MAX_BYTES} bytes")
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
        raise ValueError(
            f"the part at byte {position} has length {length}, which does not fit a body of {len(plain)} bytes"
        )
    return plain[start:end], end
