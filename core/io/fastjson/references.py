"""References within one text: ``{"$ref":"$.path"}`` stands for another value of the same text."""

from __future__ import annotations

import re
from typing import Any, Final

from flintmq.core.errors import JsonSyntaxError
from flintmq.core.limits import JSON_MAX_DEPTH

_CONTAINERS: Final = (dict, list)
_REFERENCE_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[['\"]([^'\"]*)['\"]\]")


class References:
    """Replaces every ``{"$ref":"$.path"}`` by the value at that path in the same text; a path to nowhere becomes None.

    A value that is named several times is one object in the result, but its readers copy it: a text of 16 KB could stand for
    millions of values. All named values together may therefore have as many values as the text has characters.
    """

    def __init__(self, root: Any, text: str) -> None:
        self._root = root
        self._left = len(text)
        self._sizes: dict[int, int] = {}

    def resolved(self) -> Any:
        """Return the value of the text with all references replaced.

        Raises:
            JsonSyntaxError: they nest too deep, or name more than the text has room for.
        """
        return self._resolve(self._root, 0)

    def _resolve(self, value: Any, depth: int) -> Any:
        if depth > JSON_MAX_DEPTH:
            raise JsonSyntaxError(f"references nest deeper than {JSON_MAX_DEPTH}")
        below = depth + 1
        if type(value) is dict:
            path = value.get("$ref")
            if len(value) == 1 and isinstance(path, str):
                return self._named(path)
            return {
                key: self._resolve(member, below) if type(member) in _CONTAINERS else member
                for key, member in value.items()
            }
        if type(value) is list:
            return [self._resolve(item, below) if type(item) in _CONTAINERS else item for item in value]
        return value

    def _named(self, path: str) -> Any:
        target = _follow(path, self._root)
        if target is self._root:
            return None
        self._left -= self._size(target, 0)
        if self._left < 0:
            raise JsonSyntaxError("references name more than the text has room for")
        return target

    def _size(self, value: Any, depth: int) -> int:
        """Return how many values one consists of, itself included."""
        if type(value) not in _CONTAINERS:
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            if depth > JSON_MAX_DEPTH:
                raise JsonSyntaxError(f"references nest deeper than {JSON_MAX_DEPTH}")
            known = 1 + len(value)
            for member in value.values() if type(value) is dict else value:
                if type(member) in _CONTAINERS:
                    known += self._size(member, depth + 1) - 1
            self._sizes[id(value)] = known
        return known


def _follow(path: str, root: Any) -> Any:
    value = root
    for match in _REFERENCE_STEP.finditer(path):
        name, index, quoted = match.groups()
        if index is not None and isinstance(value, list):
            value = value[int(index)] if int(index) < len(value) else None
        elif isinstance(value, dict):
            key = name or quoted or index
            value = value.get(key, value.get(int(key)) if key.isdigit() else None)
        else:
            return None
    return value
