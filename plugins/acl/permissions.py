"""Permissions as account files write them (docs/internals/protocol.md, Access control)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flintmq.config.errors import ConfigError
from flintmq.core.kernel.ports.access import Permission

_WORDS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.ANY,
    "SUB|PUB": Permission.ANY,
    "ANY": Permission.ANY,
}


def parse_permission(text: str | None) -> Permission:
    """Return the permission that a word of a configuration stands for; a missing or blank one is DENY.

    Raises:
        ConfigError: the word is unknown.
    """
    if text is None or not text.strip():
        return Permission.DENY
    found = _WORDS.get(text.strip())
    if found is None:
        raise ConfigError(f"a permission is one of {', '.join(_WORDS)}, not '{text[:40]}'")
    return found


def parse_permissions(entries: Iterable[str]) -> dict[str, Permission]:
    """Return the permissions of ``name=PERM`` entries by name.

    Raises:
        ConfigError: an entry has another form, or a name is given twice.
    """
    found: dict[str, Permission] = {}
    for entry in entries:
        name, equals, word = entry.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"a permission is written name=PERM, not '{entry[:80]}'")
        if name in found:
            raise ConfigError(f"'{name[:80]}' has its permission twice")
        found[name] = parse_permission(word)
    return found
