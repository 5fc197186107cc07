"""Checks that a service of a broker follows the rules of its interface, :class:`~flintmq.core.kernel.ports.service.Service`.

From a test of your plugin::

    from flintmq.testing.service_kit import check_service

    def test_the_service_passes_the_service_kit():
        check_service(lambda timers: MyService(clock, timers))
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.broker.api import PeriodicTimers
from flintmq.core.broker.older import check_records
from flintmq.core.errors import FlintError, JsonTypeError, StoreError
from flintmq.core.io.clock import Scheduled
from flintmq.core.kernel.plugin_shapes import drop
from flintmq.core.kernel.ports.alarm import Alarm
from flintmq.core.kernel.ports.follow import FollowsMessages, HandedOut, StoredMessages
from flintmq.core.kernel.ports.metrics import SupportsMetrics, checked
from flintmq.core.kernel.ports.older import ServesOlderMessages
from flintmq.core.kernel.ports.service import (
    Service,
    SupportsAlarms,
    SupportsFigures,
    SupportsFollowing,
    SupportsHealth,
    SupportsPersist,
    SupportsReady,
    SupportsReadyWords,
    SupportsWithdraw,
    wrong_word,
)
from flintmq.core.waiters import DONE
from flintmq.testing.failure import KitFailure, expect

_TURNS: Final = 2
_OF_ANOTHER: Final = "memberOfAnotherService"


@attrs.define
class TimersByHand:
    """Timers (:class:`flintmq.core.broker.api.PeriodicTimers`) whose periodic work runs only when a test calls :meth:`turn`."""

    works: dict[str, Callable[[], object]] = attrs.field(factory=dict)
    """The functions that the service has scheduled, keyed by the timer's name."""
    refuses: bool = False
    """Whether scheduling a function raises an error, so that a service fails in the middle of its start."""

    def every(
        self, interval_s: float, work: Callable[[], object], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Keep a function that a service schedules at an interval; :meth:`turn` calls the function. Raises ``KitFailure`` if
        the interval is not positive."""
        expect(interval_s > 0, f"the interval of {name!r} is longer than 0 s", interval_s)
        return self._add(_rested(work, rest_s, name), name)

    def pace(
        self, first_s: float, work: Callable[[], float], name: str, rest_s: Callable[[], float] | None = None
    ) -> Scheduled:
        """Keep a function that a service schedules and that returns the seconds until its next call; :meth:`turn` calls the
        function. Raises ``KitFailure`` if the returned value is not a duration."""
        expect(first_s >= 0, f"the first wait of {name!r} is at least 0 s", first_s)

        def paced() -> None:
            next_s = work()
            is_time = isinstance(next_s, (int, float)) and next_s >= 0
            expect(is_time, f"{name!r} returns after how many seconds it is called again", next_s)

        return self._add(_rested(paced, rest_s, name), name)

    def turn(self) -> None:
        """Run all periodic work of the service once."""
        for work in tuple(self.works.values()):
            work()

    def _add(self, work: Callable[[], object], name: str) -> Scheduled:
        if self.refuses:
            raise StoreError("these timers refuse all work")
        expect(isinstance(name, str) and name != "", "periodic work has a name", name)
        self.works[name] = work
        return _ByHand(self.works, name)


@attrs.frozen
class _ByHand:
    """An item of periodic work of a service. The service can end this work."""

    works: dict[str, Callable[[], object]]
    name: str

    def cancel(self) -> None:
        """End this periodic work of the service, so that :meth:`TimersByHand.turn` does not run it any more."""
        self.works.pop(self.name, None)


def _rested(work: Callable[[], object], rest_s: Callable[[], float] | None, name: str) -> Callable[[], object]:
    """Return a function that calls ``work`` and then checks the result of ``rest_s``. ``rest_s`` is a function of the service
    that returns the seconds for which ``work`` will have nothing to do."""
    if rest_s is None:
        return work

    def rested() -> None:
        work()
        told_s = rest_s()
        is_time = isinstance(told_s, (int, float)) and told_s == told_s
        expect(is_time, f"rest_s of {name!r} returns for how many seconds there is nothing to do", told_s)

    return rested


def check_service(make: Callable[[PeriodicTimers], Service]) -> None:
    """Run every check of a broker's service, on a new event loop.

    Args:
        make: returns a service that has not started, and that schedules its periodic work with the given timers.

    Raises:
        KitFailure: names the broken rule.
    """
    asyncio.run(_check(make))


async def _check(make: Callable[[PeriodicTimers], Service]) -> None:
    await _check_life(make, is_reached=True)
    await _check_life(make, is_reached=False)
    timers = TimersByHand(refuses=True)
    service = make(timers)
    with contextlib.suppress(StoreError):
        await _waited("start", service.start())
    await _call("stop", service.stop)


async def _check_life(make: Callable[[PeriodicTimers], Service], *, is_reached: bool) -> None:
    """Call the methods of a service from its start to its stop, in the order in which a broker calls them.

    If ``is_reached`` is true, the broker opens its ports between the start and the stop. Otherwise the broker stops before it
    has opened its ports.
    """
    timers = TimersByHand()
    service = make(timers)
    expect(not timers.works, "periodic work is asked for in start", sorted(timers.works))
    await _call("start", service.start)
    if is_reached:
        if isinstance(service, SupportsReady):
            await _call("ready", service.ready)
        if isinstance(service, SupportsReadyWords):
            _check_words(service)
        for _turn in range(_TURNS):
            timers.turn()
            _check_answers(service)
        if isinstance(service, FollowsMessages):
            _check_told(service)
        if isinstance(service, ServesOlderMessages):
            _check_older(service)
        if isinstance(service, SupportsFollowing):
            _check_following(service)
    if isinstance(service, SupportsWithdraw):
        await _call("withdraw", service.withdraw)
    await _call("stop", service.stop)
    if isinstance(service, SupportsPersist):
        try:
            drop(returned := service.persist())
        except StoreError as error:
            raise KitFailure(f"persist must be able to write the service's positions after stop: {error}") from error
        expect(not inspect.isawaitable(returned), "persist is a plain method", returned)


def _check_answers(service: Service) -> None:
    if isinstance(service, SupportsFigures):
        drop(figures := service.runtime_info())
        expect(isinstance(figures, Mapping), "runtime_info is a plain method that returns a mapping", figures)
        texts = all(isinstance(text, str) for pair in figures.items() for text in pair)
        expect(texts, "figures are text, by names that are text", figures)
    if isinstance(service, SupportsHealth):
        drop(trouble := service.health())
        expect(
            isinstance(trouble, str) and "\n" not in trouble, "health is one line of text, or an empty text", trouble
        )
    if isinstance(service, SupportsMetrics):
        drop(told := service.metrics())
        expect(isinstance(told, Iterable), "metrics is a plain method that returns measurements", told)
        _check_metrics(list(told))
    if isinstance(service, SupportsAlarms):
        drop(alarms := service.alarms())
        expect(isinstance(alarms, Iterable), "alarms is a plain method that returns alarms", alarms)
        found = list(alarms)
        expect(all(isinstance(alarm, Alarm) for alarm in found), "alarms are Alarm objects", found)
        names = [(alarm.id, alarm.subject) for alarm in found]
        expect(
            len(names) == len(set(names)), "each id and subject comes once: the last one would hide the others", names
        )
        expect(all(alarm.id and alarm.message for alarm in found), "alarms have an id and a message", found)


def _check_metrics(told: list[object]) -> None:
    kinds: dict[str, tuple[str, tuple[str, ...]]] = {}
    series = set()
    for one in told:
        try:
            metric = checked(one)
        except FlintError as error:
            raise KitFailure(f"a measurement is not valid: {error}") from error
        shape = metric.kind, tuple(sorted(metric.labels))
        expect(
            kinds.setdefault(metric.name, shape) == shape, "those of one name have one kind and one set of labels", one
        )
        expect((metric.name, *sorted(metric.labels.items())) not in series, "each series is told once", one)
        series.add((metric.name, *sorted(metric.labels.items())))


def _check_words(service: SupportsReadyWords) -> None:
    drop(words := service.ready_words())
    expect(isinstance(words, Mapping), "ready_words is a plain method that returns a mapping", words)
    for name, word in words.items():
        wrong = wrong_word(name, word)
        expect(not wrong, f"ready_words returns words of a READY line: {wrong}", words)


def _check_told(service: FollowsMessages) -> None:
    """Call a service's methods for stored, answered and delivered messages, with empty sequences of messages and records."""
    calls: Mapping[str, Callable[[], object]] = {
        "on_stored": lambda: service.on_stored(StoredMessages((), (), 0.0, DONE, DONE)),
        "on_answered": service.on_answered,
        "on_handed_out": lambda: service.on_handed_out(HandedOut("T", "C", 0, (), 0.0)),
    }
    for name, call in calls.items():
        drop(returned := call())
        expect(returned is None, f"{name} is a plain method that returns nothing", returned)


def _check_older(service: ServesOlderMessages) -> None:
    drop(records := service.read_older("T", 0, 0, 32))
    is_right = records is None or isinstance(records, Sequence)
    expect(is_right, "read_older is a plain method that returns a sequence or None", records)
    try:
        check_records(records or (), "T", 0, 0)
    except (TypeError, ValueError) as error:
        raise KitFailure(f"read_older must return the requested records, complete and undamaged: {error}") from error


def _check_following(service: SupportsFollowing) -> None:
    drop(positions := service.positions_for_slaves())
    expect(isinstance(positions, Mapping), "positions_for_slaves is a plain method that returns a mapping", positions)
    expect(all(isinstance(name, str) for name in positions), "positions are named by text", positions)
    before = dict(positions)
    service.follow({**before, _OF_ANOTHER: 1})
    expect(dict(service.positions_for_slaves()) == before, "follow takes over positions, and no others", before)
    for name in before:
        try:
            service.follow({**before, name: "text"})
        except JsonTypeError:
            expect(dict(service.positions_for_slaves()) == before, "a refused follow changes nothing", name)
        else:
            expect(False, "follow raises JsonTypeError for a member of a wrong type", name)


async def _call(name: str, call: Callable[[], object]) -> None:
    try:
        await _waited(name, call())
    except KitFailure:
        raise
    except Exception as error:
        raise KitFailure(f"{name} raised {type(error).__name__}: {error}") from error


async def _waited(name: str, returned: object) -> None:
    if inspect.isawaitable(returned):
        returned = await returned
    expect(returned is None, f"{name} returns nothing", returned)
