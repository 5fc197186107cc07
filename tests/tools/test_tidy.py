"""A rule that finds nothing may be one that looks at nothing: each is shown a source that breaks it, and one that does not."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest


@pytest.fixture
def tidy() -> ModuleType:
    """Return the tool, imported as it is run."""
    return importlib.import_module("tidy")


MISSING = "/".join(["docs", "nowhere.md"])
"""A page that does not exist, in two words, because tests/test_internals.py looks for pages here too."""
BROKEN = "\n".join(
    [
        f'"""As the other one, which is no help; see {MISSING} and :class:`Missing`."""',
        "from flintmq.core import b",
        "def long():",
        *["    x = 1"] * 700,
        "class Large:",
        *(f"    def m{number}(self): ..." for number in range(26)),
    ]
)
SOUND = '''"""Return nothing; see docs/store.md, :class:`Kind`, :meth:`Kind.take`, :attr:`Kind.at`, :mod:`.a`, :mod:`json`."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from flintmq.core.a import Large
class Base:
    def take(self):
        self.at = 1
class Kind(Base):
    """Hold what :class:`Large` does not; see :func:`flintmq.core.a.long`."""
'''


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("long_files", {"core/a.py"}),
        ("long_functions", {"core/a.py:long"}),
        ("large_classes", {"core/a.py:Large"}),
        ("banned_phrases", {"core/a.py"}),
        ("leaning_docstrings", {"core/a.py"}),
        ("dangling_references", {"core/a.py:Missing"}),
        ("missing_pages", {f"core/a.py:{MISSING}"}),
        ("import_cycles", set()),
        ("untested_modules", {"core/a.py"}),
    ],
)
def test_each_tidy_rule_reports_only_code_that_breaks_that_rule(tidy: ModuleType, rule: str, found: set[str]) -> None:
    """Imports for type checkers make no cycle, and inherited names are found."""
    texts = {
        "core/a.py": BROKEN,
        "core/b.py": SOUND,
        "tests/core/test_b.py": "from flintmq.core import b\n",
    }
    assert tidy.RULES[rule](tidy.Sources(texts)) == found


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("api.config.broker.role", True),
        ("self._config().broker.id", True),
        ("config.broker.is_slave", True),
        ("state.config.replicates", True),
        ("broker = api.config.broker; broker.id", True),
        ("other, broker = 1, state.config.broker; print(broker.role)", True),
        ("broker = api.config.broker; broker.name", False),
        ("api.role.broker_id, state.role.kind, member.id", False),
        ("'broker.role'", False),
    ],
)
def test_a_tidy_rule_reports_code_that_reads_the_role_of_the_broker_from_the_configuration(
    tidy: ModuleType, line: str, is_found: bool
) -> None:
    """The configuration has only the role at the start, which a promotion can change."""
    texts = dict.fromkeys(
        ["core/a.py", "programs/broker/assembly.py", "programs/supervisor/plan.py", "config/b.py"], line
    )
    assert tidy.roles_from_configuration(tidy.Sources(texts)) == ({"core/a.py"} if is_found else set())


def test_the_tidy_rule_against_import_cycles_finds_cycles_through_imports_inside_functions(tidy: ModuleType) -> None:
    """An import in a function hides a circle from Python, not from a reader."""
    circle = {
        "core/a.py": "from flintmq.core import b\n",
        "core/b.py": "def f():\n    from . import c\n",
        "core/c.py": "import flintmq.core.a\n",
    }
    assert tidy.import_cycles(tidy.Sources(circle | {"core/d.py": "from flintmq.core import a\n"})) == set(circle)


def test_a_module_counts_as_tested_if_a_test_imports_it_directly_or_indirectly(tidy: ModuleType) -> None:
    """A test may reach it through other modules, through fixtures, or by the name of its command."""
    texts = {
        "core/a.py": "from flintmq.core import b\n",
        "core/b.py": "",
        "core/c.py": "",
        "core/d.py": "",
        "core/e.py": "",
        "tests/core/conftest.py": "from flintmq.core.c import x\n",
        "tests/core/test_all.py": "from flintmq.core import a\nrun('d')\n",
    }
    sources = tidy.Sources(texts)
    reached = {path for path in sources.modules if tidy.tested_by.is_tested(sources, path, "tests/core/test_all.py")}
    assert reached == {"core/a.py", "core/b.py", "core/c.py", "core/d.py"}
    assert not tidy.tested_by.is_tested(sources, "core/b.py", "tests/core/test_gone.py")
    assert tidy.tested_by.find_test(sources, "core/b.py") == "tests/core/test_all.py"
    assert tidy.tested_by.find_test(sources, "core/e.py") is None
