"""Sizes and durations as people write them: ``64MiB``, ``10MB``, ``500ms``, ``2d``; a bare number is in the field's unit."""

from __future__ import annotations

import re
from typing import Final

from flintmq.config.errors import ConfigError
from flintmq.config.fields import Unit

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
DAY_MS: Final = 86_400_000

SIZE_UNITS: Final = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
"""Bytes in each unit of size, in lower case."""

DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds in each unit of time."""

_FIELD_UNITS_MS: Final = {"ms": 1, "s": 1000, "hours": 3_600_000}
_INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
_QUANTITY = re.compile(r"(\d+(?:_\d+)*)[ \t]*([a-zA-Z]*)")
_TEXT_MAX = 40


def parse_integer(text: str) -> int:
    """Read ``42``, ``-1`` or ``6_000_000``.

    Raises:
        ConfigError: it is something else.
    """
    text = text.strip()
    if len(text) > _TEXT_MAX or _INTEGER.fullmatch(text) is None or not text.isascii():
        raise ConfigError(f"must be a whole number, not '{text[:80]}'")
    return int(text)


def parse_size(text: str) -> int:
    """Read a size in bytes: ``4096``, ``64KiB`` (1024), ``10MB`` (1000). Case does not count.

    Raises:
        ConfigError: it is something else.
    """
    number, unit = _quantity(text)
    factor = SIZE_UNITS.get(unit.lower() or "b")
    if number is None or factor is None:
        raise ConfigError(f"must be a size such as 4096, 64KiB or 10MB, not '{text[:80]}'")
    return number * factor


def parse_duration(text: str, unit: Unit = "ms", *, plain: Unit | None = None) -> int:
    """Read a duration: ``500ms``, ``5s``, ``10m``, ``1h``, ``2d``, or a plain integer.

    Args:
        text: as written.
        unit: what is returned: ``ms``, ``s`` or ``hours``.
        plain: what a plain integer means; ``unit`` when None.

    Raises:
        ConfigError: it is something else, or no whole number of ``unit``.
    """
    number, suffix = _quantity(text)
    factor = DURATION_UNITS_MS.get(suffix) if suffix else _FIELD_UNITS_MS.get(plain or unit)
    if number is None or factor is None:
        raise ConfigError(f"must be a duration such as 500ms, 5s, 10m, 1h or 2d, not '{text[:80]}'")
    value, rest = divmod(number * factor, _FIELD_UNITS_MS[unit])
    if rest:
        raise ConfigError(f"must be a whole number of {unit}, not '{text[:80]}'")
    return value


def parse_quantity(text: str, unit: Unit | None, *, plain: Unit | None = None) -> int:
    """Read an integer of the given unit: a size, a duration, or a bare number when ``unit`` is None.

    Raises:
        ConfigError: it is something else.
    """
    if unit is None:
        return parse_integer(text)
    return parse_size(text) if unit == "bytes" else parse_duration(text, unit, plain=plain)


def format_size(value_bytes: int) -> str:
    """Return the shortest exact form: ``64MiB``, ``6000000``."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        factor = SIZE_UNITS[name.lower()]
        if value_bytes and value_bytes % factor == 0:
            return f"{value_bytes // factor}{name}"
    return str(value_bytes)


def size_text(count_bytes: float) -> str:
    """Return a number of bytes for people, in the unit that fits: ``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count_bytes) < 1024:
            return f"{count_bytes:.0f} B" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def format_duration(value: int, unit: Unit = "ms") -> str:
    """Return the shortest exact form of a duration given in ``unit``: ``5s``, ``1500ms``, ``3d``."""
    value_ms = value * _FIELD_UNITS_MS[unit]
    for name in ("d", "h", "m", "s"):
        factor = DURATION_UNITS_MS[name]
        if value_ms and value_ms % factor == 0:
            return f"{value_ms // factor}{name}"
    return f"{value_ms}ms" if value_ms else "0"


def format_quantity(value: int, unit: Unit | None) -> str:
    """Return the inverse of :func:`parse_quantity`."""
    if unit is None:
        return str(value)
    return format_size(value) if unit == "bytes" else format_duration(value, unit)


def in_unit(value: int, unit: Unit | None, wanted: Unit | None) -> int:
    """Return a quantity in another unit of time, rounded up: a limit of 1,500 ms is not 1 s."""
    if wanted is None or unit is None or wanted == unit:
        return value
    return -(-value * _FIELD_UNITS_MS[unit] // _FIELD_UNITS_MS[wanted])


def _quantity(text: str) -> tuple[int | None, str]:
    text = text.strip()
    found = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_MAX and text.isascii() else None
    return (int(found[1]), found[2]) if found else (None, "")
