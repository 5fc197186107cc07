"""What an image of deploy/Containerfile holds and runs, tried without a builder: its package, environment and commands.

A builder needs the network and a base image. The file was built and run by hand; docs/deployment.md says how.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Final

import pytest

import flintmq
from flintmq.tests.support.ports import free_ports

ROOT = Path(flintmq.__file__).parent
FILE = ROOT / "deploy" / "Containerfile"
STAGES: Final = FILE.read_text().replace("\\\n", " ").split("\nFROM ")
LAST: Final = STAGES[-1]


def instruction(name: str) -> str:
    """What follows an instruction of the last stage, which must be there once."""
    (found,) = re.findall(rf"^{name} (.*)$", LAST, re.MULTILINE)
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel has it, made of what .dockerignore lets into the build."""
    work = tmp_path_factory.mktemp("image")
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    left_out = {line for line in lines if "/" not in line} - {".*"}

    def ignored(folder: str, names: list[str]) -> set[str]:
        top = {name for name in names if name.startswith(".") or name in left_out} if folder == str(ROOT) else set()
        return top | {name for name in names if name == "__pycache__" or name.endswith(".egg-info")}

    shutil.copytree(ROOT, work / "src", ignore=ignored)
    assert not (work / "src" / "tests").exists()
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(work), "."]
    subprocess.run(wheel, cwd=work / "src", check=True, timeout=100)
    with zipfile.ZipFile(next(work.glob("*.whl"))) as archive:
        archive.extractall(work / "installed")
    return work / "installed"


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> dict[str, str]:
    """The image's environment, with a folder and ports of the test's own."""
    found = dict(word.split("=", 1) for word in instruction("ENV").split())
    assert found.pop("PATH") == "/opt/flintmq/bin:$PATH"
    volume = instruction("VOLUME")
    assert found["FLINTMQ_STORE__PATH"].startswith(f"{volume}/")
    port, names_port = free_ports(2)
    return found | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installed),
        "FLINTMQ_STORE__PATH": str(tmp_path / "store"),
        "FLINTMQ_LISTEN__PORT": str(port),
        "FLINTMQ_NAMESERVER__PORT": str(names_port),
    }


def words(*lines: str) -> list[str]:
    """A command in exec form, run by this Python."""
    program, *arguments = [word for line in lines for word in json.loads(line)]
    assert program == "flintmq"
    return [sys.executable, "-m", "flintmq", *arguments]


@pytest.mark.slow
def test_the_container_command_starts_a_broker_that_passes_the_health_check_and_stops_cleanly(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The entry point is the program itself, so the signal of a stop reaches it; then nothing is left to recover."""
    command = words(instruction("ENTRYPOINT"), instruction("CMD"))
    health = words(instruction("HEALTHCHECK").partition("CMD ")[2])
    insecure = environment | {"FLINTMQ_LISTEN__INSECURE": "true"}
    with subprocess.Popen(
        command, env=insecure, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as served:
        try:
            assert served.stdout is not None
            assert served.stdout.readline().startswith("READY ")
            checked = subprocess.run(
                health, env=environment, cwd=tmp_path, capture_output=True, timeout=30, check=False
            )
            assert checked.returncode == 0, checked.stderr
            served.send_signal(signal.Signals[instruction("STOPSIGNAL")])
            _, err = served.communicate(timeout=30)
            assert served.returncode == 0, err
        finally:
            served.kill()
    assert not (tmp_path / "store" / "abort").exists()
    checked = subprocess.run(health, env=environment, cwd=tmp_path, capture_output=True, timeout=30, check=False)
    assert checked.returncode == 4, "a broker that is gone is not healthy"


@pytest.mark.slow
def test_a_container_without_access_control_does_not_start(environment: dict[str, str], tmp_path: Path) -> None:
    """All addresses of a container without access control would be a door that nobody knows of."""
    command = words(instruction("ENTRYPOINT"), instruction("CMD"))
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "listen.insecure: true" in done.stderr


def test_the_container_user_is_numeric_and_not_root() -> None:
    """Kubernetes' runAsNonRoot cannot judge a name."""
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instruction("USER"))
    assert f"chown {instruction('USER')} {instruction('VOLUME')}" in LAST


def test_both_build_stages_of_the_image_install_identical_extras_defined_in_pyproject_toml() -> None:
    """pip only warns of an extra that it does not know."""
    extras = re.findall(r"^ARG EXTRAS=(.*)$", FILE.read_text(), re.MULTILINE)
    assert len(extras) == 2
    assert len(set(extras)) == 1
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[0].split(",")) <= known.keys()
