"""Codecs: they decode message bodies into values (``message.value``) and encode values as bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

import msgspec

from flintmq.remoting.client.callbacks import is_coroutine_function, told
from flintmq.remoting.client.message import CodecError, Message, MessageExt

T = TypeVar("T")
_OF_PYDANTIC: Final = "model_validate_json"


class Codec(Protocol):
    """Decodes message bodies into values. The method :meth:`decode` is called on the thread that reads ``message.value``, such
    as a listener's."""

    def decode(self, body: bytes, /) -> object:
        """Decode a message body and return its value. If this method raises, ``message.value`` raises :class:`CodecError`."""
        ...


class JsonCodec(Generic[T]):
    """A codec for bodies in JSON. Thread-safe.

    ::

        orders = JsonCodec(Order)
        producer.send(orders.message("Orders", Order(7), keys="order-7"))
        consumer = Consumer("billing", "127.0.0.1:9876", codec=orders)      # message.value is then an Order

    Args:
        model: the type to decode bodies into: a msgspec ``Struct``, a pydantic ``BaseModel``, a dataclass, an attrs class, a
            ``TypedDict``, or a type such as ``list[int]``. None: dictionaries, lists, strings and numbers.

    Raises:
        TypeError: JSON cannot be decoded into this type.
    """

    @overload
    def __init__(self: JsonCodec[object], model: None = None) -> None: ...

    @overload
    def __init__(self, model: type[T]) -> None: ...

    def __init__(self, model: type[T] | None = None) -> None:
        of_pydantic = getattr(model, _OF_PYDANTIC, None)
        decode: Any = of_pydantic or msgspec.json.Decoder(Any if model is None else model).decode
        self._decode: Callable[[bytes], T] = decode
        self._name = "JSON" if model is None else getattr(model, "__name__", str(model))

    def decode(self, body: bytes, /) -> T:
        """Decode a body of JSON and return its value.

        Raises:
            CodecError: the body is not JSON, or does not fit the model.
        """
        try:
            return self._decode(body)
        except Exception as failure:
            # pydantic and the validators of a model can raise exceptions of any type, so every exception becomes a CodecError.
            raise CodecError(
                f"a body of {len(body)} bytes does not decode as {self._name}: {told(failure)}"
            ) from failure

    def encode(self, value: T, /) -> bytes:
        """Encode a value as JSON, and return the JSON as a message body.

        Raises:
            CodecError: the value cannot be encoded as JSON.
        """
        try:
            if hasattr(value, _OF_PYDANTIC):
                return cast(str, value.model_dump_json()).encode()  # type: ignore[attr-defined]
            return msgspec.json.encode(value)
        except Exception as failure:
            raise CodecError(f"{type(value).__name__} is not encoded as {self._name}: {told(failure)}") from failure

    def message(
        self,
        topic: str,
        value: T,
        *,
        tags: str = "",
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: str | None = None,
    ) -> Message:
        """Return a message with the encoded value as its body. Use ``attrs.evolve`` to set its other fields.

        Raises:
            CodecError: the value cannot be encoded as JSON.
            InvalidArgumentError: see :class:`Message`.
        """
        return Message(topic, self.encode(value), tags, keys, properties or {}, delay=delay)


def having(codec: Codec, messages: MessageExt | Sequence[MessageExt]) -> None:
    """Set the codec of messages; each message decodes its body when its ``value`` is first read."""
    for message in (messages,) if isinstance(messages, MessageExt) else messages:
        message.__dict__["codec"] = codec


def decoding(function: Callable[[Any], Any], codec: Codec) -> Callable[[Any], Any]:
    """Return a listener that sets the codec of its messages and calls ``function``, a listener or a batch listener.

    The listener is a coroutine function if ``function`` is one.
    """
    if is_coroutine_function(function):

        async def decode_and_await(messages: Any) -> Any:
            having(codec, messages)
            return await function(messages)

        return decode_and_await

    def decode_and_call(messages: Any) -> Any:
        having(codec, messages)
        return function(messages)

    return decode_and_call
