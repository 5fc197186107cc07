"""Converts accounts from the configuration to the form against which requests are checked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.system_topics import FORBIDDEN_TOPICS, TRACE_TOPIC
from flintmq.config.secret import Secret
from flintmq.config.sections.models import AclAccount
from flintmq.core.kernel.ports.access import Need, Permission

INTERNAL_TOPICS: Final = FORBIDDEN_TOPICS | {TRACE_TOPIC}
"""System topics that an account's default permission does not cover. These topics hold messages or message traces of all other
topics."""
_WORDS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.ANY,
    "SUB|PUB": Permission.ANY,
    "ANY": Permission.ANY,
}
_Span = tuple[int, int]
_Pattern = tuple[tuple[_Span, ...], ...]
"""Address pattern: the allowed range of each segment of an address, both bounds included. IPv4 addresses have 4 segments and
IPv6 addresses have 8. A pattern without segments matches all addresses."""
_ANY_GROUP: Final = ((0, 0xFFFF),)
_V4_NUMBER: Final = re.compile(r"[0-9]{1,3}")
_V6_NUMBER: Final = re.compile(r"[0-9a-fA-F]{1,4}")
_V4_SEGMENTS: Final = 4
_V6_SEGMENTS: Final = 8
_SEPARATOR_OR_BRACE: Final = re.compile(r"[,;{}]")
_PATTERNS_MAX: Final = 1_000
"""Maximum number of address patterns in one list, because every request is compared with all patterns of the list."""


@attrs.frozen
class Account:
    """An account: the secret, the addresses and the permissions of one access key. Immutable."""

    access_key: str
    secret: Secret = attrs.field(repr=False)
    white: AddressPatterns
    """Address patterns of the account. With ``acl.compat: safe``, a request that names the account is refused if the account
    has patterns and the client's address matches none of these patterns. With ``acl.compat: strict``, requests that name the
    account and come from an address that matches a pattern need neither a signature nor permissions."""
    admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]

    @classmethod
    def of(cls, written: AclAccount) -> Account:
        """Return an account made from an entry of the configuration. Raises ``ConfigError``, which names the account."""
        try:
            return cls(
                access_key=written.access_key,
                secret=written.secret_key,
                white=parse_addresses(written.white_remote_address),
                admin=bool(written.admin),
                default_topic=parse_permission(written.default_topic_perm),
                default_group=parse_permission(written.default_group_perm),
                topics=parse_permissions(written.topic_perms),
                groups=parse_permissions(written.group_perms),
            )
        except ConfigError as error:
            raise ConfigError(f"account {written.access_key}: {error.message}", key="acl.accounts") from error

    def first_lacking(self, needs: Iterable[Need]) -> Need | None:
        """Return the first right that a request needs and this account lacks; None if the account has all needed rights. An
        administrator has every right."""
        if self.admin:
            return None
        for need in needs:
            table, default = (self.groups, self.default_group) if need.is_group else (self.topics, self.default_topic)
            is_internal = not need.is_group and need.name in INTERNAL_TOPICS
            owned = table.get(need.name, Permission.DENY if is_internal else default)
            if not owned.covers(need.permission):
                return need
        return None


def parse_permission(text: str | None) -> Permission:
    """Return the permission that a word of the configuration names. A missing or blank word means DENY.

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
    """Return the permissions in ``name=PERM`` entries, keyed by name.

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


@attrs.frozen
class AddressPatterns:
    """A list of address patterns. An address matches the list if it matches one of the patterns."""

    patterns: tuple[_Pattern, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def matches(self, host: str) -> bool:
        """Return whether a pattern of this list matches a host. The peer of a Unix socket has no address and matches only
        ``*``."""
        segments = address_segments(host)
        return any(_matches(pattern, segments) for pattern in self.patterns)


def _matches(pattern: _Pattern, segments: Sequence[int]) -> bool:
    if not pattern:
        return True
    return len(segments) == len(pattern) and all(
        any(low <= value <= high for low, high in spans) for value, spans in zip(segments, pattern, strict=True)
    )


def address_segments(host: str) -> tuple[int, ...]:
    """Return the segments of an address: 4 for IPv4 and IPv4-mapped IPv6, 8 for IPv6, none for text that is not an address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            packed = address.packed
            return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))
        address = address.ipv4_mapped
    return tuple(address.packed)


def parse_addresses(text: str | None) -> AddressPatterns:
    """Return the address patterns in a text; blank text has none. Raises ``ConfigError`` for a malformed pattern."""
    parts = [part for part in _split(text or "") if part]
    if len(parts) > _PATTERNS_MAX:
        raise ConfigError(f"{len(parts)} patterns of addresses; at most {_PATTERNS_MAX}")
    return AddressPatterns(tuple(_parse_pattern(part) for part in parts))


def _split(text: str) -> Iterator[str]:
    """Split a text with address patterns at commas and semicolons outside of braces."""
    start, inside = 0, False
    for match in _SEPARATOR_OR_BRACE.finditer(text):
        if match.group() in "{}":
            inside = match.group() == "{"
        elif not inside:
            yield text[start : match.start()].strip()
            start = match.end()
    yield text[start:].strip()


def _parse_pattern(text: str) -> _Pattern:
    if text == "*":
        return ()
    try:
        if ":" in text:
            found = _v6(text)
        else:
            found = tuple(_segment(part, _V4_NUMBER, 255) for part in text.split("."))
            if len(found) != _V4_SEGMENTS:
                raise ValueError
    except ValueError:
        raise ConfigError(
            f"'{text[:80]}' is not a pattern of addresses such as 10.0.0.*, 10.0.0.1-9 or 10.0.0.{{1,2}}"
        ) from None
    return () if text == "*.*.*.*" or all(spans == _ANY_GROUP for spans in found) else found


def _v6(text: str) -> _Pattern:
    head, gap, tail = text.partition("::")
    before, after = (
        [_segment(part, _V6_NUMBER, 0xFFFF) for part in side.split(":")] if side else [] for side in (head, tail)
    )
    missing = _V6_SEGMENTS - len(before) - len(after)
    if (not gap and missing) or (gap and missing < 1):
        raise ValueError
    return (*before, *([((0, 0),)] * missing), *after)


def _segment(text: str, number: re.Pattern[str], maximum: int) -> tuple[_Span, ...]:
    """Return the ranges of numbers in one segment of an address pattern: ``*``, a number, a range, or a list of numbers and
    ranges in braces.

    Raises ValueError for other text.
    """
    if text == "*":
        return ((0, maximum),)
    if text.startswith("{") and text.endswith("}"):
        return tuple(_span(part.strip(), number, maximum) for part in text[1:-1].split(","))
    return (_span(text, number, maximum),)


def _span(text: str, number: re.Pattern[str], maximum: int) -> _Span:
    low_text, dash, high_text = text.partition("-")
    ends = [low_text, high_text] if dash else [low_text, low_text]
    if not all(map(number.fullmatch, ends)):
        raise ValueError
    low, high = (int(end, 10 if number is _V4_NUMBER else 16) for end in ends)
    if not low <= high <= maximum:
        raise ValueError
    return low, high
