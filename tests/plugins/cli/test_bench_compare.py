"""``bench flush|report|latency|compare`` as they are typed: all lines and files are there, mistakes cost no minutes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import RunCommand

QUICK = ("--seconds", 0.05, "--warmup", 0, "--rounds", 2, "--threads", 4, "--size", 32)
SMALL = ("--set", "store.commit_log_file_bytes=4MiB", "--set", "index.enable=false")


def test_flush_prints_lines_and_writes_a_report(cli: RunCommand, tmp_path: Path) -> None:
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
    compared = cli("bench", "report", first, second, "--json").json
    assert compared["same_machine"]
    assert {one["strategy"] for one in compared["figures"]} == {"group_commit", "flush_real_time"}
    assert "B / A" in cli("bench", "report", first, second).out


def test_a_plugins_strategy_by_name(cli: RunCommand, plugin_module: Callable[[str, str], str], tmp_path: Path) -> None:
    """What is not installed is named by its module, as in the configuration."""
    source = (
        "from flintmq.core.kernel.hookspecs import hookimpl\n"
        "from flintmq.core.kernel.ports import FlushStrategy\n"
        "from flintmq.core.testing.store import ImmediateFlush\n"
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
def test_mistakes(cli: RunCommand, arguments: tuple[str, ...], said: str) -> None:
    outcome = cli("bench", "flush", *QUICK, *arguments)
    assert outcome.code == 2
    assert said in outcome.err


def test_reports_that_are_none(cli: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert cli("bench", "report", tmp_path / "a.json", tmp_path / "a.json").code == 1
    assert cli("bench", "report", tmp_path / "none.json", tmp_path / "a.json").code == 2
    (tmp_path / "b.json").write_text("{")
    assert cli("bench", "report", tmp_path / "b.json", tmp_path / "a.json").code == 2


def test_latency(cli: RunCommand, name_server: str) -> None:
    """Every message sent by the clock arrives at the listener, and old ones in the topic are not counted."""
    common = ("bench", "latency", "-n", name_server, "--rate", 400, "--seconds", 0.2, "--topic", "Latency")
    for _ in range(2):
        found = cli(*common, "--warmup", 0.02, "--pid", os.getpid()).json
        assert (found["missing"], found["errors"]) == (0, 0)
        assert found["messages"] == pytest.approx(80, abs=2)
        assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
        assert found["send_p50_ms"] > 0


def test_latency_against_another(cli: RunCommand, name_server: str) -> None:
    """Both are measured in turn, and the last line has the ratios."""
    words = ("--rate", 200, "--seconds", 0.1, "--warmup", 0, "--rounds", 2, "--topic", "Latency")
    outcome = cli("bench", "latency", "-n", name_server, "--against", name_server, *words)
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["bench"] for line in lines] == [*(["latency"] * 4), "latency ratio"]
    assert lines[-1]["rounds"] == 2
    assert lines[-1]["p50_ms"] > 0


def test_compare_with_itself(cli: RunCommand, name_server: str) -> None:
    """Every row that needs no command, both sides, and the ratio."""
    rows = "send-4x1,batch-32,consume,latency-2000,memory,in-process,start"
    outcome = cli(
        *("bench", "compare", "-n", name_server, "--pid", os.getpid(), "--against", name_server),
        *(
            "--against-pid",
            os.getpid(),
            "--rows",
            rows,
            "--seconds",
            0.05,
            "--warmup",
            0,
            "--rounds",
            2,
            "--json",
            *SMALL,
        ),
    )
    assert outcome.code == 2
    assert "--set configures a broker of our own" in outcome.err
    outcome = cli(
        *("bench", "compare", "-n", name_server, "--pid", os.getpid(), "--against", name_server),
        *("--against-pid", os.getpid(), "--rows", rows, "--seconds", 0.05, "--warmup", 0, "--rounds", 2, "--json"),
    )
    assert outcome.code == 0, outcome.err
    found = {line["row"]: line for line in outcome.json_lines}
    assert ",".join(found) == rows
    assert {"ours", "theirs", "ratio"} <= found["send-4x1"]["rate"].keys()
    assert found["consume"]["rate"]["ours"] > 0
    assert found["in-process"]["put_us"].keys() == {"ours"}
    assert found["memory"]["rss_mib"]["ratio"] == pytest.approx(1, rel=0.2)
    assert found["start"]["start_ms"]["ours"] > 0
    assert "theirs" not in found["start"]["start_ms"]
    assert "the other broker" in found["start"]["why_not"]


FAKE = """#!{python}
import json, sys
words = [word for word in sys.argv[1:] if word != "--fail"]
if words[0] in ("produce", "consume", "e2e"):
    found = dict(messages=90, warmup_messages=10, msgs_per_s=450.0, client_cpu_s=0.1, errors=int("--fail" in sys.argv))
    found["latency_ms"] = dict(p50=0.5, p99=2.0, p999=None)
else:
    port, connections, inflight, count, size = map(int, words)
    assert port > 1023 and size == 128
    found = dict(n=count, rate=1000 * connections * inflight, bad=0, p50us=5, p99us=7, lg_cpu_us=1.5)
print(json.dumps(found))
"""


def test_compare_with_the_load_of_other_programs(cli: RunCommand, name_server: str, tmp_path: Path) -> None:
    """What they print becomes figures, the client's rows have a mean, and what they say of errors costs their row."""
    program = tmp_path / "load"
    program.write_text(FAKE.replace("{python}", sys.executable))
    program.chmod(0o755)
    rows = "memory-idle,send-4x8,java-sync-8-1024,java-batch,java-backlog,java-latency-200"
    common = (
        "bench",
        "compare",
        "-n",
        name_server,
        "--against",
        name_server,
        "--rounds",
        2,
        "--seconds",
        0.01,
        "--json",
    )
    pids = ("--pid", os.getpid(), "--against-pid", os.getpid())
    outcome = cli(*common, *pids, "--rows", rows, "--generator", program, "--client", program)
    assert outcome.code == 0, outcome.err
    found = {line["row"]: line for line in outcome.json_lines}
    assert ",".join(found) == f"{rows},java-geometric-mean"
    assert found["send-4x8"]["rate"] == {"ours": 32_000, "theirs": 32_000, "ratio": 1, "ratio_95": [1, 1]}
    assert found["send-4x8"]["p99_ms"]["ours"] == 0.007
    assert found["java-sync-8-1024"]["rate"]["ours"] == found["java-backlog"]["rate"]["ours"] == 450
    assert found["java-latency-200"]["p50_ms"]["ours"] == 0.5
    assert found["java-geometric-mean"]["rows"] == 2
    assert found["java-geometric-mean"]["rate"]["ratio"] == 1
    outcome = cli(*common, "--rows", "java-async", "--client", f"{program} --fail")
    assert "1 errors in a run of produce --mode async" in outcome.json_lines[0]["why_not"]
    outcome = cli(*common, "--rows", "java-async", "--client", tmp_path / "nothing")
    assert "cannot be run" in outcome.json_lines[0]["why_not"]


def test_rows_of_the_client_need_it(cli: RunCommand) -> None:
    outcome = cli("bench", "compare", "--rows", "java-async")
    assert outcome.code == 2
    assert "--client" in outcome.err


def test_compare_refuses_unknown_rows(cli: RunCommand) -> None:
    outcome = cli("bench", "compare", "--rows", "send-5x5")
    assert outcome.code == 2
    assert "send-4x64" in outcome.err
