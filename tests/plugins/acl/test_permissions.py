"""A word that is misread opens a topic, or closes it: every form of a permission, and what it covers."""

from __future__ import annotations

import pytest

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.ports.access import Permission
from flintmq.plugins.acl.permissions import parse_permission, parse_permissions


@pytest.mark.parametrize(
    ("text", "found"),
    [(None, Permission.DENY), (" ", Permission.DENY), ("DENY", Permission.DENY), (" PUB ", Permission.PUB),
     ("SUB", Permission.SUB), ("PUB|SUB", Permission.ANY), ("SUB|PUB", Permission.ANY), ("ANY", Permission.ANY)],
)  # fmt: skip
def test_a_word_is_a_permission(text: str | None, found: Permission) -> None:
    """RocketMQ denies where it finds nothing."""
    assert parse_permission(text) is found


@pytest.mark.parametrize("text", ["pub", "ALL", "PUB,SUB", "PUB|PUB"])
def test_another_word_is_refused(text: str) -> None:
    """RocketMQ takes it for DENY in silence; here the operator learns of the mistake."""
    with pytest.raises(ConfigError, match="a permission is one of"):
        parse_permission(text)


def test_entries_are_read_by_name() -> None:
    """As account files write them."""
    assert parse_permissions(["Orders=PUB", " Bills = SUB "]) == {"Orders": Permission.PUB, "Bills": Permission.SUB}


@pytest.mark.parametrize(
    ("entries", "reason"), [(["Orders"], "name=PERM"), (["=PUB"], "name=PERM"), (["a=PUB", "a=SUB"], "twice")]
)
def test_an_entry_of_another_form_is_refused(entries: list[str], reason: str) -> None:
    """Of two entries for one name nobody could tell which counts."""
    with pytest.raises(ConfigError, match=reason):
        parse_permissions(entries)
