"""The worked changes of CONTRIBUTING.md apply to the code as it is, touch as few folders as they say, and their tests pass."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flintmq

ROOT = Path(str(flintmq.__file__)).resolve().parent
FOLDERS_MAX = {"A field of the index": 1, "A request code": 2, "A variant of the delay": 1, "A second index": 1}
CHANGES = dict(
    re.findall(r"^### ([^\n]+)\n.*?^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M | re.S)
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed: nothing applies a diff")


def apply(diff: str, root: Path, *options: str) -> None:
    """Apply a diff to a folder that need not be a repository."""
    command = ["git", "apply", *options, "-"]
    done = subprocess.run(command, input=diff, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def changed(diff: str) -> list[Path]:
    """Return the files that a diff changes or adds."""
    return [Path(name) for name in re.findall(r"^\+\+\+ b/(.+)$", diff, re.M)]


def test_contributing_md_contains_exactly_the_four_expected_example_changes() -> None:
    """The page promises four."""
    assert CHANGES.keys() == FOLDERS_MAX.keys()


@pytest.mark.parametrize("title", FOLDERS_MAX)
def test_each_example_diff_in_contributing_md_changes_at_most_two_source_folders(title: str) -> None:
    """A diff that no longer applies teaches nothing; one in many folders says that the design has come loose."""
    diff = CHANGES[title]
    apply(diff, ROOT, "--check")
    assert len({path.parent for path in changed(diff) if path.parts[0] != "tests"}) <= FOLDERS_MAX[title]
    assert any(path.parts[0] == "tests" for path in changed(diff))


@pytest.mark.slow
@pytest.mark.parametrize("title", FOLDERS_MAX)
def test_each_example_change_in_the_contributing_guide_passes_its_own_tests(title: str, tmp_path: Path) -> None:
    """The tests run in a copy of the checkout, as a new contributor would run them."""
    copy = tmp_path / "flintmq"
    ignored = shutil.ignore_patterns(".git", ".venv", ".overlay", "__pycache__", ".*_cache", "build")
    shutil.copytree(ROOT, copy, ignore=ignored)
    apply(CHANGES[title], copy)
    tests = [str(path) for path in changed(CHANGES[title]) if path.name.startswith("test_")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
