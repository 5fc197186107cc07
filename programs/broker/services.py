"""Creates, starts, stops and queries the services of a broker in order, and counts their failures for their plugins."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import msgspec

from flintmq.core.broker.alarms import ALARMS_MAX, cleaned
from flintmq.core.broker.older import check_records
from flintmq.core.errors import StoreError
from flintmq.core.kernel.failures import PLUGIN_FAULTS
from flintmq.core.kernel.hookspecs import ApiContext
from flintmq.core.kernel.plugin_shapes import shown
from flintmq.core.kernel.ports import (
    WARNING,
    Alarm,
    FollowsMessages,
    Measurement,
    ServesOlderMessages,
    Service,
    SupportsAlarms,
    SupportsFigures,
    SupportsHealth,
    SupportsMetrics,
    SupportsPersist,
    SupportsReady,
    SupportsReadyWords,
    SupportsWithdraw,
)
from flintmq.core.kernel.ports.metrics import MEASUREMENTS_MAX, checked
from flintmq.core.kernel.ports.service import wrong_word
from flintmq.core.log_events import EventLog

if TYPE_CHECKING:
    from flintmq.core.broker.api import ServiceFactory
    from flintmq.core.broker.state import BrokerState
    from flintmq.core.kernel.failures import Part
    from flintmq.core.kernel.kernel import Kernel
    from flintmq.core.kernel.registry import Registered

P = ParamSpec("P")
T = TypeVar("T")

TROUBLE: Final = "serviceTrouble"
_FIGURES_MAX: Final = 200
_FIGURE_MAX_CHARS: Final = 1_000
LEFT_BEHIND_S: Final = 10.0
"""Maximum duration in seconds of the methods ``start``, ``ready``, ``withdraw`` and ``stop`` of a third party's service."""
_CANCELLED_S: Final = 1.0
"""Seconds that a service's method has for cleanup after it was cancelled."""


