"""Avro bodies: plain, behind a schema registry's header, or with Avro's own single-object header."""

from __future__ import annotations

import datetime
import io
import json
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, Literal

import attrs

from flintmq.plugins.spark.pipeline.arrow_decoder import BodyDecoder

Framing = Literal["plain", "confluent", "single_object"]

REGISTRY_HEADER_BYTES: Final = 5
"""A zero and the schema's number."""
SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
SINGLE_OBJECT_HEADER_BYTES: Final = 10
"""The magic and the fingerprint of the schema."""


@attrs.frozen
class AvroDecoder:
    """Makes the decoder of bodies of one schema. A value that pickles."""

    schema_json: str
    """The schema the bodies were written with."""
    framing: Framing = "plain"

    def __call__(self) -> BodyDecoder:
        import fastavro

        schema = fastavro.parse_schema(json.loads(self.schema_json))
        strip = _stripper(self.framing, self.schema_json)

        def decode(body: bytes) -> Any:
            stream = io.BytesIO(strip(body))
            try:
                value = fastavro.schemaless_reader(stream, schema, None)
            except (struct.error, AssertionError, fastavro.read.SchemaResolutionError) as error:
                raise ValueError(str(error)) from error
            if stream.read(1):
                raise ValueError("bytes behind the record")
            return plain(value)

        return decode


def _stripper(framing: Framing, schema_json: str) -> Callable[[bytes], bytes]:
    if framing == "plain":
        return bytes
    if framing == "confluent":
        return _behind_registry_header
    header = SINGLE_OBJECT_MAGIC + fingerprint(schema_json)

    def behind_header(body: bytes) -> bytes:
        if body[:SINGLE_OBJECT_HEADER_BYTES] != header:
            raise ValueError("no single-object header of this schema")
        return body[SINGLE_OBJECT_HEADER_BYTES:]

    return behind_header


def _behind_registry_header(body: bytes) -> bytes:
    if len(body) < REGISTRY_HEADER_BYTES or body[0] != 0:
        raise ValueError("no schema registry header")
    return body[REGISTRY_HEADER_BYTES:]


def fingerprint(schema_json: str) -> bytes:
    """The CRC-64-AVRO of the schema's canonical form, as it stands in a single-object header."""
    import fastavro

    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(schema_json))
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def plain(value: Any) -> Any:
    """fastavro's value as Arrow takes it: times of day and UUIDs are text in Spark."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, (uuid.UUID, datetime.time)):
        return str(value)
    return value
