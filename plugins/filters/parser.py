"""Parses filter expressions by recursive descent (docs/internals/protocol.md, Filter expressions).

::

    or          = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary | [NOT] IN "(" text { "," text } ")" }
    unary       = "+" unary | "-" unary | NOT unary | primary
    primary     = text | integer | decimal | TRUE | FALSE | NULL | name | "(" or ")"

NOT binds tighter than a comparison: ``NOT a > 1`` is refused, ``NOT (a > 1)`` is meant. What follows a complete expression
is ignored, as RocketMQ does, so ``a LIKE 'x'`` is ``a``; only the first token of it must be one.
"""

from __future__ import annotations

from typing import Final

from flintmq.core.limits import FILTER_EXPRESSION_MAX_BYTES, FILTER_MAX_DEPTH, FILTER_MAX_TERMS
from flintmq.plugins.filters.comparisons import (
    ORDER_SYMBOLS,
    between,
    condition,
    conjunction,
    disjunction,
    equal,
    is_null,
    membership,
    negation,
    negative,
    not_between,
    ordered,
)
from flintmq.plugins.filters.operands import Kind, Operand, decimal_literal, integer_literal, literal, property_of
from flintmq.plugins.filters.tokens import DECIMAL, INTEGER, NAME, TEXT, Tokens, refusal

_WORDS: Final = {"TRUE": (Kind.BOOLEAN, True), "FALSE": (Kind.BOOLEAN, False), "NULL": (Kind.NULL, None)}


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
        return disjunction(parts) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> Operand:
        parts = [self._equality()]
        while self._tokens.accept("AND"):
            parts.append(self._equality())
        return conjunction(parts) if len(parts) > 1 else parts[0]

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
        """Parse one level deeper; signs, NOT and parentheses nest an expression."""
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
