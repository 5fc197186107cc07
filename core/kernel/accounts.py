"""What each thing that a plugin registered costs and does wrong, and when it has used up its budget.

An :class:`Account` is always kept: two readings of the clock a call, and never one for what is built in while it serves.
``flintmq plugins --trace``, request 28 and ``flintmq status`` read it. What is limited by ``plugin_budget`` is
switched off by it.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeVar

import msgspec

from flintmq.config.sections.service import PluginBudgetSection
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.blame import Blame, brief
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.registry import Registered
from flintmq.core.log_events import event_log
from flintmq.core.response_code import ResponseCode

T = TypeVar("T")

_LOG = event_log("flintmq.plugins")
_SHARE_CALLS_MIN: Final = 2
"""One call that takes long is a matter of ``call_ms``, not of the share."""


class OverBudgetError(PluginError):
    """A plugin takes more of the event loop's time than it may. It is counted, not raised."""


class Row(msgspec.Struct, frozen=True):
    """One line of ``flintmq plugins --trace``."""

    plugin: str
    hook: str
    what: str
    """What was called: ``register``, ``make dispatcher 'audit'``, ``dispatcher 'audit'``."""
    calls: int
    busy_ms: float
    """All calls together."""
    longest_ms: float
    errors: int
    outcome: str
    """What the last call that tells something made, returned or raised."""
    switched_off: str
    """Why it is off; empty while it is on."""
    built_in: bool


