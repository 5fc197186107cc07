"""Functions and a base class that several request processors use to check requests and to make answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar

from flintmq.config.errors import ConfigError
from flintmq.config.loading.schema import Key
from flintmq.config.rocketmq.java_properties import parse_properties
from flintmq.config.runtime import meant
from flintmq.config.sections.models import BrokerConfig, NamesrvConfig
from flintmq.core.broker.api import BrokerApi
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response
from flintmq.core.limits import CLIENT_ID_MAX_BYTES, REQUEST_SETTINGS_MAX_BYTES
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.wire.header_codec import CommandHeader, encode_header
from flintmq.remoting.wire.json_body import dumps
from flintmq.remoting.wire.refusal import system_error

C = TypeVar("C", BrokerConfig, NamesrvConfig)
T = TypeVar("T")

SLICE_S: Final = 0.004
"""Seconds that one request may use the event loop without a pause."""


class StateProcessor(DeclaredProcessor):
    """The base class of request processors whose only argument is the broker's interface.

    Used only on the event loop's thread.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api


def with_header(header: CommandHeader, body: bytes = b"") -> Response:
    """Return the answer to a successful request, with a typed header and a body."""
    return Response(ext_fields=encode_header(header), body=body)


def with_json(value: Any, *, standard: bool = False) -> Response:
    """Return the answer to a successful request, whose body is a value as JSON.

    Args:
        value: a struct or a mapping.
        standard: whether to write standard JSON; False writes fastjson's dialect.
    """
    return Response(body=dumps(value, "standard" if standard else "fastjson"))


def record_bytes(api: BrokerApi, commit_log_offset_bytes: int) -> bytes:
    """Return the bytes of the record at a physical offset of the log.

    Raises:
        RefusedError: SYSTEM_ERROR; no message begins at the offset.
    """
    record = api.log.reader.message_at(commit_log_offset_bytes)
    piece = api.log.slice(commit_log_offset_bytes, record.size_bytes) if record is not None else None
    if piece is None:
        text = f"can not find message by the offset, {commit_log_offset_bytes}"
        raise system_error(text, reason="message.gone")
    return bytes(piece)


def check_not_slave(api: BrokerApi) -> None:
    """Check that the broker is not a slave, whose topics and groups are copies of its master's.

    Raises:
        RefusedError: SYSTEM_ERROR; the broker is a slave.
    """
    if not api.role.takes_writes:
        raise system_error(
            "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            reason="store.slave",
            key="broker.role (brokerRole)",
        )


def wants_standard_json(request: Request) -> bool:
    """Return whether a request's field ``acceptStandardJsonOnly`` asks for JSON with numeric keys in quotes.

    RocketMQ has this field for routes. FlintMQ accepts the field for every answer that has a standard form.
    """
    return (request.ext_fields or {}).get("acceptStandardJsonOnly", "").lower() == "true"


def topic_missing(topic: str) -> RefusedError:
    """Return the refusal TOPIC_NOT_EXIST for a request that names a missing topic."""
    return RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist", reason="topic.missing")


def group_missing(group: str) -> RefusedError:
    """Return the refusal SUBSCRIPTION_GROUP_NOT_EXIST for a request that names a missing consumer group."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"subscription group not exist, {group}",
        reason="group.missing",
        key="groups.auto_create (autoCreateSubscriptionGroup)",
    )


def check_client_id(client_id: str) -> None:
    """Check the length of a client id, because a broker keeps the ids of its clients in memory.

    Raises:
        RefusedError: SYSTEM_ERROR; the id is longer than ``CLIENT_ID_MAX_BYTES``.
    """
    if len(client_id.encode("utf-8", "surrogatepass")) > CLIENT_ID_MAX_BYTES:
        raise system_error(
            f"the client id {client_id[:40]}... is longer than {CLIENT_ID_MAX_BYTES} bytes",
            reason="client.illegal",
            measured=f"{len(client_id)} characters",
        )


def format_properties(values: Mapping[str, str]) -> bytes:
    """Return settings as ASCII text that ``java.util.Properties`` can read. Each line has the form ``key=value``."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in values.items()).encode("ascii")


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if plain.startswith(" "):
        plain = "\\" + plain
    if plain.isascii():
        return plain
    units = plain.encode("utf-16-be", "replace")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def read_properties(body: bytes) -> dict[str, str]:
    """Return the values in a body of properties text, keyed by name.

    Raises:
        RefusedError: SYSTEM_ERROR; the body is not UTF-8, is malformed, or exceeds ``REQUEST_SETTINGS_MAX_BYTES``.
    """
    if len(body) > REQUEST_SETTINGS_MAX_BYTES:
        raise system_error(
            f"the settings have more than {REQUEST_SETTINGS_MAX_BYTES} bytes",
            reason="config.too_long",
            measured=f"{len(body)} bytes",
        )
    try:
        return {entry.key: entry.value for entry in parse_properties(body.decode("utf-8"))}
    except (UnicodeDecodeError, ConfigError) as error:
        raise system_error(f"string2Properties error: {error}", reason="config.malformed") from error


def changed(
    config: C,
    changes: Mapping[str, str],
    allowed: Mapping[str, Key],
    evolve: Callable[[C, Mapping[str, str]], C],
) -> C:
    """Return a configuration with the changes that a request demands. If one change is refused, no change is made.

    Args:
        config: the current configuration.
        changes: new values as text, keyed by RocketMQ's name or by dotted key.
        allowed: the settings that may be changed, keyed by RocketMQ's name.
        evolve: returns a configuration with changed values.

    Raises:
        RefusedError: NO_PERMISSION if a setting may not be changed, SYSTEM_ERROR if a value is invalid.
    """
    known = {*allowed, *(entry.name for entry in allowed.values())}
    for name in changes:
        if name not in known:
            text = f"Can not update config {name[:80]} while running{meant(name, known)}"
            raise RefusedError(ResponseCode.NO_PERMISSION, text, reason="config.not_changeable")
    try:
        return evolve(config, changes)
    except ConfigError as error:
        raise system_error(str(error), reason="config.value") from error


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over items, and let the event loop serve other clients after each :data:`SLICE_S` seconds."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + SLICE_S
    for item in items:
        yield item
        if now_s() >= until_s:
            await asyncio.sleep(0)
            until_s = now_s() + SLICE_S


async def joined(pieces: Iterable[bytes]) -> bytes:
    """Return the joined pieces of a large body. The event loop serves other clients while the pieces are made."""
    return b"".join([piece async for piece in sliced(pieces)])


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its result. The event loop serves other clients between the generator's steps."""

    def until_end() -> Generator[None, None, None]:
        ended.append((yield from steps))

    ended: list[T] = []
    async for _ in sliced(until_end()):
        pass
    return ended[0]
