"""Bodies as values: what a consumer's messages have as ``value``, and messages that are made of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast, overload

import msgspec

from flintmq.remoting.client.callbacks import is_coroutine_function, told
from flintmq.remoting.client.message import CodecError, Message, MessageExt

T = TypeVar("T")
_OF_PYDANTIC: Final = "model_validate_json"


class Codec(Protocol):
    """Makes a value of a body. It is called where a program asks for ``message.value``: in a listener's thread, for example."""

    def decode(self, body: bytes, /) -> object:
        """Return the value. Whatever it raises, ``message.value`` raises as a :class:`CodecError`."""
        ...


class JsonCodec(Generic[T]):
    """Bodies that are JSON. Thread-safe.

    ::

        orders = JsonCodec(Order)
        producer.send(orders.message("Orders", Order(7), keys="order-7"))
        consumer = Consumer("billing", "127.0.0.1:9876", codec=orders)      # its messages have an Order as value

    Args:
        model: what a body is made: a msgspec ``Struct``, a pydantic ``BaseModel``, a dataclass, an attrs class, a
            ``TypedDict``, or a type such as ``list[int]``. None: dictionaries, lists, texts and numbers.

    Raises:
        TypeError: JSON cannot be made such a type.
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
        """Return the value in a body.

        Raises:
            CodecError: the body cannot be read as JSON, or not as such a value.
        """
        try:
            return self._decode(body)
        except Exception as failure:  # pydantic's and a model's own, too
            raise CodecError(
                f"a body of {len(body)} bytes does not decode as {self._name}: {told(failure)}"
            ) from failure

    def encode(self, value: T, /) -> bytes:
        """Return the body of a value.

        Raises:
            CodecError: JSON cannot be made of it.
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
        """Return a message with the value as its body; what else a message may have, ``attrs.evolve`` adds.

        Raises:
            CodecError: JSON cannot be made of the value.
            InvalidArgumentError: see :class:`Message`.
        """
        return Message(topic, self.encode(value), tags, keys, properties or {}, delay=delay)


def having(codec: Codec, messages: MessageExt | Sequence[MessageExt]) -> None:
    """Have messages decode their bodies by a codec, each when its ``value`` is first asked for."""
    for message in (messages,) if isinstance(messages, MessageExt) else messages:
        message.__dict__["codec"] = codec


def decoding(function: Callable[[Any], Any], codec: Codec) -> Callable[[Any], Any]:
    """Return a listener or a batch listener whose messages decode their bodies by a codec; of the same kind as it was."""
    if is_coroutine_function(function):

        async def decode_and_await(messages: Any) -> Any:
            having(codec, messages)
            return await function(messages)

        return decode_and_await

    def decode_and_call(messages: Any) -> Any:
        having(codec, messages)
        return function(messages)

    return decode_and_call
