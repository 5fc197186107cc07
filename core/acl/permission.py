"""What an account may do with a topic or a group (docs/internals/protocol.md, Access control)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.core.broker.topic_name import FORBIDDEN_TOPICS, RETRY_PREFIX, TRACE_TOPIC


class Permission(enum.Flag):
    """Owned: every flag counts. Needed: one of the flags will do, so that ``ANY`` is either."""

    DENY = 0
    PUB = enum.auto()
    SUB = enum.auto()
    ANY = PUB | SUB

    @classmethod
    def parse(cls, text: str | None) -> Permission:
        """Of the words in a configuration; nothing at all is DENY. Raises ``ConfigError``."""
        if text is None or not text.strip():
            return cls.DENY
        found = _WORDS.get(text.strip())
        if found is None:
            raise ConfigError(f"a permission is one of {', '.join(_WORDS)}, not '{text[:40]}'")
        return found

    def covers(self, needed: Permission) -> bool:
        """Whether who owns this may do what is needed."""
        return bool(self & needed)


_WORDS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.ANY,
    "SUB|PUB": Permission.ANY,
    "ANY": Permission.ANY,
}


INTERNAL_TOPICS: Final = FORBIDDEN_TOPICS | {TRACE_TOPIC}
"""Messages of every topic lie here for a while (delayed, half), or are told about (traces)."""


def parse_permissions(entries: Iterable[str]) -> dict[str, Permission]:
    """``name=PERM`` entries. Raises ``ConfigError`` for one of another form, or a name given twice."""
    found: dict[str, Permission] = {}
    for entry in entries:
        name, equals, word = entry.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"a permission is written name=PERM, not '{entry[:80]}'")
        if name in found:
            raise ConfigError(f"'{name[:80]}' has its permission twice")
        found[name] = Permission.parse(word)
    return found


@attrs.frozen
class Need:
    """One thing a request needs."""

    name: str
    """A topic or a consumer group."""
    permission: Permission
    """One of these flags."""
    is_group: bool = False
    is_internal: bool = False
    """True: the account's default does not cover it, only an entry of its own."""

    def __str__(self) -> str:
        return f"{'group' if self.is_group else 'topic'}:{self.name}"


def group_need(group: str) -> Need:
    """To act as a member of a group."""
    return Need(group, Permission.SUB, is_group=True)


def topic_need(topic: str, permission: Permission) -> Need:
    """For a topic; a retry topic belongs to its group, and whoever may act for the group may do both with it."""
    if topic.startswith(RETRY_PREFIX):
        return group_need(topic[len(RETRY_PREFIX) :])
    return Need(topic, permission, is_internal=topic in INTERNAL_TOPICS)
