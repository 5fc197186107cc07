"""Places on this machine where Spark runs: this process, a standalone cluster, Spark Connect. Each ends with its block."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

START_S: Final = 120.0
LOOPBACK: Final = "127.0.0.1"


@contextlib.contextmanager
def standalone(spark_home: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A master and a worker of two cores; gives the master's address."""
    env = {**environment, "SPARK_LOCAL_IP": LOOPBACK, "SPARK_NO_DAEMONIZE": "1"}
    run = str(spark_home / "bin" / "spark-class")
    master = [run, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
    with _process(master, folder / "master.log", env) as log:
        url = _told(log, r"Starting Spark master at (spark://\S+)")
        worker = [run, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", "0", "--cores", "2"]
        worker += ["--memory", "2g", "--work-dir", str(folder / "work"), url]
        with _process(worker, folder / "worker.log", env) as worker_log:
            _told(worker_log, r"Successfully registered with master")
            yield url


@contextlib.contextmanager
def connect_server(spark_home: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server that runs its tasks itself, on two cores; gives its address."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(spark_home / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    env = {**environment, "SPARK_LOCAL_IP": LOOPBACK}
    with _process([*command, "spark-internal"], folder / "connect.log", env, cwd=folder) as log:
        _told(log, r"Spark Connect server started at")
        yield f"sc://{LOOPBACK}:{port}"


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, environment: Mapping[str, str], cwd: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=dict(environment), cwd=cwd)
    try:
        yield process, log
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _told(started: tuple[subprocess.Popen[bytes], Path], pattern: str) -> str:
    """What a program says in its log, once it has said it: the group of the pattern, or the words themselves."""
    process, log = started
    until_s = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text("utf-8", "replace"))) is None:
        assert process.poll() is None, f"{log.name}: ended with {process.returncode}: {log.read_text()[-2000:]}"
        assert time.monotonic() < until_s, f"{log.name}: never said {pattern!r}: {log.read_text()[-2000:]}"
        time.sleep(0.1)  # a log tells nobody that it grows
    return found[found.re.groups]


@contextlib.contextmanager
def local(_spark_home: Path, _folder: Path, _environment: Mapping[str, str]) -> Iterator[str]:
    """The process itself."""
    yield "local[2]"


Place = Callable[[Path, Path, dict[str, str]], contextlib.AbstractContextManager[str]]
PLACES: Final[dict[str, Place]] = {"local": local, "standalone": standalone, "connect": connect_server}


def java_home() -> Path:
    """Return the Java that Spark is started on."""
    from flintmq.plugins.spark.session import find_java

    return find_java()