class Account:
    """The calls of one thing, and whether it is switched off. Any thread may note; the loop's decides.

    Args:
        owner: the plugin that registered it.
        hook: where.
        what: its name in lists: ``dispatcher 'audit'``.
        ledger: the account's.
        limited: whether its budget switches it off.
        until_restart: whether it stays off then, rather than for ``off_ms``.
        by_share: whether failures count only where they are at least half of the calls: of what clients provoke.
    """

    # There are a hundred, and most are called once.
    __slots__ = (
        "_budget",
        "_by_share",
        "_call_s",
        "_failed_at",
        "_is_weighed",
        "_ledger",
        "_limited",
        "_off_until_s",
        "_until_restart",
        "_why_off",
        "_window_began_s",
        "_window_busy_s",
        "_window_calls",
        "_window_s",
        "busy_s",
        "calls",
        "errors",
        "guilty",
        "hook",
        "longest_s",
        "outcome",
        "owner",
        "what",
    )

    def __init__(
        self,
        owner: PluginOrigin,
        hook: str,
        what: str,
        ledger: Ledger,
        *,
        limited: bool = False,
        until_restart: bool = False,
        by_share: bool = False,
    ) -> None:
        self.owner, self.hook, self.what = owner, hook, what
        self.calls = 0
        self.busy_s = 0.0
        self.longest_s = 0.0
        self.errors = 0
        self.outcome = ""
        self.guilty = owner
        """The plugin whose code failed the last time."""
        self._why_off = ""
        self._off_until_s: float | None = None
        self._ledger = ledger
        self._budget = budget = ledger.budget_of(owner)
        self._limited = limited
        self._until_restart = until_restart
        self._by_share = by_share
        self._failed_at: deque[tuple[float, int]] | None = None
        """When the newest failures were, and after how many calls; None where nothing failed."""
        self._call_s = budget.call_ms / 1000 or math.inf
        self._window_s = budget.loop_window_ms / 1000
        self._window_began_s = 0.0
        self._window_busy_s = 0.0
        self._window_calls = 0
        self._is_weighed = not owner.built_in

    @property
    def why_off(self) -> str:
        """Why it is off; empty while it is on. After ``off_ms`` it is on again, where it comes back at all."""
        if self._why_off and self._off_until_s is not None and self._ledger.clock.monotonic_s() >= self._off_until_s:
            self._why_off = ""
            self._failed_at = None
            _LOG.info(
                "plugin.tried_again", "%(plugin)s: its %(what)s is tried again", plugin=self.owner, what=self.what
            )
        return self._why_off

    @property
    def is_off(self) -> bool:
        return bool(self._why_off and self.why_off)

    def check(self) -> None:
        """Raise ``RefusedError`` while it is off."""
        if self.is_off:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{self.what} is switched off: it {self._why_off}",
                reason="plugin.off",
                key="plugin_budget.errors",
            )

    def spent(self, begin_s: float, *, on_loop: bool = True, calls: int = 1) -> None:
        """Note a call that began at this reading of ``perf_counter`` and has ended.

        Args:
            begin_s: the reading.
            on_loop: whether the event loop waited meanwhile.
            calls: 0 for a further step of a call that waits in between.
        """
        end_s = perf_counter()
        took_s = end_s - begin_s
        if not on_loop:
            with self._ledger.lock:
                self.calls += calls
                self.busy_s += took_s
                self.longest_s = max(self.longest_s, took_s)
            return
        self.calls += calls
        self.busy_s += took_s
        if took_s > self.longest_s:
            self.longest_s = took_s
        if self._is_weighed and self._ledger.serves:
            self._weigh(took_s, end_s)

    def _weigh(self, took_s: float, end_s: float) -> None:
        """Count a call that took too long as a failure, and switch off what takes too much of the loop's time."""
        budget = self._budget
        if took_s > self._call_s:
            took = f"took {took_s * 1000:.0f} ms of the event loop's time, which serves nobody meanwhile"
            self.note(OverBudgetError(f"{took} (plugin_budget.call_ms: {budget.call_ms})"))
        if not self._window_began_s:
            self._window_began_s = end_s - took_s
        self._window_busy_s += took_s
        self._window_calls += 1
        window_s = end_s - self._window_began_s
        if window_s < self._window_s:
            return
        percent = 100 * self._window_busy_s / window_s
        calls, self._window_calls = self._window_calls, 0
        self._window_began_s, self._window_busy_s = end_s, 0.0
        if percent > budget.loop_percent and calls >= _SHARE_CALLS_MIN and not self._why_off:
            took = f"took {percent:.0f} % of the event loop's time in {window_s:.1f} s with {calls} calls"
            why = f"{took} (plugin_budget.loop_percent: {budget.loop_percent})"
            self.note(OverBudgetError(why))
            if self._limited and not self._why_off:
                self._switch_off(why)

    def note(self, error: BaseException) -> None:
        """Count and log what it raised, for the plugin whose code it came from."""
        self.failed(self._ledger.blame.note(self.owner, self.what, error))

    def failed(self, guilty: PluginOrigin) -> None:
        """Count a failure, which is noted with :class:`~flintmq.core.kernel.blame.Blame` already."""
        self.errors += 1
        self.guilty = guilty
        errors = self._budget.errors
        if not (self._limited and errors) or self._why_off:
            return
        now_s = self._ledger.clock.monotonic_s()
        failed_at = self._failed_at
        if failed_at is None:
            failed_at = self._failed_at = deque(maxlen=errors)
        failed_at.append((now_s, self.calls))
        first_s, first_call = failed_at[0]
        if len(failed_at) < errors or now_s - first_s > self._budget.window_ms / 1000:
            return
        if self._by_share and errors * 2 < self.calls - first_call + 1:
            return
        by = f" (raised by {guilty})" if guilty != self.owner else ""
        self._switch_off(
            f"failed {errors} times in {self._budget.window_ms / 1000:.0f} s, the last time in "
            f"{self._ledger.blame.last_error(guilty)}{by}"
        )

    def _switch_off(self, why: str) -> None:
        self._why_off = why
        self._window_began_s = 0.0
        self._ledger.switched_off_times[self.owner] = self._ledger.switched_off_times.get(self.owner, 0) + 1
        if self._until_restart:
            _LOG.error(
                "plugin.off",
                "%(plugin)s: its %(what)s is off until the broker is restarted: it %(reason)s",
                plugin=self.owner,
                what=self.what,
                reason=why,
            )
            return
        off_s = self._budget.off_ms / 1000
        self._off_until_s = self._ledger.clock.monotonic_s() + off_s
        _LOG.error(
            "plugin.off_for_a_while",
            "%(plugin)s: its %(what)s is off for %(off_s).0f s: it %(reason)s",
            plugin=self.owner,
            what=self.what,
            off_s=off_s,
            reason=why,
        )

    def timed(self, work: Awaitable[T]) -> _Timed[T]:
        """Return something to await that notes what each step of ``work`` takes on the loop."""
        return _Timed(self, work)

    def watched(self, handler: Callable[..., Any], *, is_async: bool, on_loop: bool = True) -> Callable[..., Any]:
        """Return a function, ``async def`` where the given one is, that is refused while it is off, and whose calls are noted.

        Args:
            handler: plain or ``async def``.
            is_async: which of the two.
            on_loop: False where a thread of its own runs it.
        """

        async def call_async(*arguments: object) -> Any:
            self.check()
            return await self.timed(handler(*arguments))

        def call(*arguments: object) -> Any:
            self.check()
            begin_s = perf_counter()
            try:
                return handler(*arguments)
            finally:
                self.spent(begin_s, on_loop=on_loop)

        return call_async if is_async else call

    def row(self) -> Row:
        """Return what is known, for lists."""
        return Row(
            self.owner.name,
            self.hook,
            self.what,
            self.calls,
            round(self.busy_s * 1000, 3),
            round(self.longest_s * 1000, 3),
            self.errors,
            self.outcome,
            self.why_off,
            self.owner.built_in,
        )


