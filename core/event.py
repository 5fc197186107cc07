"""Events, by which one part of a broker notifies any number of other parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """An event to which functions are subscribed. :meth:`publish` calls all of these functions, in the order of subscription.

    Subscribe on the thread that owns the object with the event. The object documents the thread on which it publishes.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[P, object], ...] = ()

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Subscribe a function to the event. The functions that were subscribed earlier are called before it."""
        self._subscribers = (*self._subscribers, subscriber)

    def unsubscribe(self, subscriber: Callable[P, object]) -> None:
        """Unsubscribe a function from the event; a running :meth:`publish` still calls the function. A function that is not
        subscribed is ignored."""
        self._subscribers = tuple(one for one in self._subscribers if one != subscriber)

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every subscribed function. If a function raises, its exception is passed to the caller, and the remaining
        functions are not called.
        """
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
