"""The comparison of clients measures what it says: a load that runs, ratios of a round, the Java client without its start."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flintmq.tests.support.effort import first

JAVA_CLIENT = """
import json, sys
words = sys.argv[1:]
seconds = float(words[words.index("--seconds") + 1]) if "--seconds" in words else 0
messages = int(1000 * seconds) if seconds else int(words[words.index("--count") + 1])
# 2 s of processor time for the start, then 50 us a message
print("a line of its log")
print(json.dumps({"messages": messages, "msgs_per_s": 500.0, "client_cpu_s": 2 + messages * 50e-6}))
"""


@pytest.fixture
def bench_client() -> ModuleType:
    """The tool as a module."""
    return importlib.import_module("bench_client")


@pytest.fixture
def java_client(tmp_path: Path) -> str:
    script = tmp_path / "client.py"
    script.write_text(JAVA_CLIENT)
    return shlex.join([sys.executable, str(script)])


def words(client: str) -> argparse.Namespace:
    return argparse.Namespace(client=client, seconds=4.0, loop="asyncio")


@pytest.mark.parametrize("row", ["send-8", "consume"])
def test_the_measurement_excludes_the_startup_of_the_java_client(
    bench_client: ModuleType, java_client: str, row: str
) -> None:
    """It is 2 s of processor time, and would make a short run look five times as expensive."""
    figures = bench_client.theirs(words(java_client), row, "127.0.0.1:1", "T")
    assert figures == {"rate": 500.0, "cpu_us": pytest.approx(50)}


def test_ratios_between_clients_compare_only_measurements_of_the_same_round(bench_client: ModuleType) -> None:
    """A machine that is slow for a minute is slow for both."""
    fast, slow = {"rate": 100.0, "cpu_us": 10.0}, {"rate": 10.0, "cpu_us": 100.0}
    twice_fast, twice_slow = {"rate": 50.0, "cpu_us": 20.0}, {"rate": 5.0, "cpu_us": 200.0}
    row = bench_client.compared("send-8", [(fast, twice_fast), (slow, twice_slow), (fast, twice_fast)])
    assert (row["rate"]["ratio"], row["cpu_us"]["ratio"]) == (2.0, 0.5)
    assert (row["rate"]["ours"], row["rate"]["theirs"]) == (100.0, 50.0)
    assert bench_client.table([row]).splitlines()[-1] == "| send-8 | 100 | 50 | 2.00 | 10.0 | 20.0 | 0.50 |"


@pytest.mark.parametrize("row", first(["batch"], ["send-4", "linger-4", "oneway", "batch"]))
def test_the_load_program_sends_and_consumes_messages_for_each_row_of_the_client_comparison_table(
    bench_client: ModuleType, name_server: str, row: str
) -> None:
    """The messages of each row arrive and can be consumed."""
    for name in (row, "consume-lists" if row == "batch" else "consume"):
        command = [sys.executable, str(bench_client.LOAD), name, "--namesrv", name_server, "--topic", f"Load-{row}"]
        command += ["--seconds", "0.1", "--count", "100"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["rate"] > 0
        assert said["cpu_us"] > 0


def test_the_error_about_a_failed_client_names_its_command(
    bench_client: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """It also has the exit code and the last line of the output."""
    code = bench_client.main(
        ["--client", "false", "--rows", "send-1", "--rounds", "1", "-n", "127.0.0.1:1", "--seconds", "0.01"]
    )
    assert code != 0
    assert bench_client.main(["--client", "false", "--rows", "send-2"]) == 2
    assert "there is no row 'send-2'" in capsys.readouterr().err
