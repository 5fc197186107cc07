"""The base class and decorators that make a blocking class of :mod:`flintmq.client.sync` from an asynchronous class.

A blocking call runs the asynchronous method on the shared event loop and waits for its result.
"""

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
    """Return a blocking method with the name and parameters of an asynchronous method. The blocking method waits for the
    result."""

    def call(self: Blocking[InstanceUser], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = getattr(self._inner, method.__name__)(*args, **kwargs)
        return self._wait(work)

    functools.update_wrapper(call, method)
    return call


async def returned(work: Callable[[], T]) -> T:
    """Call a plain function that does not block, on the event loop's thread, and return the function's result."""
    return work()


def direct(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Blocking[InstanceUser], P], T]:
    """Return a method that calls a plain, non-blocking method of the asynchronous class in the caller's thread."""

    def call(self: Blocking[InstanceUser], /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(self._inner, method.__name__)(*args, **kwargs)
        return found

    functools.update_wrapper(call, method)
    return call


def made_of(
    made: Callable[P, C],
) -> Callable[[Callable[[S, C], None]], Callable[Concatenate[S, P], None]]:
    """Return a decorator that gives ``__init__`` the parameters of an asynchronous class.

    The decorated ``__init__`` creates an object of the asynchronous class from its arguments, and passes the object to the
    original ``__init__``.
    """

    def decorate(init: Callable[[S, C], None]) -> Callable[Concatenate[S, P], None]:
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, made(*args, **kwargs))

        functools.update_wrapper(call, init)
        taken = inspect.signature(made).parameters.values()
        call.__dict__["__signature__"] = inspect.Signature([_SELF, *taken])  # what help() shows
        return call

    return decorate


class Blocking(Generic[C_co]):
    """The base class of clients whose calls block. Thread-safe; use it in a ``with`` statement, or call :meth:`close`.

    Subclasses assign their blocking methods as ``Final`` attributes, so that a type checker infers each method's parameters and
    result from the asynchronous method.
    """

    _inner: C_co

    def __init__(self, inner: C_co) -> None:
        self._inner = inner
        self._loop = shared_loop()

    start: Final = blocking(InstanceUser.start)

    def close(self) -> None:
        """Close the connections, unless they are shared; see the asynchronous class. Idempotent.

        In a forked child of the process that created the client, the method does nothing, because the connections belong to the
        parent. A child can therefore call ``sys.exit`` inside a ``with`` statement.
        """
        if not self._loop.is_of_parent:
            self._wait(self._inner.close())

    @property
    def client(self) -> ClientInstance:
        """The client instance, which other clients of this module can share: ``Consumer(..., client=other.client)``."""
        return self._inner.client

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the shared loop, and return its result.

        Raises:
            RuntimeError: this thread runs an event loop, which the call would block.
        """
        if running_loop() is None:
            return self._loop.run(work)
        work.close()
        raise RuntimeError(
            f"{type(self).__module__}.{type(self).__name__} was called inside a running event loop, which it would block: "
            f"await flintmq.client.{type(self).__name__} there, or call it in a thread with asyncio.to_thread"
        )
