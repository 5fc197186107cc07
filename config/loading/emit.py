"""Text of values: YAML with FlintMQ's names and units, and RocketMQ's properties."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any

from flintmq.config.fields import FieldSpec, Unit
from flintmq.config.sections.models import PluginRef
from flintmq.config.units import DURATION_UNITS_MS, format_quantity

_PLAIN = re.compile(r"[A-Za-z_./][\w./:;-]*(?<!:)", re.ASCII)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_UNIT_MS: Mapping[str, int] = {"ms": 1, "s": DURATION_UNITS_MS["s"], "hours": DURATION_UNITS_MS["h"]}

HIDDEN = "******"
"""What is shown in place of a secret."""

SECRET_NAME = re.compile(r"secret|passw|token|credential|private|access_?key|api_?key", re.IGNORECASE)
"""Names of undeclared settings whose values are hidden."""


def display(value: Any, spec: FieldSpec) -> str:
    """Return a value for people, with its unit: ``64MiB``, ``5s``, ``true``, ``a, b``; ``null`` for None."""
    if spec.secret and value not in (None, ()):
        return HIDDEN
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return format_quantity(value, spec.unit)
    if isinstance(value, (tuple, list)):
        return ", ".join(display(item, spec) for item in value)
    if isinstance(value, PluginRef):
        return value.target
    return str(value.value if isinstance(value, enum.Enum) else value)


def yaml_value(value: Any, spec: FieldSpec) -> str:
    """Return a value as one line of YAML that loads as the same value."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(yaml_value(item, spec) for item in value)}]"
    if isinstance(value, PluginRef):
        value = value.target
    if isinstance(value, str):
        return _quoted(value)
    return display(value, spec)


def yaml_tree(values: Mapping[str, str]) -> str:
    """Return nested YAML of dotted keys whose values are YAML, in the order given; keys of a section must be adjacent."""
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for name, text in values.items():
        *sections, leaf = name.split(".")
        shared = 0
        while shared < min(len(sections), len(above)) and sections[shared] == above[shared]:
            shared += 1
        lines.extend(f"{'  ' * depth}{sections[depth]}:" for depth in range(shared, len(sections)))
        lines.append(f"{'  ' * len(sections)}{leaf}: {text}")
        above = tuple(sections)
    return "".join(f"{line}\n" for line in lines)


def property_value(value: Any, spec: FieldSpec) -> str:
    """Return a value as RocketMQ writes it: plain numbers in RocketMQ's unit, lists joined by ``;``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(in_unit(value, spec.unit, spec.rocketmq_unit))
    if isinstance(value, (tuple, list)):
        return spec.rocketmq_separator.join(property_value(item, spec) for item in value)
    return str(value)


def in_unit(value: int, unit: Unit | None, wanted: Unit | None) -> int:
    """Return a quantity in another unit of time, rounded up: a limit of 1,500 ms is not 1 s."""
    if wanted is None or unit is None or wanted == unit:
        return value
    return -(-value * _UNIT_MS[unit] // _UNIT_MS[wanted])


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS and not text.startswith((".", "-")):
        return text
    import yaml  # see load.py

    dumped = yaml.dump(text, default_style='"', width=2**31, allow_unicode=True)
    return str(dumped).rstrip("\n")
