"""``bench flush`` as it is typed: all lines and files are there, and mistakes are found before anything is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import RunCommand

QUICK = ("--seconds", 0.05, "--warmup", 0, "--rounds", 2, "--threads", 4, "--size", 32)
SMALL = ("--set", "store.commit_log_file_bytes=4MiB", "--set", "index.enable=false")


def test_the_bench_flush_command_prints_the_results_of_each_strategy_and_writes_a_report(
    cli: RunCommand, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    common = (
        "bench",
        "flush",
        "-s",
        "group_commit,flush_real_time",
        *QUICK,
        *SMALL,
        "--dir",
        tmp_path,
        "--power-cut",
        0.03,
    )
    outcome = cli(*common, "--json", "--report", first)
    assert outcome.code == 0, outcome.err
    lines = outcome.json_lines
    assert [line.get("strategy") for line in lines] == ["group_commit", "flush_real_time", None]
    assert lines[0]["power_cut"]["lost_messages"] == 0
    assert lines[2]["config"]["group_commit"]["index.enable"] == "false"
    assert len(json.loads(first.read_text())["rounds"]) == 4
    tables = cli(*common, "--report", second)
    assert tables.code == 0, tables.err
    assert "messages/s" in tables.out
    assert "Acknowledged messages at risk" in tables.out
    assert "2 rounds tell little" in tables.err
    assert second.exists()


def test_bench_flush_measures_a_flush_strategy_of_a_plugin(
    cli: RunCommand, plugin_module: Callable[[str, str], str], tmp_path: Path
) -> None:
    """What is not installed is named by its module, as in the configuration."""
    source = (
        "from flintmq.core.kernel.hookspecs import hookimpl\n"
        "from flintmq.core.kernel.ports import FlushStrategy\n"
        "from flintmq.testing.store import ImmediateFlush\n"
        "class plugin:\n"
        "    @hookimpl\n"
        "    def flintmq_flush_services(self, register):\n"
        "        register(FlushStrategy('at_once', ImmediateFlush, synchronous=True))\n"
    )
    target = plugin_module("bench_flush_plugin", source)
    try:
        found = cli(
            "bench", "flush", "-s", "at_once", "--plugin", target, *QUICK, *SMALL, "--power-cut", 0.03, "--json"
        )
    finally:
        sys.modules.pop("bench_flush_plugin", None)
    assert found.code == 0, found.err
    assert found.json_lines[0]["messages_per_sync"]["mean"] == 1
    assert found.json_lines[0]["power_cut"]["lost_messages"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-s", "group_comit"), "group_comit"),
        (("-s", "group_commit,group_commit"), "twice"),
        (("-s", ","), "names none"),
        (("--dir", "/nowhere/at/all"), "no folder"),
        (("--plot", "picture.gif"), ".svg"),
        (("--loop", "trio"), "uvloop"),
        (("--plugin", "there.is.none"), "there"),
    ],
)
def test_invalid_bench_flush_options_are_refused(cli: RunCommand, arguments: tuple[str, ...], said: str) -> None:
    outcome = cli("bench", "flush", *QUICK, *arguments)
    assert outcome.code == 2
    assert said in outcome.err
