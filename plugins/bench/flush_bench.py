"""All rounds of all strategies, one after the other, and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from flintmq.config import load_config
from flintmq.config.loading.show import rows
from flintmq.plugins.bench.flush_plan import FlushPlan
from flintmq.plugins.bench.flush_round import FlushRound, run_round
from flintmq.plugins.bench.flush_summary import NOISE_SHARE, FlushSummary, doubts, summarize
from flintmq.plugins.bench.machine import environment, wait_until_quiet
from flintmq.plugins.bench.power_cut import PowerCut, power_cut
from flintmq.plugins.broker.service import run_loop_named

KIND: Final = "flintmq bench flush"
FORMAT: Final = 1
"""Of the report."""


@attrs.frozen
class FlushReport:
    """Everything that is known after a run."""

    plan: FlushPlan
    environment: dict[str, Any]
    rounds: tuple[FlushRound, ...]
    strategies: tuple[FlushSummary, ...]
    doubts: tuple[str, ...]
    config: dict[str, dict[str, str]]
    """Of each strategy, the settings that are not defaults."""
    seconds: float
    """How long all of it took."""

    def as_json(self) -> dict[str, Any]:
        """Return the document that ``--report`` writes and ``flintmq bench report`` compares."""
        return {
            "report": KIND,
            "format": FORMAT,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 1),
            "environment": self.environment,
            "plan": self.plan.as_json(),
            "config": self.config,
            "doubts": list(self.doubts),
            "strategies": [one.as_json() | {"latency_cdf_ms": [list(p) for p in one.cdf]} for one in self.strategies],
            "rounds": [one.as_json() for one in self.rounds],
        }


def bench_flush(
    plan: FlushPlan,
    *,
    plugins: Sequence[object] = (),
    loop: str = "auto",
    progress: Callable[[str], None] = lambda _text: None,
) -> FlushReport:
    """Run every strategy; takes a little more than strategies x rounds x (seconds + warm-up).

    Args:
        plan: what.
        plugins: plugin objects beside the installed ones and those of the plan's settings.
        loop: ``asyncio``, ``uvloop`` or ``auto``.
        progress: called with what happens now.

    Raises:
        ConfigError, PluginError: no such strategy, or a setting is wrong; before anything is measured.
        StoreError: a store cannot be made.
        ImportError: uvloop is not installed.
    """
    run = run_loop_named(loop)
    begin_s = time.monotonic()
    config = {one.label: _changed(plan.overrides(one)) for one in plan.contenders}
    cuts: dict[str, PowerCut] = {}
    if plan.power_cut_s:
        for contender in plan.contenders:
            progress(f"cutting the power of {contender.label}")
            cuts[contender.label] = run(power_cut(plan, contender, plugins))
    rounds: list[FlushRound] = []
    for number in range(plan.rounds):
        for place, contender in enumerate(plan.order(number)):
            progress(f"round {number + 1} of {plan.rounds}: {contender.label}")
            wait_until_quiet(plan.quiet_s, NOISE_SHARE)
            rounds.append(run(run_round(plan, contender, number, place, plugins)))
    found = environment(plan.folder) | {"loop": loop}
    return FlushReport(
        plan=plan,
        environment=found,
        rounds=tuple(rounds),
        strategies=summarize(plan, rounds, cuts),
        doubts=tuple(doubts(plan, rounds, found)),
        config=config,
        seconds=time.monotonic() - begin_s,
    )


def _changed(overrides: Sequence[str]) -> dict[str, str]:
    """Return the settings that are not defaults, as ``flintmq config show`` prints them."""
    return {row.key: row.value for row in rows(load_config(None, overrides, {})) if row.origin != "default"}
