"""Keys and passwords of the configuration, which are never shown."""

from __future__ import annotations

from typing import Final, NoReturn

SHOWN: Final = "***"
"""Text that ``repr`` and ``str`` return instead of a secret."""


class Secret:
    """A secret text. Immutable; compared in constant time; prints, formats and logs as ``***``; cannot be pickled."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text. The caller must not log, print or pass on the text."""
        return self._text

    def __len__(self) -> int:
        return len(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # hmac is imported late, because it loads OpenSSL, which only secrets need.

        return hmac.compare_digest(self._text.encode("utf-8", "replace"), other._text.encode("utf-8", "replace"))

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return SHOWN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")
