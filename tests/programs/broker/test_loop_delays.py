"""A loop that is slow all the time is told from one that stood still once."""

from __future__ import annotations

from flintmq.programs.broker.loop_delays import LOOKS, LoopDelays


def test_the_median_delay_of_the_event_loop_is_0_until_enough_samples_are_recorded() -> None:
    """The first seconds of a broker say nothing."""
    delays = LoopDelays(0.1)
    for _ in range(LOOKS - 1):
        delays.note(0.4, "here")
    assert (delays.median_s, delays.is_slow) == (0.0, False)
    delays.note(0.4, "there")
    assert (delays.median_s, delays.is_slow) == (0.4, True)
    assert delays.busiest() == "here"


def test_single_long_delays_do_not_mark_an_event_loop_as_slow() -> None:
    """They are told one by one, by another rule; and a loop that is quick again is not slow any more."""
    delays = LoopDelays(0.1)
    for number in range(LOOKS):
        delays.note(9.0 if number % 3 == 0 else 0.001, "")
    found = [delays.is_slow]
    assert delays.busiest() == "?"
    for delay_s in (0.2, 0.001):
        for _ in range(LOOKS):
            delays.note(delay_s, "")
        found.append(delays.is_slow)
    assert found == [False, True, False]
