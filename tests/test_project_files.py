"""The files that contributors meet first agree with .ci/run, pyproject.toml and each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from commit_message import faults  # noqa: E402  a tool is no module of the package

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TYPES: Final = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}


def workflow_jobs() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    jobs: dict[str, Any] = document["jobs"]
    return jobs


def steps_of_ci() -> list[str]:
    done = subprocess.run([ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_github_workflow_runs_each_step_of_the_ci_script_except_the_step_for_the_newest_python() -> None:
    """The step "newest" looks for a second Python on one machine. The matrix has each Python on a machine."""
    commands = [step.get("run", "") for job in workflow_jobs().values() for step in job["steps"]]
    named = [name for command in commands if command.startswith(".ci/run ") for name in command.split()[1:]]
    assert sorted(named) == sorted(set(steps_of_ci()) - {"newest"})


def test_ci_run_refuses_an_unknown_step_and_lists_all_steps() -> None:
    done = subprocess.run([ROOT / ".ci" / "run", "typos"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"there is no step typos; the steps are {' '.join(steps_of_ci())}" in done.stderr


FAILS_IN_RUNS: Final = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names!r})
def test_part(name):
    runs = Path(name)
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    assert len(runs.read_text()) not in {failing!r}
"""


@pytest.mark.parametrize(
    ("names", "failing", "decision"),
    [("ab", [1], 0), ("abcd", [1], 1), ("a", [1, 4], 1)],
    ids=["passes afterwards", "four failures", "fails in the last run"],
)
def test_ci_accepts_one_failure_of_a_long_test_only_if_three_further_runs_pass(
    tmp_path: Path, names: str, failing: list[int], decision: int
) -> None:
    """A test that fails in more than one of four runs must not pass as a test that a busy machine has disturbed."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')\n"
    )
    (tmp_path / "test_parts.py").write_text(FAILS_IN_RUNS.format(names=list(names), failing=failing))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}
    first = subprocess.run([sys.executable, "-m", "pytest", "-q", "--slow"], **run)
    assert first.returncode == 1, first.stdout
    done = subprocess.run([ROOT / ".ci" / "decide_failed", "1"], **run)
    assert done.returncode == decision, done.stdout + done.stderr
    assert done.stderr.count("UNSTEADY") == (0 if decision else len(names))


def test_ci_repeats_no_tests_if_pytest_itself_failed_with_exit_code_2() -> None:
    done = subprocess.run([ROOT / ".ci" / "decide_failed", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 2


def test_the_workflow_matrix_has_every_supported_python_version() -> None:
    names = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    assert workflow_jobs()["tests"]["strategy"]["matrix"]["python"] == names
    assert PROJECT["project"]["requires-python"] == f">={names[0]}"


def test_each_pre_commit_hook_runs_an_existing_program() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    developed = " ".join(PROJECT["project"]["optional-dependencies"]["dev"])
    for hook in hooks:
        program, *arguments = hook["entry"].split()
        assert (
            (ROOT / program).is_file()
            or program == "python"
            or program in developed.replace("import-linter", "lint-imports")
        )
        for path in [word for word in arguments if "/" in word]:
            assert (ROOT / path).is_file(), f"{hook['id']}: {path}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_names_only_existing_commands(path: Path) -> None:
    """A user who follows the form must not meet an error of ours."""
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    commands = (ROOT / "docs" / "commands.md").read_text("utf-8")
    for command, options in re.findall(r"`flintmq ([a-z]+(?: [a-z]+)?)((?: --[a-z-]+)*)", path.read_text("utf-8")):
        assert f"flintmq {command}" in commands, command
        for option in options.split():
            assert option in commands, option


def fragments() -> list[Path]:
    return sorted(path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md")


def test_changelog_fragments_have_a_known_type_and_end_with_a_period() -> None:
    for path in fragments():
        assert re.fullmatch(r"\+[a-z0-9-]+\.(\w+)\.md", path.name), f"{path.name} does not read +NAME.TYPE.md"
        assert path.name.split(".")[1] in TYPES, f"{path.name}: the types are {sorted(TYPES)}"
        assert path.read_text("utf-8").rstrip().endswith("."), f"{path.name} does not end with a sentence"


def test_towncrier_joins_the_changelog_fragments(tmp_path: Path) -> None:
    program = shutil.which("towncrier", path=str(Path(sys.executable).parent)) or shutil.which("towncrier")
    if program is None:
        pytest.skip("needs towncrier, which the extra dev installs")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "+new.added.md").write_text("Something new.\n")
    command = [program, "build", "--yes", "--version", "9.9.9", "--date", "2030-01-01", "--dir", str(tmp_path)]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    changelog = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    assert changelog.index("## 9.9.9 (2030-01-01)\n\n### Added\n\n- Something new.") < changelog.index("## 0.1.0")
    assert not (tmp_path / "changelog.d" / "+new.added.md").exists()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("store: keep a file that is not synced\n\nThe reason.\n# a comment of git", []),
        ('Revert "store: keep a file"', []),
        ("Fixed something", ["does not read"]),
        ("store: " + "k" * 70, ["at most 72"]),
        ("store: keep it.\nno blank line", ["ends with a period", "not blank"]),
        ("", ["does not read"]),
    ],
)
def test_the_check_of_commit_messages_reports_format_faults_and_accepts_correct_messages(
    message: str, said: list[str]
) -> None:
    found = faults(message)
    assert len(found) == len(said)
    for fault, words in zip(found, said, strict=True):
        assert words in fault
