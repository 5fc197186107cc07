"""Declaration of a setting: ``timeout_ms: int = option(5000, rocketmq="syncFlushTimeout", minimum=1)``.

Everything the loader, ``config show``, the properties import and the runtime allow-list need to know about a key stands
at the field itself, in its :class:`FieldSpec`. Plugin authors may use :func:`option` in the models of their own sections;
plain attrs fields work too.
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
"""What a plain integer means for a field."""

SPEC = "flintmq"
"""The key of a field's :class:`FieldSpec` in its attrs metadata."""


@attrs.frozen(kw_only=True)
class FieldSpec:
    """What is known about one key beyond its type and default."""

    rocketmq: tuple[str, ...] = ()
    """RocketMQ's names for the same setting; the first is the one shown."""
    rocketmq_unit: Unit | None = None
    """What a plain integer means under RocketMQ's name; None when it means the same as here."""
    unit: Unit | None = None
    """What a plain integer means here; None where the field's name ends with it (``_ms``, ``_bytes``, …), and for counts,
    ratios and text."""
    minimum: int | None = None
    """Least value allowed, in ``unit``."""
    maximum: int | None = None
    """Greatest value allowed, in ``unit``."""
    choices: tuple[str, ...] = ()
    """The values allowed for a text; empty for any."""
    pattern: str | None = None
    """A regular expression that the whole text must match."""
    expects: str = ""
    """In words, what ``pattern`` asks for."""
    also: tuple[str, ...] = ()
    """Texts that the converter turns into one of ``choices``: RocketMQ's."""
    written: str | None = None
    """A regular expression that fits each whole text of which the converter makes one that ``pattern`` fits; None where both
    are the same."""
    separators: str = ","
    """Characters between the elements when a list is written as one text."""
    rocketmq_separator: str = ";"
    """What joins the elements of a list in RocketMQ's properties."""
    secret: bool = False
    """Never shown."""
    feature: str = ""
    """The plugin that does what the key says; empty where every broker does it, or its section's class has a ``FEATURE``."""

    def problem(self, value: Any) -> str | None:
        """Return why ``value`` (typed, in ``unit``) is not allowed; None when it is."""
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
        """Return the range in words: ``0 to 100``, ``at least 1``; empty without."""
        if self.minimum is not None and self.maximum is not None:
            return f"{self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"at least {self.minimum}"
        return f"at most {self.maximum}" if self.maximum is not None else ""


NO_SPEC = FieldSpec()
"""For fields declared without :func:`option`."""


_UNITS: dict[str, Unit] = {"_ms": "ms", "_bytes": "bytes", "_s": "s", "_seconds": "s", "_hours": "hours"}


def spec_of(field: attrs.Attribute[Any]) -> FieldSpec:
    """Return the field's spec, with the unit that its name tells. A plain attrs field has one all the same."""
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
    """Declare a setting: an attrs field that carries a :class:`FieldSpec` and is checked by it on construction.

    The parameters are :class:`FieldSpec`'s; ``converter`` is attrs' own and runs before the check.

    Returns:
        The attrs field, typed as the value it will hold, so that a type checker sees a default.
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
