"""Who owns the store at which moment: two threads that dispatch at once would make one queue file twice."""

from __future__ import annotations

from typing import Any

from flintmq.tests.support.state import state_of


class CountingStore:
    """Says that more is left so many times, and counts how often it was asked."""

    def __init__(self, left: int = 1) -> None:
        self.left = left
        self.dispatched = 0
        self.reader = self

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def dispatch(self) -> bool:
        self.dispatched += 1
        return self.dispatched <= self.left


class Loop:
    """Runs what it was given when told to."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_soon(self, call: Any) -> None:
        self.calls.append(call)

    call_soon_threadsafe = call_soon

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_the_event_loop_dispatches_no_records_after_another_thread_begins_to_close_the_store() -> None:
    """A flush that ends while the store is being closed on another thread must not make the loop dispatch beside it."""
    state: Any = state_of(store=CountingStore(), loop=Loop())
    state.progressed()
    state.loop.turn()
    state.loop.turn()
    state.loop.turn()
    assert state.store.dispatched == 2
    state.progressed()
    state.loop.turn()
    state.hand_over_store()
    state.dispatch()
    state.progressed()
    for _ in range(4):
        state.loop.turn()
    assert state.store.dispatched == 2
    assert not state.loop.calls


def test_repeated_dispatch_calls_in_one_event_loop_iteration_run_only_one_dispatch() -> None:
    """While a lot is left everybody who asks for more would make the turns longer, and each of them another turn's work."""
    state: Any = state_of(store=CountingStore(left=10), loop=Loop())
    state.dispatch()
    for turn in range(2, 6):
        for _ in range(5):
            state.dispatch()
        state.loop.turn()
        assert state.store.dispatched == turn