class Services:
    """The services that plugins registered with ``flintmq_services``, for one broker. For the loop thread only.

    Args:
        kernel: the registry of plugins, which has the factories of the services and counts their failures.
        log: writes the broker's log events.
    """

    def __init__(self, kernel: Kernel, log: EventLog) -> None:
        self._kernel = kernel
        self._log = log
        self._made: list[tuple[Registered[ServiceFactory], Service]] = []
        self._alarming: list[tuple[Registered[ServiceFactory], Service]] = []
        """The services that report alarms or their current problem. The list is kept, because finding these services takes
        longer than querying them."""
        self._begun: list[tuple[Registered[ServiceFactory], Service]] = []
        self._started: list[tuple[Registered[ServiceFactory], Service]] = []

    def make(self, state: BrokerState) -> None:
        """Create every service of the broker. If a service cannot be created, :meth:`stop` also stops the services that were
        created before.

        Raises:
            PluginError: a factory fails, or does not return a service; the error names the plugin.
        """
        for entry in self._kernel.registries.services.all():
            made = self._kernel.make(entry, entry.value, self._kernel.context(entry, ApiContext, api=state.api))
            if made is not None:
                self._made.append((entry, made))
                if isinstance(made, (SupportsAlarms, SupportsHealth)):
                    self._alarming.append((entry, made))
                if isinstance(made, FollowsMessages):
                    state.followers.add(_Follower(made, entry, self._kernel))
                if isinstance(made, ServesOlderMessages):
                    state.older.add(partial(_read_older, made, self._kernel.part(entry)))

    def all(self) -> Iterator[Service]:
        """Yield the broker's services in the order of their registration."""
        return (service for _entry, service in self._made)

    async def start(self) -> None:
        """Start every service in order. An error of a built-in service is raised. An error of a third party's service is
        counted, and the service is left out."""
        for entry, service in self._made:
            self._begun.append((entry, service))
            if await self._begin(entry, "start", service.start):
                self._started.append((entry, service))

    async def ready(self) -> None:
        """Call the method ``ready`` of the services that have this method, because the broker listens now. Raises the error of
        a built-in service."""
        for entry, service in self._started:
            if isinstance(service, SupportsReady):
                await self._begin(entry, "ready", service.ready)

    def metrics(self) -> list[Measurement]:
        """Return the measurements of all services, in order. The measurements of third parties' services are checked."""
        found: list[Measurement] = []
        for entry, service in self._started:
            part = self._kernel.part(entry)
            if part.why_off or not isinstance(service, SupportsMetrics):
                continue
            with part.counting("metrics"):
                measured = service.metrics()
                if not entry.owner.built_in:
                    measured = [checked(one) for one in islice(measured, MEASUREMENTS_MAX)]
                found += measured
        return found

    def ready_words(self) -> dict[str, str]:
        """Return the words that started services add to the line ``READY …``, which the process prints when the broker is
        ready. If several services return a word with the same name, the first service's word is used."""
        found: dict[str, str] = {}
        for entry, service in self._started:
            if isinstance(service, SupportsReadyWords):
                with self._kernel.part(entry).counting("ready_words"):
                    words = dict(service.ready_words())
                    wrong = next(filter(None, (wrong_word(name, word) for name, word in words.items())), "")
                    if wrong:
                        raise ValueError(
                            "expected ready_words() to return names and values that the broker may print in its line READY; "
                            f"found {wrong}"
                        )
                    found = words | found
        return found

    async def _begin(
        self, entry: Registered[ServiceFactory], doing: str, call: Callable[[], Awaitable[None] | None]
    ) -> bool:
        """Call a method of a service, and return whether the call succeeded. Raises the error of a built-in service."""
        try:
            await self._call(entry, doing, call)
        except PLUGIN_FAULTS as error:
            if entry.owner.built_in:
                raise
            self._kernel.part(entry).failed(error, doing)
            return False
        return True

    async def withdraw(self) -> None:
        """Call the services' ``withdraw``, last service first, to undo ``ready``. Never raises."""
        for entry, service in reversed(self._begun):
            if isinstance(service, SupportsWithdraw):
                with self._kernel.part(entry).counting("withdraw"):
                    await self._call(entry, "withdraw", service.withdraw)

    async def stop(self) -> None:
        """Stop every started service, last service first. Never raises."""
        while self._begun:
            entry, service = self._begun.pop()
            with self._kernel.part(entry).counting("stop"):
                await self._call(entry, "stop", service.stop)

    async def _call(
        self, entry: Registered[ServiceFactory], doing: str, call: Callable[[], Awaitable[None] | None]
    ) -> None:
        """Call a method of a service. A third party's call that takes too long is cancelled and abandoned.

        Raises:
            TimeoutError: the call was abandoned.
        """
        owner = entry.owner
        with self._kernel.failures.of(owner, entry.shape.hook, f"{doing} {entry.what}").making():
            returned: object = call()
            if not inspect.isawaitable(returned):
                if returned is not None and not owner.built_in:
                    raise TypeError(f"expected None to be returned, or something to await; found {shown(returned)}")
                return
            if owner.built_in:
                await returned
                return
            task = asyncio.ensure_future(returned)
            try:
                done, _ = await asyncio.wait((task,), timeout=LEFT_BEHIND_S)
                if not done:
                    task.cancel()
                    # A cancelled method of a service has up to _CANCELLED_S seconds to clean up.
                    await asyncio.wait((task,), timeout=_CANCELLED_S)
                    raise TimeoutError(f"{doing} does not end within {LEFT_BEHIND_S} s")
                task.result()
            finally:
                task.cancel()

    def persist(self) -> None:
        """Let each started service save its positions to disk. An example is the queue offset up to which a service has moved
        delayed messages to their topics. The log is already synced.

        The last service saves first, because a service may store its offsets in a table that an earlier service writes. Never
        raises.
        """
        for entry, service in reversed(self._started):
            if isinstance(service, SupportsPersist):
                with self._kernel.part(entry).counting("persist"):
                    try:
                        service.persist()
                    except StoreError as error:
                        # After a failed write, the service's file keeps the positions that the service wrote before.
                        self._log.error(
                            "table.not_written",
                            "the newest positions of the service %(service)s are lost: %(error)s",
                            service=entry.name,
                            error=error,
                        )

    def figures(self) -> dict[str, str]:
        """Return the figures of all services, and the current problem of each service that reports one."""
        found: dict[str, str] = {}
        for entry, service in self._made:
            part = self._kernel.part(entry)
            if part.why_off:
                continue
            with part.counting("figures"):
                if isinstance(service, SupportsFigures):
                    found |= _told(entry, service.runtime_info())
                if isinstance(service, SupportsHealth) and (trouble := service.health()):
                    found[f"{TROUBLE}_{entry.name}"] = str(trouble)[:_FIGURE_MAX_CHARS]
        return found

    def alarms(self) -> list[Alarm]:
        """Return the alarms of all services, and an alarm for each service that reports a current problem."""
        found: list[Alarm] = []
        for entry, service in self._alarming:
            part = self._kernel.part(entry)
            if part.why_off:
                continue
            with part.counting("alarms"):
                if isinstance(service, SupportsAlarms):
                    found += service.alarms() if entry.owner.built_in else _alarms_told(service.alarms())
                if isinstance(service, SupportsHealth) and (trouble := service.health()):
                    text = f"the service {entry.name} says: {str(trouble)[:_FIGURE_MAX_CHARS]}"
                    found.append(Alarm("service.trouble", WARNING, entry.name, text))
        return found


