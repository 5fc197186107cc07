"""Numbers in properties and header fields, as Java reads them, because Java clients and brokers read the same ones.

Python's ``int()`` takes blanks, underscores and digits beyond 16 bits, which Java refuses, and has a limit of digits, which
Java has not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_USUAL_MAX_CHARACTERS: Final = 40
"""Longer ones have leading zeros, or are too large."""


def parse_int(text: str) -> int:
    """Return what ``Integer.parseInt`` does: a sign or none, then decimal digits of any script. Raises ``ValueError``."""
    return _parsed(text, INT_MAX)


def parse_long(text: str) -> int:
    """Return what ``Long.parseLong`` does; see :func:`parse_int`."""
    return _parsed(text, LONG_MAX)


def number_or(text: str | None, default: int, parse: Callable[[str], int] = parse_int) -> int:
    """Return a number, or the default where there is no text or Java reads no number in it."""
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError:
        return default


def _parsed(text: str, largest: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Java looks at 16 bits at a time: a digit beyond is two characters to it, and none of them a digit.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError(f"{text[:_USUAL_MAX_CHARACTERS]!r} is no number")
    if len(digits) > _USUAL_MAX_CHARACTERS:
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits).lstrip("0")[:_USUAL_MAX_CHARACTERS] or "0"
    value = -int(digits) if text[0] == "-" else int(digits)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text[:_USUAL_MAX_CHARACTERS]!r} is beyond {-largest - 1} to {largest}")
    return value
