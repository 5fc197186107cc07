"""Protobuf bodies, by a descriptor set: no generated code is needed."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from flintmq.plugins.spark.pipeline.arrow_decoder import BodyDecoder
from flintmq.plugins.spark.pipeline.protobuf_types import DURATION, TIMESTAMP, is_map, message_descriptor

_VARINT_MAX_BYTES: Final = 10

Convert = Callable[[Any], Any]


@attrs.frozen
class ProtobufDecoder:
    """Makes the decoder of bodies of one message type. A value that pickles."""

    descriptor_set: bytes
    message: str
    framing: Literal["plain", "confluent"] = "plain"

    def __call__(self) -> BodyDecoder:
        from google.protobuf import message as protobuf_message
        from google.protobuf.message_factory import GetMessageClass

        descriptor = message_descriptor(self.descriptor_set, self.message)
        make, convert = GetMessageClass(descriptor), _message(descriptor)
        strip = behind_registry_header if self.framing == "confluent" else bytes

        def decode(body: bytes) -> Any:
            message = make()
            try:
                message.ParseFromString(strip(body))
            except protobuf_message.DecodeError as error:
                raise ValueError(str(error)) from error
            return convert(message)

        return decode


def behind_registry_header(body: bytes) -> bytes:
    """What follows a schema registry's header: a zero, the schema's number, the path of the message type in its file."""
    if len(body) < 6 or body[0] != 0:
        raise ValueError("no schema registry header")
    count, position = _varint(body, 5)
    for _ in range(count):
        _, position = _varint(body, position)
    return body[position:]


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """A zigzag number, never negative here, and where it ends."""
    value = 0
    for place, byte in enumerate(body[position : position + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value >> 1, position + place + 1
    raise ValueError("a number of the schema registry header does not end")


def _message(descriptor: Any) -> Convert:
    if descriptor.full_name == TIMESTAMP:
        return lambda stamp: stamp.ToDatetime(tzinfo=datetime.UTC)
    if descriptor.full_name == DURATION:
        return lambda duration: duration.ToTimedelta()
    fields = [(field.name, _field(field), field.has_presence) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: turn(getattr(message, name)) if not tracked or message.HasField(name) else None
            for name, turn, tracked in fields
        }

    return convert


def _field(field: Any) -> Convert:
    if is_map(field):
        entry = field.message_type.fields_by_name
        key, value = _single(entry["key"]), _single(entry["value"])
        return lambda found: [(key(name), value(found[name])) for name in found]
    single = _single(field)
    return (lambda found: [single(one) for one in found]) if field.is_repeated else single


def _single(field: Any) -> Convert:
    if field.message_type is not None:
        return _message(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal
    return lambda value: value
