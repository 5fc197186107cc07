"""The pages of docs/ that are derived from the code must be what the code says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _tool() -> object:
    spec = importlib.util.spec_from_file_location("flintmq_docs_tool", ROOT / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()


@pytest.mark.parametrize("page", sorted(TOOL.PAGES))  # type: ignore[attr-defined]
def test_a_derived_page_is_fresh(page: str) -> None:
    """A key, a hook or a request code was added or changed: run ``python tools/docs.py``."""
    expected = TOOL.PAGES[page]()  # type: ignore[attr-defined]
    assert (ROOT / "docs" / page).read_text() == expected, "run: python tools/docs.py"
