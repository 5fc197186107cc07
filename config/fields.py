"""Declares settings as fields, such as ``timeout_ms: int = option(5000, rocketmq="syncFlushTimeout", minimum=1)``.

The :class:`FieldSpec` of a field describes the setting for the loader, for ``config show``, for the import of RocketMQ's
properties files, and for the list of settings that may be changed at runtime. A plugin may declare the settings of its section
with :func:`option` or as plain attrs fields.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import attrs

from flintmq.config.errors import ConfigError

T = TypeVar("T")

Unit = Literal["bytes", "ms", "s", "hours"]
"""Unit that a setting's value has if it is written as a number only, such as ``500`` instead of ``500ms``."""

SPEC = "flintmq"
"""Key under which the attrs metadata of a field contain its :class:`FieldSpec`."""


@attrs.frozen(kw_only=True)
class FieldSpec:
    """The properties of a setting besides its type and default: its names in RocketMQ, its unit, its allowed values and the
    form of its text."""

    rocketmq: tuple[str, ...] = ()
    """RocketMQ's names of the setting. Tools show the first name."""
    rocketmq_unit: Unit | None = None
    """Unit of a value that is written as a number only, under RocketMQ's name of the setting. None means that the unit in the
    attribute ``unit`` applies."""
    unit: Unit | None = None
    """Unit of a value that is written as a number only. The unit is None for counts, ratios and text, and for fields whose
    names end with the unit (``_ms``, ``_bytes``, …)."""
    minimum: int | None = None
    """Smallest value that the setting may have, in ``unit``; None for no limit."""
    maximum: int | None = None
    """Largest value that the setting may have, in ``unit``; None for no limit."""
    choices: tuple[str, ...] = ()
    """Values that a setting of text may have; empty if every text is allowed."""
    pattern: str | None = None
    """Regular expression that the whole text of a setting must match; None for any text."""
    expects: str = ""
    """Description of the texts that match ``pattern``, for errors, such as "a host name or address"."""
    also: tuple[str, ...] = ()
    """RocketMQ's spellings of the values in ``choices``. The converter replaces each of these spellings by FlintMQ's."""
    written: str | None = None
    """Regular expression of the texts that users may write. The converter changes such a text into a text that matches
    ``pattern``. None if users must write a text that matches ``pattern``."""
    separators: str = ","
    """Characters that may separate the elements of a setting's list that is written as one text."""
    rocketmq_separator: str = ";"
    """Character that joins the elements of a list in RocketMQ's properties files."""
    secret: bool = False
    """Whether the setting is a secret, whose value is never shown."""
    feature: str = ""
    """Name of the plugin that uses the setting. The name is empty if every broker uses the setting, or if the section's class
    names the plugin in its attribute ``FEATURE``."""

    def problem(self, value: Any) -> str | None:
        """Return the reason why a value is not allowed; None if it is allowed.

        Args:
            value: the value with the type of its field, in the setting's unit.
        """
        if value is None:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            unit = f" {self.unit}" if self.unit else ""
            if (self.minimum is not None and value < self.minimum) or (
                self.maximum is not None and value > self.maximum
            ):
                return f"must be {self.range_text}{unit}, not {value}"
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                return f"must be one of {', '.join(self.choices)}, not '{value[:80]}'"
            if self.pattern is not None and re.fullmatch(self.pattern, value) is None:
                return f"must be {self.expects}, not '{value[:80]}'"
        if isinstance(value, tuple):
            return next((found for item in value if (found := self.problem(item)) is not None), None)
        return None

    @property
    def range_text(self) -> str:
        """Return the allowed range of the field's numbers in words, such as ``0 to 100`` or ``at least 1``; an empty text if
        every number is allowed."""
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return f"at most {self.maximum}" if self.maximum is not None else ""


NO_SPEC = FieldSpec()
"""The :class:`FieldSpec` of fields that are declared without :func:`option`."""


_UNITS: dict[str, Unit] = {"_ms": "ms", "_bytes": "bytes", "_s": "s", "_seconds": "s", "_hours": "hours"}


def spec_of(field: attrs.Attribute[Any]) -> FieldSpec:
    """Return the :class:`FieldSpec` of a setting's field. If the field declares no unit, the unit is taken from the end of the
    field's name, such as ``_ms``. For a field that is declared without :func:`option`, the spec contains only this unit."""
    spec: FieldSpec = field.metadata.get(SPEC, NO_SPEC)
    if spec.unit is None:
        unit = next((unit for suffix, unit in _UNITS.items() if field.name.endswith(suffix)), None)
        return _with_unit(spec, unit) if unit else spec
    return spec


@functools.cache
def _with_unit(spec: FieldSpec, unit: Unit) -> FieldSpec:
    return attrs.evolve(spec, unit=unit)


def option(
    default: T,
    *,
    rocketmq: str | tuple[str, ...] = (),
    rocketmq_unit: Unit | None = None,
    unit: Unit | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    choices: tuple[str, ...] = (),
    pattern: str | None = None,
    expects: str = "",
    also: tuple[str, ...] = (),
    written: str | None = None,
    separators: str = ",",
    rocketmq_separator: str = ";",
    secret: bool = False,
    feature: str = "",
    converter: Callable[[Any], T] | None = None,
) -> T:
    """Declare a setting as an attrs field with a :class:`FieldSpec`. Values are checked when an object of the attrs class is
    created.

    The parameters are those of :class:`FieldSpec`. ``converter`` is a converter of attrs, which is applied before the check.

    Returns:
        The attrs field. The declared return type is the type of the default, so that a type checker accepts the field's
        annotation.
    """
    spec = FieldSpec(
        rocketmq=(rocketmq,) if isinstance(rocketmq, str) else rocketmq,
        rocketmq_unit=rocketmq_unit,
        unit=unit,
        minimum=minimum,
        maximum=maximum,
        choices=choices,
        pattern=pattern,
        expects=expects,
        also=also,
        written=written,
        separators=separators,
        rocketmq_separator=rocketmq_separator,
        secret=secret,
        feature=feature,
    )
    field: Any = attrs.field(default=default, metadata={SPEC: spec}, validator=_validate, converter=converter)
    return field  # type: ignore[no-any-return]


def _validate(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    problem = spec_of(attribute).problem(value)
    if problem is not None:
        raise ConfigError(f"'{attribute.name}' {problem}", key=attribute.name)
