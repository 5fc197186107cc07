"""What is switched off, for how long, and what a coroutine costs: the clock is turned by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.config.sections.service import PluginBudgetSection
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.accounts import Account, Ledger
from flintmq.core.kernel.blame import Blame
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource
from flintmq.testing.clock import ManualClock

MINE = PluginOrigin("mine", PluginSource.PROGRAM)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def account(clock: ManualClock) -> Callable[..., Account]:
    def make(budget: PluginBudgetSection, **kind: bool) -> Account:
        ledger = Ledger(Blame(), clock, budget)
        ledger.serves = True
        return ledger.of(MINE, "flintmq_services", "service 'mine'", **{"limited": True, **kind})

    return make


def test_what_is_off_is_tried_again_and_off_again_at_the_same_price(
    account: Callable[..., Account], clock: ManualClock
) -> None:
    made = account(PluginBudgetSection(errors=2, off_ms=5_000))
    for _ in range(2):
        made.note(ValueError("no"))
        assert not made.is_off
        made.note(ValueError("no"))
        assert made.why_off == "failed 2 times in 60 s, the last time in service 'mine': ValueError: no"
        with pytest.raises(RefusedError, match="switched off: it failed 2 times") as refused:
            made.check()
        assert refused.value.reason == "plugin.off"
        clock.advance_ms(4_999)
        assert made.is_off
        clock.advance_ms(1)
        assert not made.is_off
        made.check()


def test_what_stays_off_until_a_restart(account: Callable[..., Account], clock: ManualClock) -> None:
    made = account(PluginBudgetSection(errors=1), until_restart=True)
    made.note(ValueError("no"))
    clock.advance_ms(10**9)
    assert made.is_off


@pytest.mark.parametrize("errors", [0, 1])
def test_failures_that_never_switch_off(account: Callable[..., Account], errors: int) -> None:
    """With the budget 0, or where the broker cannot do without."""
    made = account(PluginBudgetSection(errors=errors), limited=errors == 0)
    for _ in range(100):
        made.note(ValueError("no"))
    assert made.errors == 100
    assert not made.is_off


def test_failures_are_forgotten(account: Callable[..., Account], clock: ManualClock) -> None:
    made = account(PluginBudgetSection(errors=2, window_ms=1_000))
    for _ in range(10):
        made.note(ValueError("no"))
        clock.advance_ms(1_001)
        assert not made.is_off


def test_before_the_broker_serves_nothing_takes_too_long(account: Callable[..., Account]) -> None:
    """A replay hands over large batches, back to back."""
    made = account(PluginBudgetSection(errors=1, call_ms=1, loop_percent=1, loop_window_ms=1))
    made._ledger.serves = False
    long_ago_s = time.perf_counter() - 60
    made.spent(long_ago_s)
    made.spent(long_ago_s)
    assert not made.is_off
    assert made.longest_s >= 60
    made._ledger.serves = True
    made.spent(long_ago_s)
    assert "plugin_budget.call_ms" in made.why_off


def test_a_coroutine_costs_what_it_runs_not_what_it_waits(account: Callable[..., Account]) -> None:
    """And it gets what it awaits: results, errors and cancellation."""
    made = account(PluginBudgetSection())
    seen: list[str] = []

    async def work() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, future.set_result, "waited")
        seen.append(await future)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            seen.append("timeout")
        return "done"

    async def main() -> Any:
        task = asyncio.ensure_future(made.timed(work()))
        assert await task == "done"
        forever = asyncio.ensure_future(made.timed(asyncio.Event().wait()))
        await asyncio.sleep(0)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever

    asyncio.run(main())
    assert seen == ["waited", "timeout"]
    assert made.calls == 2
    assert made.busy_s < 0.05


def test_limits_of_one_plugin() -> None:
    budget = PluginBudgetSection(overrides=("a.b:c.errors=9", "mine.call_ms=1", "mine.errors=2"))
    assert budget.of("a.b.c").errors == 9
    assert (budget.of("mine").errors, budget.of("mine").call_ms) == (2, 1)
    assert budget.of("other") is budget
