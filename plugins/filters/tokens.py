"""Tokens of a filter expression (docs/internals/protocol.md, Filter expressions).

They are cut one at a time, when the parser asks: RocketMQ never looks further than one token behind a complete
expression, so what follows there may be anything.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
"""Reserved in any case."""
END: Final = "the end"
NAME: Final = "a name"
TEXT: Final = "a text"
INTEGER: Final = "an integer"
DECIMAL: Final = "a decimal number"

# A line comment needs its end of line: without one, ``--`` is two minus signs.
_SKIP: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*(?:[^*]|\*(?!/))*\*/)+")
_TOKEN: Final = re.compile(
    r"(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>[1-9][0-9]*[lL]?|0)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<symbol><>|>=|<=|[=<>(),+-])"
)
_KINDS: Final = {"decimal": DECIMAL, "integer": INTEGER}


class Token(NamedTuple):
    """One token and where it begins."""

    kind: str
    """A keyword in capitals, a symbol such as ``<=``, or one of the constants of this module."""
    value: str
    """The name as written, the text without its quotes, the number's digits."""
    position: int
    """Index of its first character."""

    @property
    def shown(self) -> str:
        """For an error message: short, whatever the client sent."""
        return self.kind if self.kind == END else repr(self.value[:40])


def refusal(message: str, position: int, *, reason: str = "filter.syntax", measured: str = "") -> RefusedError:
    """The refusal of an expression that cannot be served: SUBSCRIPTION_PARSE_FAILED, and where."""
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: at character {position + 1}: {message}",
        reason=reason,
        measured=measured,
    )


class Tokens:
    """The tokens of one expression with one token of look-ahead in :attr:`next`."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self.next = self._cut()

    def take(self) -> Token:
        """Return the next token; the one after it becomes :attr:`next`. Raises RefusedError where that one is malformed."""
        taken = self.next
        self.next = self._cut()
        return taken

    def accept(self, kind: str) -> bool:
        """Takes the next token if it is of a kind."""
        if self.next.kind != kind:
            return False
        self.next = self._cut()
        return True

    def expect(self, kind: str) -> Token:
        """Takes the next token, which must be of a kind. Raises RefusedError otherwise."""
        if self.next.kind != kind:
            raise self.unexpected(kind if kind in (TEXT, NAME) else f"'{kind}'")
        return self.take()

    def unexpected(self, wanted: str) -> RefusedError:
        """The refusal of the next token."""
        return refusal(f"expected {wanted}, found {self.next.shown}", self.next.position)

    def _cut(self) -> Token:
        text = self._text
        skipped = _SKIP.match(text, self._at)
        at = skipped.end() if skipped is not None else self._at
        if at == len(text):
            self._at = at
            return Token(END, "", at)
        match = _TOKEN.match(text, at)
        if match is None:
            raise self._no_token(at)
        self._at = match.end()
        value = match.group()
        group = match.lastgroup
        if group == "name":
            upper = value.upper()
            return Token(upper if upper in KEYWORDS else NAME, value, at)
        if group == "text":
            return Token(TEXT, value[1:-1].replace("''", "'"), at)
        if group == "symbol":
            return Token(value, value, at)
        return Token(_KINDS[str(group)], value, at)

    def _no_token(self, at: int) -> RefusedError:
        start = self._text[at]
        if start == "'":
            return refusal("the text has no closing quote", at)
        if self._text.startswith("/*", at):
            return refusal("the comment has no end", at)
        return refusal(f"{start!r} begins nothing that is known here", at)
