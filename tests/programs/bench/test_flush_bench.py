"""Comparing strategies: everybody is first once, figures are of that strategy, what is lost is counted and not believed."""

from __future__ import annotations

import asyncio
import json
from array import array
from pathlib import Path
from typing import Any

import attrs
import pytest

from flintmq.config import ConfigError
from flintmq.core.errors import PluginError
from flintmq.core.kernel.hookspecs import RegisterFlushStrategy, hookimpl
from flintmq.core.kernel.ports import FlushContext, FlushStatistics, FlushStrategy, FlushWaiter
from flintmq.core.waiters import DONE
from flintmq.programs.bench import machine
from flintmq.programs.bench.flush_report import FlushReport, bench_flush, doubts, draw_flush, summarize
from flintmq.programs.bench.flush_round import Contender, FlushPlan, FlushRound, parse_contender
from flintmq.programs.bench.power_cut import power_cut

SMALL = ("store.commit_log_file_bytes=4MiB", "index.max_hash_slot_num=1000", "index.max_index_num=4000")


def plan_of(folder: Path, *strategies: str, **more: Any) -> FlushPlan:
    settings = {
        "threads": 4,
        "size_bytes": 64,
        "seconds": 0.05,
        "warmup_s": 0.0,
        "rounds": 2,
        "power_cut_s": 0.0,
    } | more
    contenders = tuple(parse_contender(text) for text in strategies)
    return FlushPlan(contenders=contenders, folder=folder, settings=SMALL, **settings)


class Nothing:
    """A strategy that acknowledges and never syncs, whatever it declares."""

    def __init__(self, context: FlushContext) -> None:
        self._log = context.log

    def start(self) -> None: ...

    def stop(self) -> None:
        while self._log.flushed_offset_bytes < self._log.wrote_offset_bytes:
            self._log.flush(0)

    def submit(self, end_offset_bytes: int) -> FlushWaiter:
        return DONE

    def statistics(self) -> FlushStatistics:
        return FlushStatistics(0, 0, 0, 0, 0.0)


class LyingPlugin:
    """Says that it is synchronous."""

    plugin_name = "lying"

    @hookimpl
    def flintmq_flush_services(self, register: RegisterFlushStrategy) -> None:
        register(FlushStrategy("lying", Nothing, synchronous=True))


def test_a_flush_strategy_name_and_its_settings_are_parsed_from_an_argument_of_the_flush_benchmark() -> None:
    assert parse_contender("group_commit") == Contender("group_commit", "group_commit", ())
    found = parse_contender("flush/group_commit:interval_ms=1:sync_flush_timeout_ms=9")
    assert found.strategy == "flush/group_commit"
    assert found.settings == ("flush.group_commit.interval_ms=1", "flush.group_commit.sync_flush_timeout_ms=9")
    for wrong in ("", ":a=1", "x:a", "x:=1"):
        with pytest.raises(ValueError, match="is not name"):
            parse_contender(wrong)


def test_each_compared_flush_strategy_runs_first_in_at_least_one_round(tmp_path: Path) -> None:
    """Who always runs after another would inherit its dirty pages, or its warm caches."""
    plan = plan_of(tmp_path, "a", "b", "c")
    orders = ["".join(one.label for one in plan.order(n)) for n in range(4)]
    assert orders == ["abc", "bca", "cab", "abc"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FlushReport:
    folder = tmp_path_factory.mktemp("flush")
    plan = plan_of(
        folder, "group_commit", "flush_real_time:interval_ms=100", "commit_real_time", batch=3, power_cut_s=0.05
    )
    report = bench_flush(plan, asyncio.run, "asyncio")
    assert list(folder.iterdir()) == [], "stores are removed"
    return report


def test_the_report_of_the_flush_benchmark_has_the_message_rate_and_latencies_of_each_strategy(
    made: FlushReport,
) -> None:
    by_label = {one.contender.label: one for one in made.strategies}
    assert list(by_label) == ["group_commit", "flush_real_time:interval_ms=100", "commit_real_time"]
    for one in made.strategies:
        assert one.errors == 0
        assert one.figures["rate"].mean > 0
        assert one.figures["cpu_us"].mean > 0
        assert one.figures["p50_ms"].mean <= one.figures["p99_ms"].mean <= one.figures["p999_ms"].mean
        assert [share for _, share in one.cdf] == sorted(share for _, share in one.cdf)
        assert [value for value, _ in one.cdf] == sorted(value for value, _ in one.cdf)
    synced = by_label["group_commit"]
    assert synced.figures["syncs_per_s"].mean > 0
    assert synced.figures["messages_per_sync"].mean >= 3
    assert synced.worst["unsynced_messages"] == 0
    assert by_label["commit_real_time"].worst["unsynced_messages"] > 0
    assert synced.ratios == {}
    assert set(by_label["commit_real_time"].ratios) >= {"rate", "p50_ms"}


def test_the_report_contains_the_messages_lost_in_a_simulated_power_cut(made: FlushReport) -> None:
    """Counted on a disk that knows what was synced: nothing behind a sync, something before one."""
    synced, *others = (one.power_cut for one in made.strategies)
    assert synced is not None
    assert synced.lost_messages == 0
    assert synced.acknowledged_messages > 0
    for other in others:
        assert other is not None
        assert other.lost_messages is not None
        assert 0 < other.lost_messages <= other.acknowledged_messages
        assert other.lost_messages % 3 == 0


def test_the_flush_benchmark_report_is_json_and_contains_the_environment_and_the_settings(made: FlushReport) -> None:
    """What is written must be JSON, and say where it was made and with which settings."""
    document = json.loads(json.dumps(made.as_json(), allow_nan=False))
    assert document["environment"]["disk"]["filesystem"] not in ("", "unknown")
    assert document["environment"]["cores"] >= 1
    assert document["config"]["flush_real_time:interval_ms=100"]["flush.flush_real_time.interval_ms"] == "100ms"
    assert document["plan"]["strategies"][0] == "group_commit"
    assert len(document["rounds"]) == 6
    assert {one["place"] for one in document["rounds"]} == {0, 1, 2}


def test_messages_lost_by_a_strategy_that_never_syncs_are_counted(tmp_path: Path) -> None:
    """It declares itself synchronous and acknowledges at once: its losses are counted all the same."""
    plan = plan_of(tmp_path, "lying", power_cut_s=0.05)
    found = asyncio.run(power_cut(plan, plan.contenders[0], [LyingPlugin()]))
    assert found.lost_messages == found.acknowledged_messages > 0


def test_invalid_flush_strategies_are_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="group_comit"):
        bench_flush(plan_of(tmp_path, "group_comit"), asyncio.run, "asyncio")
    with pytest.raises(ConfigError, match="interval"):
        bench_flush(plan_of(tmp_path, "group_commit:interval_m=1"), asyncio.run, "asyncio")
    assert list(tmp_path.iterdir()) == []


