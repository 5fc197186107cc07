"""Reads and writes sizes and durations such as ``64MiB``, ``10MB``, ``500ms`` and ``2d``.

A number without a unit is in the unit of its field.
"""

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
"""Numbers of bytes of the units of size, keyed by the unit's name in lower case."""

DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Numbers of milliseconds of the units of time, keyed by the unit's name."""

_FIELD_UNITS_MS: Final = {"ms": 1, "s": 1000, "hours": 3_600_000}
_INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
_QUANTITY = re.compile(r"(\d+(?:_\d+)*)[ \t]*([a-zA-Z]*)")
_TEXT_MAX = 40


def parse_integer(text: str) -> int:
    """Return the integer that a text such as ``42``, ``-1`` or ``6_000_000`` names.

    Raises:
        ConfigError: the text is not an integer.
    """
    text = text.strip()
    if len(text) > _TEXT_MAX or _INTEGER.fullmatch(text) is None or not text.isascii():
        raise ConfigError(f"must be a whole number, not '{text[:80]}'")
    return int(text)


def parse_size(text: str) -> int:
    """Return the number of bytes that a text such as ``4096``, ``64KiB`` (1024) or ``10MB`` (1000) names. Case is ignored.

    Raises:
        ConfigError: the text is not a size.
    """
    number, unit = _quantity(text)
    factor = SIZE_UNITS.get(unit.lower() or "b")
    if number is None or factor is None:
        raise ConfigError(f"must be a size such as 4096, 64KiB or 10MB, not '{text[:80]}'")
    return number * factor


def parse_duration(text: str, unit: Unit = "ms", *, plain: Unit | None = None) -> int:
    """Return the duration that a text such as ``500ms``, ``5s``, ``10m``, ``1h``, ``2d`` or a plain integer names.

    Args:
        text: the text.
        unit: the unit of the result: ``ms``, ``s`` or ``hours``.
        plain: the unit of a plain integer; None for ``unit``.

    Raises:
        ConfigError: the text is not a duration, or not a whole number of ``unit``.
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
    """Return the size or duration in a text, converted to ``unit``. If ``unit`` is None, the text must be a plain integer.

    Raises:
        ConfigError: the text does not have the form that ``unit`` requires.
    """
    if unit is None:
        return parse_integer(text)
    return parse_size(text) if unit == "bytes" else parse_duration(text, unit, plain=plain)


def format_size(value_bytes: int) -> str:
    """Return the shortest exact text for a size, such as ``64MiB`` or ``6000000``."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        factor = SIZE_UNITS[name.lower()]
        if value_bytes and value_bytes % factor == 0:
            return f"{value_bytes // factor}{name}"
    return str(value_bytes)


def size_text(count_bytes: float) -> str:
    """Return a rounded text for a number of bytes, such as ``512 B`` or ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count_bytes) < 1024:
            return f"{count_bytes:.0f} B" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"


def format_duration(value: int, unit: Unit = "ms") -> str:
    """Return the shortest exact text for a duration in ``unit``, such as ``5s``, ``1500ms`` or ``3d``."""
    value_ms = value * _FIELD_UNITS_MS[unit]
    for name in ("d", "h", "m", "s"):
        factor = DURATION_UNITS_MS[name]
        if value_ms and value_ms % factor == 0:
            return f"{value_ms // factor}{name}"
    return f"{value_ms}ms" if value_ms else "0"


def format_quantity(value: int, unit: Unit | None) -> str:
    """Return the shortest exact text for a quantity, which :func:`parse_quantity` reads back with the same unit."""
    if unit is None:
        return str(value)
    return format_size(value) if unit == "bytes" else format_duration(value, unit)


def in_unit(value: int, unit: Unit | None, wanted: Unit | None) -> int:
    """Return a quantity in another unit of time, rounded up, so that a limit of 1,500 ms becomes 2 s."""
    if wanted is None or unit is None or wanted == unit:
        return value
    return -(-value * _FIELD_UNITS_MS[unit] // _FIELD_UNITS_MS[wanted])


def _quantity(text: str) -> tuple[int | None, str]:
    text = text.strip()
    found = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_MAX and text.isascii() else None
    return (int(found[1]), found[2]) if found else (None, "")
