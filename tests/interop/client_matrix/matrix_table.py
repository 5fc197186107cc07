"""The table of docs/compatibility.md, made of the features that the tests of this folder name."""

from __future__ import annotations

from types import ModuleType

from . import test_access, test_by_hand, test_consuming, test_conveniences, test_sending
from .sites import SITES, Feature

MODULES: tuple[ModuleType, ...] = (
    test_sending,
    test_consuming,
    test_by_hand,
    test_access,
    test_conveniences,
)


def features() -> list[Feature]:
    """Return every feature, in the order of the tests."""
    tests = (test for module in MODULES for test in vars(module).values() if hasattr(test, "feature"))
    return [test.feature for test in tests]


def table() -> str:
    """Return the table as Markdown."""
    lines = [f"| | feature | {' | '.join(SITES.values())} |", f"|---|---|{'---|' * len(SITES)}"]
    area = ""
    for feature in features():
        cells = [feature.differs.get(site, "yes") for site in SITES]
        lines.append(f"| {feature.area if feature.area != area else ''} | {feature.name} | {' | '.join(cells)} |")
        area = feature.area
    return "\n".join(lines)