def test_the_wait_for_an_idle_machine_ends_when_the_machine_is_idle_or_after_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends when the machine is quiet, or when the time is up; and does not look when it need not."""
    looks = iter([0.0, 1000.0, 1000.0, 1000.0])
    monkeypatch.setattr(machine, "machine_busy_s", lambda: next(looks))
    monkeypatch.setattr(machine, "_LOOK_S", 0.001)
    assert machine.wait_until_quiet(10, 0.2)
    assert list(looks) == []
    assert machine.wait_until_quiet(0, 0.2)
    busy = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(machine, "machine_busy_s", lambda: next(busy))
    assert not machine.wait_until_quiet(0.01, 0.2)


def a_round(label: str, number: int, **figures: float) -> FlushRound:
    zero = {field.name: 0.0 for field in attrs.fields(FlushRound) if field.type in ("float", float)}
    return FlushRound(
        **zero | {"seconds": 1.0, "rate": 1.0} | figures,
        label=label,
        round_number=number,
        place=0,
        messages=1,
        errors=0,
        latencies_s=array("d", [0.001]),
    )


def test_reasons_to_doubt_the_results_are_listed_in_the_report(tmp_path: Path) -> None:
    """A figure that cannot be trusted must say so by itself."""
    plan = plan_of(tmp_path, "a", rounds=1)
    quiet = {"disk": {"filesystem": "ext4", "folder": "/x"}, "cores": 2}
    found = doubts(plan, [a_round("a", 0, other_cpu=1.5, unsynced_ms=1000.0)], quiet)
    assert [text for text in found if "others used up to 75%" in text]
    assert [text for text in found if "without a sync" in text]
    assert [text for text in found if text.startswith("1 rounds")]
    memory = {"disk": {"filesystem": "tmpfs", "folder": "/x"}, "cores": 2}
    assert "tmpfs" in doubts(plan_of(tmp_path, "a", rounds=5), [a_round("a", 0)], memory)[0]
    assert doubts(plan_of(tmp_path, "a", rounds=5), [a_round("a", 0)], quiet) == []


def test_ratios_are_relative_to_the_first_compared_flush_strategy(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "a", "b")
    rounds = [a_round("a", 0, rate=10), a_round("b", 0, rate=20), a_round("b", 1, rate=10), a_round("a", 1, rate=5)]
    first, second = summarize(plan, rounds, {})
    assert first.ratios == {}
    assert second.ratios["rate"].mean == pytest.approx(2)
    assert "p50_ms" not in second.ratios, "zeros have no ratio"


def test_the_flush_benchmark_report_is_drawn_as_an_svg_file(made: FlushReport, tmp_path: Path) -> None:
    """Drawn where matplotlib is installed; formats that cannot be drawn are refused anywhere."""
    with pytest.raises(ValueError, match=r"\.svg"):
        draw_flush(made.as_json(), tmp_path / "picture.txt")
    pytest.importorskip("matplotlib")
    draw_flush(made.as_json(), tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text("utf-8")
    assert text.startswith("<?xml")
    assert "commit_real_time" in text or "<use" in text
