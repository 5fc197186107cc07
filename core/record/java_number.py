"""Parses numbers in properties and header fields exactly as Java does, because Java clients and brokers read these numbers too.

Unlike Java, Python's ``int()`` accepts blanks, underscores and digits beyond 16 bits, and limits the number of digits.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_USUAL_MAX_CHARACTERS: Final = 40
"""Maximum number of digits that are converted to a number. If a text has more digits, its leading zeros are removed before the
conversion. If the text then still has more digits, the number is too large for 64 bits in any case, and only its first digits
are converted. Error messages quote at most this number of characters."""


def parse_int(text: str) -> int:
    """Return the 32-bit integer in a text, parsed as Java's ``Integer.parseInt`` does: an optional sign, then decimal digits of
    any script.

    Raises ``ValueError`` for any other text.
    """
    return _parsed(text, INT_MAX)


def parse_long(text: str) -> int:
    """Return the 64-bit integer in a text, parsed as Java's ``Long.parseLong`` does; see :func:`parse_int`."""
    return _parsed(text, LONG_MAX)


def number_or(text: str | None, default: int, parse: Callable[[str], int] = parse_int) -> int:
    """Return the number in a text, or ``default`` if the text is None or Java would not accept it as a number."""
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError:
        return default


def _parsed(text: str, largest: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # Java examines 16-bit units, so Java rejects a digit above U+FFFF, which consists of two units that are not digits.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        raise ValueError(f"{text[:_USUAL_MAX_CHARACTERS]!r} is not a whole number")
    if len(digits) > _USUAL_MAX_CHARACTERS:
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits).lstrip("0")[:_USUAL_MAX_CHARACTERS] or "0"
    value = -int(digits) if text[0] == "-" else int(digits)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text[:_USUAL_MAX_CHARACTERS]!r} is not in the range from {-largest - 1} to {largest}")
    return value
