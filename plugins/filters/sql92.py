"""Filters messages by an SQL92 expression over their properties (docs/internals/algorithms.md, Filters).

The grammar, parsed by recursive descent (docs/internals/protocol.md, Filter expressions)::

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary | [NOT] IN "(" text { "," text } ")" }
    unary       = "+" unary | "-" unary | NOT unary | primary
    primary     = text | integer | decimal | TRUE | FALSE | NULL | name | "(" or ")"

NOT has precedence over a comparison: ``NOT a > 1`` is refused, ``NOT (a > 1)`` is accepted. Like RocketMQ, the parser ignores
text after a complete expression, so ``a LIKE 'x'`` means ``a``. Only the first token of that text must be valid. Tokens are
therefore read one at a time, when the parser needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from flintmq.core.errors import RefusedError
from flintmq.core.limits import FILTER_EXPRESSION_MAX_BYTES, FILTER_MAX_DEPTH, FILTER_MAX_TERMS
from flintmq.plugins.filters.comparisons import (
    ORDER_SYMBOLS,
    Kind,
    Operand,
    UnfitError,
    between,
    condition,
    decimal_literal,
    equal,
    integer_literal,
    is_null,
    junction,
    literal,
    membership,
    negation,
    negative,
    not_between,
    ordered,
    property_of,
    refusal,
)

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
"""Reserved words of filter expressions. A reserved word may be in upper or lower case."""
END: Final = "the end"
NAME: Final = "a name"
TEXT: Final = "a text"
INTEGER: Final = "an integer"
DECIMAL: Final = "a decimal number"

# A comment that begins with ``--`` needs a line end: without a line end, ``--`` is two minus signs.
_SKIP: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*(?:[^*]|\*(?!/))*\*/)+")
_TOKEN: Final = re.compile(
    r"(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>[1-9][0-9]*[lL]?|0)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<symbol><>|>=|<=|[=<>(),+-])"
)
_KINDS: Final = {"decimal": DECIMAL, "integer": INTEGER}
_WORDS: Final = {"TRUE": (Kind.BOOLEAN, True), "FALSE": (Kind.BOOLEAN, False), "NULL": (Kind.NULL, None)}


class Sql92Filter:
    """Accepts a message if an SQL92 expression is true for the message's properties. Compiled once; read-only, any thread.

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED, with the position and what was expected there.
    """

    __slots__ = ("_program", "expression")

    needs_properties = True

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._program = parse(expression).program

    def matches_tags_code(self, tags_code: int) -> bool:
        """Return True for every tags code, because a hash of the tag says nothing about properties."""
        return True

    def matches_properties(self, properties: Mapping[str, str]) -> bool:
        """Return whether the expression is true for a message; False if the result is unknown or a property's text cannot be
        compared."""
        try:
            return self._program(properties) is True
        except UnfitError:
            return False


def sql92_filter(expression: str, codes: frozenset[int]) -> Sql92Filter:
    """Return a filter for an SQL92 expression; the tags codes are not used. This function is a
    :data:`~flintmq.core.kernel.ports.MessageFilterFactory`.
    """
    return Sql92Filter(expression)


def parse(expression: str) -> Operand:
    """Parse a whole expression, which must be a condition.

    Raises:
        RefusedError: SUBSCRIPTION_PARSE_FAILED, with the position and what was expected there.
    """
    length_bytes = len(expression.encode("utf-8", "surrogatepass"))
    if length_bytes > FILTER_EXPRESSION_MAX_BYTES:
        raise refusal(
            f"the expression is longer than {FILTER_EXPRESSION_MAX_BYTES} bytes",
            0,
            reason="filter.length",
            measured=f"{length_bytes} bytes",
        )
    return condition(_Parser(expression).disjunction())


class _Parser:
    def __init__(self, expression: str) -> None:
        self._tokens = Tokens(expression)
        self._depth = 0
        self._terms = 0

    def disjunction(self) -> Operand:
        parts = [self._conjunction()]
        while self._tokens.accept("OR"):
            parts.append(self._conjunction())
        return junction(parts, decisive=True)

    def _conjunction(self) -> Operand:
        parts = [self._equality()]
        while self._tokens.accept("AND"):
            parts.append(self._equality())
        return junction(parts, decisive=False)

    def _equality(self) -> Operand:
        tokens = self._tokens
        left = self._comparison()
        while True:
            if tokens.accept("="):
                left = equal(left, self._comparison())
            elif tokens.accept("<>"):
                left = negation(equal(left, self._comparison()), left.position)
            elif tokens.accept("IS"):
                wanted = not tokens.accept("NOT")
                tokens.expect("NULL")
                left = is_null(left) if wanted else negation(is_null(left), left.position)
            else:
                return left

    def _comparison(self) -> Operand:
        tokens = self._tokens
        left = self._unary()
        while True:
            kind = tokens.next.kind
            if kind in ORDER_SYMBOLS:
                tokens.take()
                left = ordered(kind, left, self._unary())
            elif kind in ("NOT", "BETWEEN", "IN"):
                left = self._range_or_list(left, wanted=not tokens.accept("NOT"))
            else:
                return left

    def _range_or_list(self, left: Operand, *, wanted: bool) -> Operand:
        tokens = self._tokens
        if tokens.accept("BETWEEN"):
            low = self._unary()
            tokens.expect("AND")
            return (between if wanted else not_between)(left, low, self._unary())
        if not tokens.accept("IN"):
            raise tokens.unexpected("BETWEEN or IN")
        tokens.expect("(")
        texts = [tokens.expect(TEXT).value]
        while tokens.accept(","):
            texts.append(tokens.expect(TEXT).value)
        tokens.expect(")")
        return membership(left, texts, wanted=wanted)

    def _unary(self) -> Operand:
        """Parse a primary, or a sign or NOT with its operand. Raise RefusedError if the expression is nested too deeply.

        Each sign, NOT or pair of parentheses adds one level of nesting."""
        self._depth += 1
        if self._depth > FILTER_MAX_DEPTH:
            raise refusal(
                f"the expression nests deeper than {FILTER_MAX_DEPTH}",
                self._tokens.next.position,
                reason="filter.depth",
                measured=str(self._depth),
            )
        made = self._unary_here()
        self._depth -= 1
        return made

    def _unary_here(self) -> Operand:
        tokens = self._tokens
        position = tokens.next.position
        if tokens.accept("+"):
            return self._unary()
        if tokens.accept("-"):
            return negative(self._unary(), position)
        if tokens.accept("NOT"):
            return negation(self._unary(), position)
        if tokens.accept("("):
            inner = self.disjunction()
            tokens.expect(")")
            return inner
        return self._term()

    def _term(self) -> Operand:
        token = self._tokens.next
        kind = token.kind
        if kind not in _WORDS and kind not in (NAME, TEXT, INTEGER, DECIMAL):
            raise self._tokens.unexpected("a value, a name, NOT or '('")
        self._terms += 1
        if self._terms > FILTER_MAX_TERMS:
            raise refusal(
                f"the expression has more than {FILTER_MAX_TERMS} names and values",
                token.position,
                reason="filter.terms",
            )
        self._tokens.take()
        if kind == NAME:
            return property_of(token.value, token.position)
        if kind == TEXT:
            return literal(Kind.STRING, token.value, token.position)
        if kind == INTEGER:
            return integer_literal(token.value, token.position)
        if kind == DECIMAL:
            return decimal_literal(token.value, token.position)
        return literal(*_WORDS[kind], token.position)


class Token(NamedTuple):
    """A token of an SQL92 expression, with the token's position."""

    kind: str
    """Kind of the token: a keyword in capitals, a symbol such as ``<=``, or a constant of this module such as :data:`NAME`."""
    value: str
    """Value of the token: a name, a text without its quotes, or the digits of a number."""
    position: int
    """Index of the token's first character in the filter expression."""

    @property
    def shown(self) -> str:
        """Return the text of this token for an error message. A long token is shortened."""
        return self.kind if self.kind == END else repr(self.value[:40])


class Tokens:
    """Reads the tokens of an SQL92 expression; :attr:`next` is the token that is read ahead."""

    def __init__(self, expression: str) -> None:
        self._text = expression
        self._at = 0
        self.next = self._cut()

    def take(self) -> Token:
        """Return the next token, and read the following one into :attr:`next`. Raises RefusedError if the following token is
        malformed."""
        taken = self.next
        self.next = self._cut()
        return taken

    def accept(self, kind: str) -> bool:
        """Take the next token if it has a given kind; return whether it was taken."""
        if self.next.kind != kind:
            return False
        self.next = self._cut()
        return True

    def expect(self, kind: str) -> Token:
        """Return the next token, which must have a given kind. Raises RefusedError if the next token has another kind."""
        if self.next.kind != kind:
            raise self.unexpected(kind if kind in (TEXT, NAME) else f"'{kind}'")
        return self.take()

    def unexpected(self, wanted: str) -> RefusedError:
        """Return the error for a next token that the grammar of expressions does not allow at its position."""
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
