"""Makes a class of :mod:`flintmq.client.sync` of an asynchronous one: calls run on the shared loop and are waited for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from flintmq.core.running_loop import running_loop
from flintmq.remoting.client.blocking import shared_loop
from flintmq.remoting.client.instance import ClientInstance, InstanceUser

S = TypeVar("S")
C = TypeVar("C", bound=InstanceUser)
C_co = TypeVar("C_co", bound=InstanceUser, covariant=True)
P = ParamSpec("P")
T = TypeVar("T")
_SELF: Final = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[InstanceUser], P], T]:
    """Return the method of a class here that waits for what the asynchronous method returns: same name, same parameters."""

    def call(self: Blocking[InstanceUser], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self._inner, method.__name__)(*args, **kwargs)
        return self._wait(work)

    functools.update_wrapper(call, method)
    return call


async def returned(work: Callable[[], T]) -> T:
    """Return what a function returns that waits for nothing, called on the loop's thread."""
    return work()


def direct(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Blocking[InstanceUser], P], T]:
    """Return the method of a class here that calls one of the asynchronous class which waits for nothing."""

    def call(self: Blocking[InstanceUser], /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(self._inner, method.__name__)(*args, **kwargs)
        return found

    functools.update_wrapper(call, method)
    return call


def made_of(
    made: Callable[P, C],
) -> Callable[[Callable[[S, C], None]], Callable[Concatenate[S, P], None]]:
    """Have ``__init__`` take what the asynchronous class takes, and hand it an object of that class."""

    def decorate(init: Callable[[S, C], None]) -> Callable[Concatenate[S, P], None]:
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, made(*args, **kwargs))

        functools.update_wrapper(call, init)
        taken = inspect.signature(made).parameters.values()
        call.__dict__["__signature__"] = inspect.Signature([_SELF, *taken])  # what help() shows
        return call

    return decorate


class Blocking(Generic[C_co]):
    """A client whose calls wait. Thread-safe; use it in a ``with`` statement, or call :meth:`close` in the end.

    Calls are ``Final``: what a type checker infers of the asynchronous method is then the declared type.
    """

    _inner: C_co

    def __init__(self, inner: C_co) -> None:
        self._inner = inner
        self._loop = shared_loop()

    start: Final = blocking(InstanceUser.start)

    def close(self) -> None:
        """Close the connections, unless they are shared; see the asynchronous class. Idempotent.

        In a process that was forked from the one that made it nothing happens: the connections are that one's, and a child
        that ends by ``sys.exit`` inside a ``with`` statement ends as it says.
        """
        if not self._loop.is_of_parent:
            self._wait(self._inner.close())

    @property
    def client(self) -> ClientInstance:
        """The instance behind it, which other clients of this module may share: ``Consumer(..., client=other.client)``."""
        return self._inner.client

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that the loop does.

        Raises:
            RuntimeError: this thread runs an event loop, which would stand still meanwhile.
        """
        if running_loop() is None:
            return self._loop.run(work)
        work.close()
        raise RuntimeError(
            f"{type(self).__module__}.{type(self).__name__} was called inside a running event loop, which it would block: "
            f"await flintmq.client.{type(self).__name__} there, or call this one by way of asyncio.to_thread"
        )
