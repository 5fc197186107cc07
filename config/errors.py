"""Defines the error for a wrong setting. The error names the setting's place and the most similar known name."""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.define
class ConfigError(ValueError):
    """A setting is unknown, malformed, out of range, given twice, or may not be changed.

    ``str()`` reads like ``broker.yaml:12: unknown key 'flush.stratgy'; did you mean 'flush.strategy'?``
    """

    message: str
    """Description of the error, without the place of the wrong setting."""
    key: str | None = None
    """Dotted key of the wrong setting; None if the error concerns a whole file, or the environment as a whole."""
    file: str | None = None
    """Source of the wrong setting: a path, ``environment NAME`` or ``command line``; None for a value given in code."""
    line: int | None = None
    """Line of the wrong setting in ``file``, counted from 1; None if the line is not known."""
    suggestion: str | None = None
    """Known name that is most similar to the unknown name; None if no known name is similar."""

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}; did you mean '{self.suggestion}'?" if self.suggestion else text


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name in ``known`` that is most similar to ``word``, ignoring case; None if no name reaches the similarity
    ``cutoff``."""
    # difflib is imported late, because its import is slow, and only an unknown name needs difflib.
    import difflib

    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word[:200].casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def hint(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``; did you mean 'x'?`` with the known name that is similar to ``word``. If no known name is similar, return the
    argument ``otherwise``."""
    close = nearest(word, known)
    return f"; did you mean '{close}'?" if close else otherwise
