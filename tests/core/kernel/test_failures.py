"""Failures are counted for the plugin that registered what failed, and too many switch an optional part off."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.failures import CALLING, Failures, Part, brief
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource

BUILT_IN = PluginOrigin("built_in", PluginSource.BUILT_IN)
MINE = PluginOrigin("mine", PluginSource.PROGRAM)


def part(most: int = 3, owner: PluginOrigin = MINE, *, optional: bool = True, provoked: bool = False) -> Part:
    return Failures(most).of(owner, "flintmq_services", "service 'mine'", optional=optional, provoked=provoked)


def test_a_service_of_a_plugin_is_disabled_after_it_reaches_its_failure_limit() -> None:
    made = part(2)
    made.failed(ValueError("no"), "tick")
    assert not made.why_off
    made.check()
    made.failed(ValueError("no"), "tick")
    assert made.why_off == "failed 2 times, the last time in service 'mine' (tick): ValueError: no"
    with pytest.raises(RefusedError, match="switched off: it failed 2 times") as refused:
        made.check()
    assert refused.value.reason == "plugin.off"
    assert refused.value.key == "plugin_failures_max"


@pytest.mark.parametrize(
    "made",
    [part(0), part(1, optional=False), part(1, BUILT_IN)],
    ids=["no-limit", "essential", "built-in"],
)
def test_a_plugins_service_without_a_failure_limit_is_never_switched_off(made: Part) -> None:
    for _ in range(100):
        made.failed(ValueError("no"))
    assert made.errors == 100
    assert not made.why_off


@pytest.mark.parametrize(("calls_between", "is_off"), [(1, True), (2, True), (3, False)])
def test_a_processor_that_fails_on_client_requests_is_switched_off_only_by_consecutive_failures(
    calls_between: int, is_off: bool
) -> None:
    """One client's odd requests must not take a processor from all others."""
    made = part(3, provoked=True)
    for _ in range(20):
        made.calls += calls_between
        made.failed(ValueError("odd"))
    assert bool(made.why_off) is is_off


def test_a_service_that_is_switched_off_is_reported_only_under_the_plugin_that_registered_it() -> None:
    failures = Failures(1)
    failures.of(MINE, "flintmq_services", "service 'mine'", optional=True).failed(ValueError("no"))
    assert failures.off(MINE) == ("service mine: failed 1 times, the last time in service 'mine': ValueError: no",)
    assert failures.off(BUILT_IN) == ()
    assert (failures.errors(MINE), failures.errors(BUILT_IN)) == (1, 0)
    assert (failures.last_error(MINE), failures.last_error(BUILT_IN)) == ("service 'mine': ValueError: no", "")


def test_repeated_failures_of_a_plugin_log_a_single_traceback_and_then_only_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A plugin that fails with each of a million messages must not fill a disk."""
    failures = Failures()
    for number in range(1_000):
        failures.note(MINE, "filter 'x'", ValueError(f"no {number}"))
    lines = [record for record in caplog.records if record.name == "flintmq.plugins"]
    assert [bool(record.exc_info) for record in lines] == [True, False, False, False]
    assert "for the 1000th time: ValueError: no 999" in lines[-1].getMessage()
    assert failures.errors(MINE) == 1_000


def test_the_number_of_distinct_failures_that_are_logged_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    for number in range(3_000):
        failures.note(MINE, f"place {number}", ValueError())
    assert len(caplog.records) == 1_000
    assert failures.errors(MINE) == 3_000


def test_an_error_is_counted_for_the_plugin_that_raised_it_and_not_for_the_calling_plugin() -> None:
    """An index builder raises through the dispatcher that calls it."""
    failures, error = Failures(), ValueError("no")
    failures.of(MINE, "a", "index builder 'mine'").failed(error, raised_on=True)
    failures.of(BUILT_IN, "b", "request processor 'query'").failed(error)
    assert (failures.errors(MINE), failures.errors(BUILT_IN)) == (1, 0)


def test_only_the_type_of_an_error_is_recorded_if_the_error_is_marked_as_secret() -> None:
    made = part()
    made.failed(ValueError("password"), is_secret=True)
    assert made._failures.last_error(MINE) == "service 'mine': ValueError"


def test_a_system_exit_raised_by_a_plugin_is_counted_as_an_error_and_suppressed() -> None:
    made = part()
    with made.counting("tick"):
        raise SystemExit(3)
    assert (made.calls, made.errors) == (1, 1)


@pytest.mark.parametrize(("owner", "calling"), [(MINE, MINE), (BUILT_IN, None)])
def test_tasks_started_while_a_plugin_creates_an_object_are_attributed_to_this_plugin(
    owner: PluginOrigin, calling: PluginOrigin | None
) -> None:
    """The plugin must also be known in a task that the part starts."""

    async def seen() -> PluginOrigin | None:
        return CALLING.get()

    async def make() -> PluginOrigin | None:
        with part(owner=owner).making():
            task = asyncio.ensure_future(seen())
        assert CALLING.get() is None
        return await task

    assert asyncio.run(make()) == calling


def test_an_error_during_the_creation_of_a_plugin_object_is_recorded_and_reaches_the_caller() -> None:
    made = part()
    with pytest.raises(KeyError), made.making():
        raise KeyError("settings")
    row = made.row()
    assert (row.outcome, row.calls, row.errors) == ("raised KeyError: 'settings'", 1, 1)
    assert CALLING.get() is None


def test_the_short_text_of_an_error_has_limited_length_even_if_the_error_cannot_be_converted_to_str() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert brief(Mute()) == "Mute: (its text cannot be made)"
    assert brief(ValueError("a\nb\x07" + "x" * 9_000)).startswith("ValueError: a b\\x07xxx")
    assert len(brief(ValueError("x" * 9_000))) < 600
    assert brief(KeyError()) == "KeyError"
