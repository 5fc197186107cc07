"""Operators look an alarm up by its id: each has a section that says what it means, and names settings that exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.config.loading.schema import KEYS

ROOT = Path(str(flintmq.__file__)).resolve().parent
ID = re.compile(r"[a-z_]+\.[a-z_]+")


@pytest.fixture(scope="module")
def tool() -> Any:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import find_alarms
    finally:
        sys.path.remove(str(ROOT / "tools"))
    return find_alarms


def test_the_alarms_page_has_exactly_one_section_for_each_alarm(tool: Any) -> None:
    found = tool.alarms(ROOT)
    assert all(ID.fullmatch(one.id) for one in found), [one for one in found if not ID.fullmatch(one.id)]
    described = tool.sections((ROOT / "docs" / "alarms.md").read_text())
    assert len(described) == len(set(described))
    assert {one.id for one in found} == set(described)


def test_each_section_of_the_alarms_page_explains_how_the_alarm_is_measured_and_what_to_do() -> None:
    """An operator who is called at night has no time to read the code."""
    _, *texts = (ROOT / "docs" / "alarms.md").read_text().split("\n### ")
    for text in texts:
        if not text.startswith("`alarms.more`"):
            assert "**Measured**" in text, text
            assert re.search(r"\*(Critical|Warning)", text), text
        assert "**Do:**" in text, text


def test_each_setting_mentioned_by_an_alarm_exists(tool: Any) -> None:
    known = {*KEYS, "dispatchers"}
    named = {key for one in tool.alarms(ROOT) for key in one.key.split(", ") if key}
    assert named - known == set()


def test_each_setting_mentioned_on_the_alarms_page_exists(tool: Any) -> None:
    """A wrong key costs an operator time while an alarm is active."""
    page = (ROOT / "docs" / "alarms.md").read_text()
    sections = {key.partition(".")[0] for key in KEYS}
    named = {name for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)[`:]", page) if name.partition(".")[0] in sections}
    ids = {*tool.sections(page), "store.slow"}
    assert "alarms.lag_messages" in named
    assert named - ids - set(KEYS) == set()
