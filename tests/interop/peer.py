"""The real Java broker, run by the peer kit beside the repository (``../shared/peer``, or where FLINTMQ_SHARED says)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import flintmq
from flintmq.tests.support.ports import free_ports

SHARED = Path(os.environ.get("FLINTMQ_SHARED") or Path(str(flintmq.__file__)).parent.parent / "shared")
PEER = SHARED / "peer"


def _missing() -> str:
    """Why the real broker cannot be run here; empty when it can."""
    if not (PEER / "broker.sh").exists():
        return f"no peer kit at {PEER}"
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} on the PATH"
    return ""


def fetch_jars(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the real broker's jars.

    The test is skipped where the broker cannot be run, and fails there when FLINTMQ_REQUIRE_JAVA is set.
    """
    missing = _missing()
    if missing:
        if os.environ.get("FLINTMQ_REQUIRE_JAVA"):
            pytest.fail(f"the real broker is required here: {missing}")
        pytest.skip(f"needs the real broker: {missing}")
    with (Path(tempfile.gettempdir()) / "flintmq-fetch-jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers must not write one folder
        fetched = subprocess.run(
            [str(PEER / "fetch.sh")],
            env={**os.environ, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        )
    return Path(fetched.stdout.split()[-1])


class Peer:
    """Starts and stops the real name server and broker; one of each.

    Args:
        work: where their files go.
        environment: tells the peer kit which line is run (PEER_LINE), with how much memory (PEER_HEAP), ...
    """

    def __init__(self, work: Path, environment: Mapping[str, str] | None = None) -> None:
        self.work = work
        self.namesrv_port, self.port = free_ports(2)
        self.namesrv = f"127.0.0.1:{self.namesrv_port}"
        self._environment = dict(environment or {})

    def _run(self, script: str, *arguments: str) -> str:
        environment = {**os.environ, **self._environment, "NAMESRV": self.namesrv}
        done = subprocess.run(
            [str(PEER / script), *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{script} {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    @contextmanager
    def name_server(self) -> Iterator[None]:
        self._run("namesrv.sh", str(self.work / "namesrv"), str(self.namesrv_port))
        try:
            yield
        finally:
            self._run("stop.sh", str(self.work / "namesrv"))

    @contextmanager
    def broker(
        self, store: Path, *settings: str, kill: bool = False, role: str = "ASYNC_MASTER", port: int = 0
    ) -> Iterator[int]:
        """The real broker on a store; gives its pid. ``kill`` ends it with SIGKILL."""
        port = port or self.port
        started = self._run("broker.sh", str(store), str(port), "ASYNC_FLUSH", "false", role, *settings)
        try:
            yield int(json.loads(started)["pid"])
        finally:
            self._run("stop.sh", str(store), "KILL" if kill else "TERM")
