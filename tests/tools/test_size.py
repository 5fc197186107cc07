"""What tools/size.py counts is quoted in the documentation, so a count that is wrong would be believed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def size() -> ModuleType:
    """Return the tool, imported as it is run."""
    return importlib.import_module("size")


TEXTS = {
    "core/one.py": "from flintmq.core import two\n\n\ndef f():\n    pass\n",
    "core/two.py": "def g():\n    from .one import f\n    return f\n",
    "core/three.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .four import X\n",
    "core/four.py": "from .three import y\nclass X:\n"
    + "".join(f"    def m{number}(self): ...\n" for number in range(26)),
    "plugins/long.py": "def h():\n" + "    x = 1\n" * 700,
    "tests/core/test_one.py": "assert True\n",
}
ARCHITECTURE = (
    "# A\n\n## How a message flows\n\n`core/one.py`, [two](core/two.py), core/none.py\n\n## B\n\n`core/four.py`\n"
)


def test_the_size_tool_counts_the_files_and_the_lines_of_the_source_code(
    size: ModuleType,
) -> None:
    """Imports in functions count, and imports for type checkers do not."""
    found = size.counts(size.Sources(TEXTS), ARCHITECTURE)
    assert found["source files"] == 5
    assert found["source lines"] == 5 + 3 + 3 + 28 + 701
    assert found["source lines in plugins"] == 701
    assert found["files over 700 lines"] == 1
    assert found["functions over 70 lines"] == 1
    assert found["classes over 25 methods"] == 1
    assert found["modules in import cycles"] == 2
    assert found["test lines"] == 1
    assert found["files in the flow of a message"] == 2
    assert found["lines in the flow of a message"] == 8


def test_the_message_flow_in_architecture_md_names_5_to_25_files(size: ModuleType) -> None:
    """ARCHITECTURE.md is where the tool learns which files a message flows through."""
    flow = size.flow_files(size.Sources.of_checkout(ROOT), (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    assert 5 <= len(flow) <= 25
