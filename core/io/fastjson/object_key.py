"""An object that is the key of a map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class ObjectKey(Mapping[str, Any]):
    """A read-only mapping that can be hashed. Two are equal when they have the same members."""

    __slots__ = ("_hash", "_members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)
        self._hash = hash(frozenset((name, _hashable(value)) for name, value in members.items()))

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ObjectKey):
            return self._members == other._members
        return NotImplemented

    def __repr__(self) -> str:
        return f"ObjectKey({self._members!r})"


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return frozenset((name, _hashable(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    return value