class _Timed(Awaitable[T]):
    """Drives a coroutine for its awaiter, and reads the clock around each step: what it waits for is nobody's cost."""

    def __init__(self, account: Account, work: Awaitable[T]) -> None:
        self._account = account
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[], Any] = steps.__next__
        calls = 1
        while True:
            begin_s = perf_counter()
            try:
                yielded = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._account.spent(begin_s, calls=calls)
            calls = 0
            try:
                sent = yield yielded
            except BaseException as error:
                step = partial(steps.throw, error)
            else:
                step = steps.__next__ if sent is None else partial(steps.send, sent)


class Ledger:
    """The accounts of one broker. Loop thread.

    Args:
        blame: counts failures by plugin.
        clock: broker time, for windows and for how long something stays off.
        budget: the limits.
    """

    def __init__(self, blame: Blame, clock: Clock, budget: PluginBudgetSection) -> None:
        self.blame = blame
        self.clock = clock
        self.budget = budget
        self.serves = False
        """Whether the broker is ready: before, a replay or a start may take its time."""
        self.lock = threading.Lock()
        """Of threads that call something side by side; what the loop calls, the loop alone calls."""
        self.switched_off_times: dict[PluginOrigin, int] = {}
        self._accounts: dict[tuple[PluginOrigin, str, str], Account] = {}

    def budget_of(self, owner: PluginOrigin) -> PluginBudgetSection:
        """Return the limits of one plugin."""
        return self.budget.of(owner.name)

    def of(self, owner: PluginOrigin, hook: str, what: str, **kind: bool) -> Account:
        """Return the account of one thing, which is opened the first time; ``kind`` is as :class:`Account` has it."""
        key = (owner, hook, what)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(owner, hook, what, self, **kind)
        return account

    def of_registered(self, registered: Registered[Any], **kind: bool) -> Account:
        """Return the account of what a plugin registered under a name."""
        return self.of(registered.owner, registered.hook, registered.what, **kind)

    def noting(self, owner: PluginOrigin, hook: str, what: str) -> Noting:
        """Return a context that notes one call of a start or a stop, and what it raises."""
        return Noting(self.of(owner, hook, what))

    def all(self) -> tuple[Account, ...]:
        """Return every account, in the order in which they were opened."""
        return tuple(self._accounts.values())

    def off(self, owner: PluginOrigin) -> tuple[str, ...]:
        """Return what is switched off of a plugin, or because of it, each with why."""
        return tuple(
            f"{one.what.replace(chr(39), '')}: {one.why_off}"
            for one in (self.all() if self.switched_off_times else ())  # mostly nothing ever was
            if one.is_off and owner in (one.owner, one.guilty)
        )


class Noting:
    """Notes how long what is done in it takes, and what it raises; it passes."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._begin_s = 0.0

    def __enter__(self) -> Account:
        self._begin_s = perf_counter()
        return self.account

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self.account.spent(self._begin_s, on_loop=False)
        if error is not None:
            self.account.errors += 1
            self.account.outcome = f"raised {brief(error)}"
