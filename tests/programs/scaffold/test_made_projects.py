"""Projects of all kinds work as they are written, and so do those that docs/plugins.md changes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

import flintmq
from flintmq.programs.scaffold.scaffold import KINDS, PluginName, write_project

ROOT = Path(str(flintmq.__file__)).resolve().parent
PAGE = ROOT / "docs" / "plugins.md"
SHOWN = re.compile(r"^\$ flintmq plugin new (\S+) --kind (\w+)\n```\n\n[^\n]+\n\n```diff\n(.*?)^```$", re.M | re.S)

needs_the_page = pytest.mark.skipif(not PAGE.exists(), reason="the pages are part of the repository, not of the wheel")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the checkout is the package ``flintmq``, whatever its own folder is called."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "flintmq").symlink_to(ROOT)
    return folder


@pytest.fixture
def projects(tmp_path: Path) -> dict[str, Path]:
    """Return a project of each kind, as it is written."""
    folders = {kind: tmp_path / kind for kind in KINDS}
    for kind, folder in folders.items():
        write_project(PluginName.of(f"flintmq-my-{kind}"), kind, folder)
    return folders


@pytest.fixture
def changed(tmp_path: Path) -> dict[str, Path]:
    """Return a project of each kind, with the change of the page."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed: nothing applies a diff")
    folders = {}
    for name, kind, diff in SHOWN.findall(PAGE.read_text("utf-8")):
        folder = folders[kind] = tmp_path / "changed" / kind
        before = set(write_project(PluginName.of(name), kind, folder))
        command = ["git", "apply", "-"]
        done = subprocess.run(command, input=diff, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (kind, done.stderr)
        paths = set(re.findall(r"^\+\+\+ b/(.+)$", diff, re.M))
        assert len(paths) == 2, (kind, paths)
        assert paths <= before, (kind, paths)
    return folders


def run(
    *words: object, path: list[Path], cwd: Path | None = None, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these folders to import from."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))} | (more or {})
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def run_tests(folders: list[Path], checkout: Path) -> int:
    """Run the projects' own tests, all in one process, where a warning is an error; return how many have passed."""
    not_ours = "ignore:Module already imported so cannot be rewritten"  # see filterwarnings in pyproject.toml
    options = (
        "-q",
        "-W",
        "error",
        "-W",
        not_ours,
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    )
    path = [checkout, *(folder / "src" for folder in folders)]
    done = run("-B", "-m", "pytest", *options, *(folder / "tests" for folder in folders), path=path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^(\d+) passed", done.stdout, re.M)
    assert found is not None, done.stdout
    return int(found[1])


def test_a_new_plugin_project_passes_its_generated_tests(projects: dict[str, Path], checkout: Path) -> None:
    """An author begins with tests that hold."""
    written = sum(
        text.count("\ndef test_")
        for one in projects.values()
        for text in map(Path.read_text, one.glob("tests/test_*.py"))
    )
    assert run_tests([*projects.values()], checkout) >= written >= 2 * len(KINDS)


@needs_the_page
def test_the_plugins_page_of_the_documentation_shows_every_kind_of_plugin_once() -> None:
    """In the order in which the command lists them."""
    assert [kind for _name, kind, _diff in SHOWN.findall(PAGE.read_text("utf-8"))] == [*KINDS]


@pytest.mark.slow
@needs_the_page
def test_the_code_changes_shown_on_the_plugins_page_can_be_applied_and_pass_their_tests(
    changed: dict[str, Path], checkout: Path
) -> None:
    """Each shows the code and its test."""
    assert run_tests([*changed.values()], checkout) >= 2 * len(KINDS)


@pytest.mark.slow
@needs_the_page
def test_generated_plugin_projects_pass_linters_and_type_checkers(
    projects: dict[str, Path], changed: dict[str, Path], checkout: Path, tmp_path: Path
) -> None:
    """As they are written and as the page changes them, with the settings that they bring, such as mypy's ``strict``."""
    if importlib.util.find_spec("mypy") is None or importlib.util.find_spec("ruff") is None:
        pytest.skip("mypy or ruff is not installed here")
    for kind, folder in (*projects.items(), *changed.items()):
        for words in (("check", "--no-cache"), ("format", "--check", "--diff", "--no-cache")):
            done = run("-m", "ruff", *words, ".", path=[], cwd=folder)
            assert done.returncode == 0, (kind, done.stdout, done.stderr)
        # An installed FlintMQ is not checked along with what uses it; this one is read from the checkout.
        options = ("--follow-imports=silent", "--cache-dir", tmp_path / "cache")
        done = run("-m", "mypy", *options, path=[], cwd=folder, more={"MYPYPATH": str(checkout)})
        assert done.returncode == 0, (kind, done.stdout, done.stderr)


@pytest.mark.slow
def test_a_plugin_project_can_be_installed_with_pip_and_is_listed_by_flintmq(tmp_path: Path, checkout: Path) -> None:
    """In an environment of its own, which sees the packages of this one."""
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("setuptools") is None:
        pytest.skip("pip or setuptools is not installed here")
    if int(version("setuptools").split(".")[0]) < 71 and importlib.util.find_spec("wheel") is None:
        pytest.skip("this setuptools builds no wheel without the wheel package")
    write_project(PluginName.of("flintmq-disk-watch"), "service", tmp_path / "project")
    assert run("-m", "venv", "--without-pip", tmp_path / "venv", path=[]).returncode == 0
    (installed,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    lines = (f"import site; site.addsitedir({folder!r})\n" for folder in site.getsitepackages())
    (installed / "host.pth").write_text("".join(lines), encoding="utf-8")
    python = str(tmp_path / "venv" / "bin" / "python")
    command = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, str(tmp_path / "project")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [python, "-m", "flintmq", "plugins", "--json"],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    (found,) = [row for row in json.loads(listed.stdout) if row["source"] == "entry point"]
    assert (found["name"], found["place"]) == ("disk_watch", "flintmq-disk-watch 0.1.0")
    assert set(found["registered"]) == {"service disk_watch", "config section disk_watch"}
