"""Events, by which one part of a broker notifies any number of other parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """An event: each :meth:`publish` calls all subscribed functions, in the order of subscription.

    Subscribe on the thread that owns the object with the event. The object documents the thread on which it publishes.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Subscribe a function; it is called after those that were subscribed before it."""
        self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[P, object]) -> None:
        """Unsubscribe a function; a running :meth:`publish` still calls it. It has no effect if it was not subscribed."""
        self._subscribers = tuple(one for one in self._subscribers if one != subscriber)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every subscribed function. If one raises, the exception is raised here, and the rest is not called."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
