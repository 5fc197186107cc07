"""Faults that a test scripts, and counts of how often each fault has happened."""

from __future__ import annotations

import threading
from typing import Self

import attrs

from flintmq.core.event import Event


@attrs.define(eq=False)
class Fault:
    """A fault that happens at the n-th occasion, for example at the n-th sync. If ``for_ever`` is true, the fault also happens
    at every later occasion. The fault ends with :meth:`undo` or with its ``with`` statement. Thread-safe."""

    nth: int = attrs.field(default=1, kw_only=True)
    """Number of the occasion at which the fault happens, for example the number of the sync. The first occasion after the fault
    was scripted has the number 1."""
    for_ever: bool = attrs.field(default=False, kw_only=True)
    """Whether the fault also happens at every occasion after the occasion with the number ``nth``."""
    hits: int = attrs.field(default=0, init=False)
    """Number of times that the fault has happened."""
    undone: Event[[]] = attrs.field(factory=Event, init=False)
    """Event that the fault publishes once, when it is undone."""
    _seen: int = attrs.field(default=0, init=False)
    _is_undone: bool = attrs.field(default=False, init=False)
    _lock: threading.Condition = attrs.field(factory=threading.Condition, init=False)

    def counts(self) -> bool:
        """Count an occasion at which the fault could happen, and return whether the fault happens at this occasion."""
        with self._lock:
            self._seen += 1
            return not self._is_undone and (self._seen == self.nth or (self.for_ever and self._seen > self.nth))

    def strike(self) -> None:
        """Count that the fault has happened, and wake the threads that wait in :meth:`wait`."""
        with self._lock:
            self.hits += 1
            self._lock.notify_all()

    def wait(self, timeout_s: float = 10.0) -> None:
        """Wait until the fault has happened. Raises ``TimeoutError`` after ``timeout_s``."""
        with self._lock:
            if not self._lock.wait_for(lambda: self.hits, timeout_s):
                raise TimeoutError(f"{type(self).__name__} has not occurred within {timeout_s:g} s")

    def undo(self) -> None:
        """End the fault, so that it does not happen any more. Idempotent."""
        with self._lock:
            if self._is_undone:
                return
            self._is_undone = True
        self.undone.publish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()
