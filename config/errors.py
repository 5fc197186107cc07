"""The error of this package: it names the place of the offending text and the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.define
class ConfigError(ValueError):
    """A setting is unknown, malformed, out of range, given twice, or may not be changed.

    ``str()`` reads like ``broker.yaml:12: unknown key 'flush.stratgy'; did you mean 'flush.strategy'?``
    """

    message: str
    """What is wrong."""
    key: str | None = None
    """The dotted key concerned; None when the source as a whole is at fault."""
    file: str | None = None
    """Where it was written: a path, ``environment NAME`` or ``command line``; None for a value given in code."""
    line: int | None = None
    """1-based line in ``file``."""
    suggestion: str | None = None
    """The name that was probably meant."""

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}; did you mean '{self.suggestion}'?" if self.suggestion else text


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name in ``known`` closest to ``word``, ignoring case; None when none is close."""
    import difflib  # costs a start more than the errors of most

    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word[:200].casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def hint(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``; did you mean 'x'?`` where a known name is near; else another text."""
    close = nearest(word, known)
    return f"; did you mean '{close}'?" if close else otherwise