class _Follower:
    """Wraps a service that is notified of stored, answered and delivered messages. The service's errors are counted and logged,
    and have no other effect."""

    def __init__(self, inner: FollowsMessages, entry: Registered[ServiceFactory], kernel: Kernel) -> None:
        part = kernel.part(entry)

        def guarded(doing: str, told: Callable[P, None]) -> Callable[P, None]:
            def tell(*about: P.args, **named: P.kwargs) -> None:
                if part.why_off:
                    return
                part.calls += 1
                try:
                    told(*about, **named)
                except PLUGIN_FAULTS as error:
                    part.failed(error, doing)

            return tell

        self.on_stored = guarded("on_stored", inner.on_stored)
        self.on_answered = guarded("on_answered", inner.on_answered)
        self.on_handed_out = guarded("on_handed_out", inner.on_handed_out)


def _read_older(
    service: ServesOlderMessages, part: Part, topic: str, queue_id: int, queue_offset: int, max_count: int
) -> Sequence[memoryview] | None:
    """Return records that a service provides for messages that the store has already deleted. The records are checked.

    None if the service has no records, is switched off, or fails; a failure is counted.
    """
    if not part.why_off:
        with part.counting("read_older"):
            records = service.read_older(topic, queue_id, queue_offset, max_count)
            return None if records is None else check_records(records, topic, queue_id, queue_offset)
    return None


def _alarms_told(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return a bounded number of the alarms of a third party's service, checked, because the alarms become part of an answer.

    Raises:
        TypeError: an element is not an alarm. msgspec.ValidationError: a field has the wrong type.
    """
    some = list(islice(alarms, ALARMS_MAX))
    for alarm in some:
        if not isinstance(alarm, Alarm):
            raise TypeError(f"expected alarms to return Alarm objects; found {shown(alarm)}")
    return msgspec.json.decode(msgspec.json.encode([cleaned(alarm) for alarm in some]), type=list[Alarm])


def _told(entry: Registered[ServiceFactory], figures: Mapping[str, object]) -> dict[str, str]:
    """Return the figures of a service as text. The figures of a third party's service are bounded, because they become part of
    an answer.

    Raises:
        TypeError: the figures are not a mapping, or there are too many figures.
    """
    if entry.owner.built_in:
        return {str(name): str(value) for name, value in figures.items()}
    if not isinstance(figures, Mapping) or len(figures) > _FIGURES_MAX:
        raise TypeError(f"expected runtime_info to return a mapping of at most {_FIGURES_MAX}; found {shown(figures)}")
    return {str(name)[:_FIGURE_MAX_CHARS]: str(value)[:_FIGURE_MAX_CHARS] for name, value in figures.items()}
