"""``flintmq console`` beside a cluster, and with ``flintmq run``: READY says where, and it ends with who started it."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'console' is not installed")

from .conftest import RunCommand
from .test_serve import finish, serving


def page(address: str, path: str = "/brokers") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
        return str(answer.read().decode())


def test_the_console_command_serves_web_pages_about_a_running_cluster(tmp_path: Path, small: list[str]) -> None:
    with serving("run", "--store", tmp_path / "store", *small) as (_, cluster):
        arguments = ("console", "-n", cluster["namesrv"], "--port", 0, "--audit", tmp_path / "audit.jsonl")
        with serving(*arguments) as (process, ready):
            assert ready.keys() == {"console", "pid"}
            assert int(ready["pid"]) == process.pid
            assert cluster["broker"] in page(ready["console"])
            process.send_signal(signal.SIGTERM)
            code, out, err = finish(process)
    assert (code, out) == (0, ""), err


def test_a_supervised_console_ends_when_the_pipe_from_its_parent_process_is_closed(tmp_path: Path) -> None:
    """Also one that was killed: nobody would stop the console else."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "flintmq", "console", "-n", "127.0.0.1:9", "--port", "0", "--supervised"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"READY console=")
        process.stdin.close()
        assert process.wait(20) == 0


@pytest.mark.parametrize("more", [(), ("--brokers", "2")])
def test_the_run_command_starts_one_console_for_all_its_brokers(
    tmp_path: Path, small: list[str], more: tuple[str, ...]
) -> None:
    """Of several brokers, too; a kill of the whole leaves no console behind."""
    arguments = ("run", "--console", "--store", tmp_path / "store", "--set", "console.port=0", *more, *small)
    with serving(*arguments) as (process, ready):
        brokers = (ready.get("broker") or ready["brokers"]).split(",")
        shown = page(ready["console"])
        assert all(broker in shown for broker in brokers)
        os.kill(process.pid, signal.SIGINT)
        code, _, err = finish(process)
    assert code == 0, err
    with pytest.raises(OSError, match="refused"):
        page(ready["console"], "/healthz")


def test_invalid_console_options_are_refused(cli: RunCommand) -> None:
    answer = cli("console", "-n", "nowhere")
    assert (answer.code, "is not HOST:PORT" in answer.err) == (2, True)
    answer = cli("console", "-n", "127.0.0.1:9", "--key", "k.pem")
    assert (answer.code, "--certificate" in answer.err) == (2, True)
    answer = cli("console", "-n", "127.0.0.1:9", "--port", "0", "--certificate", "missing.pem")
    assert (answer.code, "certificate cannot be used" in answer.err) == (2, True)
    answer = cli("console", "-n", "127.0.0.1:9", "--host", "192.0.2.1", "--port", "0")
    assert (answer.code, "console.host" in answer.err) == (4, True)
