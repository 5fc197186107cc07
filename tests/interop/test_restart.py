"""Java's push consumer goes on at once when its broker is killed and started again, and not at its next heartbeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq
from flintmq.tests.support.ports import free_ports

from .peer import PEER, fetch_jars

_WITHIN_MS = 4_000
_RUN_S = 240


@pytest.mark.slow
@pytest.mark.java
def test_deliveries_to_java_consumers_continue_within_seconds_of_a_broker_kill(tmp_path: Path) -> None:
    """By the peer kit's own load: what is sent is consumed, and the longest pause between two deliveries is measured."""
    fetch_jars()
    if not (PEER / "failover.sh").exists():
        pytest.skip(f"the peer kit at {PEER} has no failover.sh")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "flintmq").symlink_to(Path(str(flintmq.__file__)).parent)
    command = tmp_path / "flintmq"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{checkout}" exec "{sys.executable}" -m flintmq "$@"\n')
    command.chmod(0o755)
    names, port = free_ports(2)
    part = f'"{PEER}/failover/flintmq.sh" {{}} "{tmp_path}/group" {names} {port}'
    options = {
        "--system": "external",
        "--runs": "1",
        "--namesrv": f"127.0.0.1:{names}",
        "--before": "4",
        "--after": "6",
        "--rate": "100",
        "--poll-ms": "2000",
        "--out": str(tmp_path / "out"),
        "--prepare-command": part.format("up"),
        "--kill-command": part.format("restart"),
        "--finish-command": part.format("down"),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FLINTMQ_", "NAMESRV"))}
    done = subprocess.run(
        ["bash", str(PEER / "failover.sh"), *(word for option in options.items() for word in option)],
        env=environment | {"FLINTMQ": str(command)},
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result = json.loads((tmp_path / "out" / "result-1.json").read_text())
    assert (result["lost"], result["unconsumed"]) == (0, 0)
    assert result["consume_gap_ms"] < result["command_ms"] + _WITHIN_MS, result
