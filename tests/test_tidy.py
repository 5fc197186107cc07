"""The rules of form that CONTRIBUTING.md names are tests: size, imports, words, pointers, and that each module has a test.

What breaks a rule for now stands in ``tests/not_yet_tidy.toml``. That list may only shrink: an entry that holds by now is an
error here, and ``python tools/tidy.py --shrink`` removes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import tested_by  # noqa: E402
import tidy  # noqa: E402
from sources import Sources  # noqa: E402

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def sources() -> Sources:
    """Return the checkout's files, read once."""
    return Sources.of_checkout(ROOT)


@pytest.mark.parametrize("rule", tidy.RULES)
def test_the_listed_exceptions_to_each_source_code_rule_equal_the_actual_violations(
    sources: Sources, rule: str
) -> None:
    """A rule that no test checks is soon broken."""
    found, listed = tidy.RULES[rule](sources), tidy.read_exceptions().get(rule, set())
    assert not found - listed, f"these break the rule {rule}: mend them"
    assert not listed - found, f"these hold {rule} by now: python tools/tidy.py --shrink"


def test_every_list_of_exemptions_is_named_after_an_existing_source_code_rule() -> None:
    """A list under a misspelt name would excuse nothing, and nobody would see it."""
    assert tidy.read_exceptions().keys() == tidy.RULES.keys()


def test_the_list_of_modules_without_a_test_file_has_no_outdated_entries(
    sources: Sources,
) -> None:
    """An entry for a module that has moved, or that has a mirrored test by now, misleads."""
    assert tested_by.read_table().keys() <= set(tested_by.without_mirror(sources)), "python tools/tidy.py --shrink"
