"""``tools/bench_compare.py`` as it is typed: every figure is there, mistakes end at once."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import TOOLS, RunTool

SMALL = ("--set", "store.commit_log_file_bytes=4MiB", "--set", "index.enable=false")


def test_the_shell_script_for_the_comparison_with_rocketmq_shows_the_help_of_the_comparison_tool() -> None:
    """The options of the comparison are asked for without Java, Maven or the peer kit."""
    environment = os.environ | {"PYTHON": sys.executable}
    script = [str(TOOLS / "against_java.sh"), "--help"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "--against-start" in done.stdout


@pytest.mark.slow
def test_a_benchmark_comparison_of_flintmq_with_itself_has_all_requested_rows(tool: RunTool, name_server: str) -> None:
    """Every row that needs no command, both sides, and the ratio."""
    rows = "send-4x1,batch-32,consume,latency-2000,memory,in-process,start"
    outcome = tool(
        *("bench_compare", "-n", name_server, "--pid", os.getpid(), "--against", name_server),
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
    assert "--set configures a broker that this command starts" in outcome.err
    outcome = tool(
        *("bench_compare", "-n", name_server, "--pid", os.getpid(), "--against", name_server),
        *("--against-pid", os.getpid(), "--rows", rows, "--seconds", 0.05, "--warmup", 0, "--rounds", 2, "--json"),
    )
    assert outcome.code == 0, outcome.err
    found = {line["row"]: line for line in map(json.loads, outcome.out.splitlines())}
    assert ",".join(found) == rows
    assert {"ours", "theirs", "ratio"} <= found["send-4x1"]["rate"].keys()
    assert found["consume"]["rate"]["ours"] > 0
    assert found["in-process"]["put_us"].keys() == {"ours"}
    assert found["memory"]["rss_mib"]["ratio"] == pytest.approx(1, rel=0.2)
    assert found["start"]["start_ms"]["ours"] > 0
    assert "theirs" not in found["start"]["start_ms"]
    assert "the other broker" in found["start"]["why_not"]


FAKE = """#!/bin/sh
'''exec' {python} "$0" "$@"
'''
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


def test_a_comparison_reads_the_results_printed_by_external_load_generators(
    tool: RunTool, name_server: str, tmp_path: Path
) -> None:
    """What they print becomes figures, the client's rows have a mean, and what they say of errors costs their row."""
    program = tmp_path / "load"
    program.write_text(FAKE.replace("{python}", shlex.quote(sys.executable)))
    program.chmod(0o755)
    rows = "memory-idle,send-4x8,java-sync-8-1024,java-batch,java-backlog,java-latency-200"
    common = (
        "bench_compare",
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
    outcome = tool(
        *common, *pids, "--rows", rows, "--generator", shlex.quote(str(program)), "--client", shlex.quote(str(program))
    )
    assert outcome.code == 0, outcome.err
    found = {line["row"]: line for line in map(json.loads, outcome.out.splitlines())}
    assert ",".join(found) == f"{rows},java-geometric-mean"
    assert found["send-4x8"]["rate"] == {"ours": 32_000, "theirs": 32_000, "ratio": 1, "ratio_95": [1, 1]}
    assert found["send-4x8"]["p99_ms"]["ours"] == 0.007
    assert found["java-sync-8-1024"]["rate"]["ours"] == found["java-backlog"]["rate"]["ours"] == 450
    assert found["java-latency-200"]["p50_ms"]["ours"] == 0.5
    assert found["java-geometric-mean"]["rows"] == 2
    assert found["java-geometric-mean"]["rate"]["ratio"] == 1
    outcome = tool(*common, "--rows", "java-async", "--client", shlex.join([str(program), "--fail"]))
    assert "1 errors in a run of produce --mode async" in json.loads(outcome.out.splitlines()[0])["why_not"]
    outcome = tool(*common, "--rows", "java-async", "--client", tmp_path / "nothing")
    assert "cannot be run" in json.loads(outcome.out.splitlines()[0])["why_not"]


@pytest.mark.slow
def test_a_benchmark_comparison_adds_the_rates_of_load_generators_that_run_at_the_same_time(
    tool: RunTool, name_server: str, tmp_path: Path
) -> None:
    """The rates of generators that send at the same time are added, and the ratios to both others are told."""
    program = tmp_path / "load"
    program.write_text(FAKE.replace("{python}", shlex.quote(sys.executable)))
    program.chmod(0o755)
    outcome = tool(
        *("bench_compare", "-n", name_server, "--against", name_server, "--also", name_server),
        *(
            "--rows",
            "send-4x8,memory",
            "--rounds",
            3,
            "--seconds",
            0.01,
            "--generator",
            shlex.quote(str(program)),
            "--generators",
            2,
        ),
        *("--pid", os.getpid(), "--json"),
    )
    assert outcome.code == 0, outcome.err
    send, memory = map(json.loads, outcome.out.splitlines())
    everywhere = dict.fromkeys(("ours", "theirs", "also"), 64_000)
    ratios = {"ratio": 1, "ratio_95": [1, 1], "ratio_also": 1, "ratio_also_95": [1, 1]}
    assert send["rate"] == everywhere | ratios
    assert "the process of the third broker is not known" in memory["why_not"]


def test_a_benchmark_of_the_java_client_is_refused_if_no_command_for_that_client_is_given(tool: RunTool) -> None:
    """A row that cannot be measured is refused before the others take their time."""
    outcome = tool("bench_compare", "--rows", "java-async")
    assert outcome.code == 2
    assert "--client" in outcome.err


def test_a_comparison_of_an_unknown_benchmark_is_refused(tool: RunTool) -> None:
    """The error about a misspelled row names the existing rows."""
    outcome = tool("bench_compare", "--rows", "send-5x5")
    assert outcome.code == 2
    assert "send-4x64" in outcome.err
