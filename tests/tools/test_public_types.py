"""What users' editors say of the public names is held by a tool; a tool that finds nothing would hold nothing."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

LOST = """__all__ = ["first"]


def first(items, count: int = 0):
    return items[count]
"""


@pytest.fixture
def public_types() -> ModuleType:
    """Return the tool."""
    return importlib.import_module("public_types")


def test_the_check_of_public_types_prints_a_warning_if_node_js_is_missing(
    public_types: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A developer without Node.js can work, but must learn which check was not done."""
    monkeypatch.setenv("PATH", "")
    assert public_types.main([]) == 0
    assert "public types are not checked: " in capsys.readouterr().err


@pytest.mark.slow
def test_the_check_of_public_types_reports_a_public_function_without_types(
    public_types: ModuleType, tmp_path: Path
) -> None:
    """Users would have to guess its types."""
    if reason := public_types.missing():
        pytest.skip(reason)
    package = tmp_path / ".overlay" / "lost"
    package.mkdir(parents=True)
    (package / "py.typed").touch()
    (package / "__init__.py").write_text(LOST)
    score, said = public_types.problems_of("lost", 1.0, tmp_path)
    assert score < 1
    assert any("lost.first" in one for one in said)
    assert said[-1].startswith("lost: ")
    assert "finds no public name" in public_types.problems_of("gone", 1.0, tmp_path)[1][0]


@pytest.mark.slow
def test_pyright_reports_a_wrong_type_and_an_unneeded_type_ignore_comment(
    public_types: ModuleType, tmp_path: Path
) -> None:
    """The settings of the checkout apply, in which an unneeded ``type: ignore`` is an error, too."""
    if reason := public_types.missing():
        pytest.skip(reason)
    (tmp_path / "pyproject.toml").write_text((public_types.ROOT / "pyproject.toml").read_text())
    used = tmp_path / "tests" / "support" / "typed_client.py"
    used.parent.mkdir(parents=True)
    used.write_text('from typing import assert_type\n\nassert_type(len(""), str)\nlen("")  # type: ignore[arg-type]\n')
    done = public_types.pyright(root=tmp_path)
    assert done.returncode == 1
    assert "reportAssertTypeFailure" in done.stdout
    assert "reportUnnecessaryTypeIgnoreComment" in done.stdout
