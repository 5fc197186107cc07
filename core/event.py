"""Events: what happens in one part of a broker, for any number of other parts to react to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """Calls every subscribed function each time something happens, in the order of subscription.

    Subscribe on the thread that owns the object with the event. The object says on which thread the functions are called.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Call a function from now on, after those that were subscribed before it."""
        self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[P, object]) -> None:
        """Call a function no longer; one that was not subscribed changes nothing. A call under way still reaches it."""
        self._subscribers = tuple(one for one in self._subscribers if one != subscriber)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every subscribed function. What one raises is raised here, and those after it are not called."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
