"""The programs in examples/ are what embedders start from: they install, and their tests pass, ends by SIGTERM among them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq

ROOT = Path(str(flintmq.__file__)).resolve().parent
EXAMPLES = ROOT / "examples"
NEEDS = {
    "orders-threads": (),
    "orders-fastapi": ("fastapi", "httpx2", "uvicorn"),
    "orders-django": ("django",),
}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="examples are part of the repository, not of the wheel")


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of a project, whose requirements are there, beside the package ``flintmq``."""
    name: str = request.param
    missing = [module for module in NEEDS[name] if importlib.util.find_spec(module) is None]
    if missing and not os.environ.get("FLINTMQ_REQUIRE_EXAMPLES"):
        pytest.skip(f"not installed: {', '.join(missing)} (pip install '.[examples]')")
    assert not missing
    (tmp_path / "flintmq").symlink_to(ROOT)
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__", "build")
    return Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=ignored))


every_project = pytest.mark.parametrize("project", NEEDS, indirect=True)


@every_project
def test_tests_of_the_example_programs_pass(project: Path) -> None:
    """Run as their authors do, with warnings as errors."""
    options = ["-q", "-W", "error", "--import-mode=importlib", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *options, "tests"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project.parent), str(project / "src")])},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@every_project
def test_pip_installs_every_module_of_the_example_programs(project: Path, tmp_path: Path) -> None:
    """Every module of the source is in what ``pip install .`` makes."""
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--target", str(target), str(project)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr

    def modules(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}

    assert modules(target) == modules(EXAMPLES / project.name / "src")
