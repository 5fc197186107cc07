"""Decisions are recorded, repeated, and made simpler."""

from __future__ import annotations

from flintmq.testing.choices import Choices, shrink


def test_a_replay_repeats_the_recorded_random_numbers_and_then_returns_zeros() -> None:
    first = Choices(3)
    made = [first.below(10) for _ in range(20)]
    again = Choices(recorded=first.made[:15])
    assert [again.below(10) for _ in range(20)] == made[:15] + [0] * 5


def test_an_event_with_a_probability_of_0_percent_never_happens() -> None:
    choices = Choices(1)
    assert not any(choices.happens(0) for _ in range(100))
    assert choices.made == []


def test_a_yes_or_no_choice_with_a_probability_of_25_percent_is_yes_in_about_a_quarter_of_calls() -> None:
    choices = Choices(1)
    assert 200 < sum(choices.happens(25) for _ in range(1000)) < 300


def test_shrinking_a_failing_run_keeps_only_the_random_choices_that_the_failure_needs() -> None:
    """The run fails if its 40th decision is not 0: nothing else remains."""

    def fails(choices: Choices) -> bool:
        return [choices.below(6) for _ in range(200)][40] != 0

    whole = next(one for seed in range(100) if fails(one := Choices(seed)))
    simple = shrink(fails, whole.made)
    assert [at for at, choice in enumerate(simple) if choice] == [40]
    assert len(simple) == 41
