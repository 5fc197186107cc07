"""A new plugin begins with a name that is free, in an empty folder, and with every file that belongs to it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import flintmq
from flintmq.programs.scaffold.scaffold import KINDS, PluginName, ScaffoldError, project_files, write_project

ROOT = Path(str(flintmq.__file__)).resolve().parent
FOLDER = ROOT / "programs" / "scaffold"


def test_every_kind_of_plugin_has_a_packaged_template() -> None:
    """What lies beside modules is left out of a wheel unless pyproject.toml names it."""
    found = set(FOLDER.glob("templates/*"))
    assert {path.stem for path in found} == {"project", *KINDS}
    if (ROOT / "pyproject.toml").exists():
        package_data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
        globs = package_data["flintmq.programs.scaffold"]
        assert {path for pattern in globs for path in FOLDER.glob(pattern)} == found


@pytest.mark.parametrize(
    ("given", "package", "section"),
    [
        ("flintmq-large-messages", "flintmq_large_messages", "large_messages"),
        ("Acme.Audit_Trail", "acme_audit_trail", "acme_audit_trail"),
        ("flintmq-2", "flintmq_2", "flintmq_2"),
        ("x" * 64, "x" * 64, "x" * 64),
    ],
)
def test_the_distribution_name_of_a_plugin_determines_its_package_and_configuration_section(
    given: str, package: str, section: str
) -> None:
    """The section leaves out what would be said twice in a configuration of FlintMQ, where a name is left."""
    assert PluginName.of(given) == PluginName(given, package, section)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "at most 64 letters and digits"),
        ("3d", "a letter first"),
        ("my plugin", "single '-', '_' or '.' between them"),
        ("my--plugin", "such as flintmq-large-messages"),
        ("../escape", "cannot be the name"),
        ("my-plugin\n", "cannot be the name"),
        ("ünder", "cannot be the name"),
        ("x" * 65, "at most 64"),
        ("json", "such as my-json"),
        ("Async", "the package 'async' exists, or is a word of Python"),
        ("flintmq", "the package 'flintmq' exists"),
        ("flintmq-store", "is named 'store'"),
        ("flintmq-retry", "is named 'retry'"),
        ("flintmq-group-commit", "is named 'group_commit'"),
        ("tag", "such as my-tag"),
    ],
)
def test_an_unusable_plugin_name_is_refused_with_a_remedy(given: str, said: str) -> None:
    """A name that FlintMQ has itself would replace a built-in plugin without a word."""
    with pytest.raises(ScaffoldError) as refused:
        PluginName.of(given)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_project_contains_all_expected_files_and_no_unreplaced_placeholder(kind: str) -> None:
    """Its files parse, its entry point names the module with the hooks, and no placeholder is left."""
    files = project_files(PluginName.of("flintmq-large-messages"), kind)
    assert set(files) == {
        "README.md",
        "pyproject.toml",
        "src/flintmq_large_messages/__init__.py",
        "src/flintmq_large_messages/plugin.py",
        "tests/conftest.py",
        "tests/test_flintmq_large_messages.py",
    }
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == "flintmq-large-messages"
    assert project["entry-points"]["flintmq"] == {"large_messages": "flintmq_large_messages.plugin"}
    for path, text in files.items():
        assert text.endswith("\n"), path
        assert "$" not in text.replace("\n$ ", ""), path
        if path.endswith(".py"):
            assert ast.get_docstring(ast.parse(text)), path


def test_a_plugin_project_is_written_into_a_new_or_empty_folder(tmp_path: Path) -> None:
    """``git init`` may come first."""
    name = PluginName.of("flintmq-large-messages")
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    for folder in (tmp_path / "empty", tmp_path / "deep" / "new"):
        written = write_project(name, "service", folder)
        assert sorted(written) == sorted(project_files(name, "service"))
        assert all((folder / path).read_text("utf-8") for path in written)


def test_a_plugin_project_does_not_overwrite_files(tmp_path: Path) -> None:
    """Neither a project that was begun, nor a file of the same name."""
    name = PluginName.of("flintmq-large-messages")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "README.md").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for folder in (tmp_path / "begun", tmp_path / "file"):
        with pytest.raises(ScaffoldError, match="is not an empty folder: name another one with --dir"):
            write_project(name, "service", folder)
    assert (tmp_path / "file").read_text("utf-8") == "mine"
    assert [path.name for path in (tmp_path / "begun").iterdir()] == ["README.md"]
    assert (tmp_path / "begun" / "README.md").read_text("utf-8") == "mine"
