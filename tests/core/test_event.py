"""Several parts of a broker react to one event; none may take another's place."""

from __future__ import annotations

from flintmq.core.event import Event


def test_the_subscribers_of_an_event_are_called_in_the_order_of_subscription() -> None:
    """A slot that is overwritten would forget whoever came first."""
    event: Event[[int]] = Event()
    event.publish(0)
    called: list[tuple[str, int]] = []
    event.subscribe(lambda number: called.append(("first", number)))
    event.subscribe(lambda number: called.append(("second", number)))
    event.publish(1)
    assert called == [("first", 1), ("second", 1)]


def test_a_function_unsubscribed_from_an_event_is_not_called() -> None:
    """A part that is replaced while the broker runs would be kept, and called, for ever."""

    class Part:
        called = 0

        def react(self) -> None:
            self.called += 1

    event: Event[[]] = Event()
    former, new = Part(), Part()
    event.subscribe(former.react)
    event.subscribe(new.react)
    event.publish()
    event.unsubscribe(former.react)
    event.unsubscribe(Part().react)
    event.publish()
    assert (former.called, new.called) == (1, 2)
