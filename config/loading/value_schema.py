"""Returns the JSON Schema of the values that a field accepts, by the rules of :mod:`.binding`."""

from __future__ import annotations

import collections.abc
import enum
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.fields import NO_SPEC, FieldSpec, Unit, spec_of
from flintmq.config.loading.binding import FALSE, MAPPINGS, SEQUENCES, TRUE
from flintmq.config.loading.schema import field_docs
from flintmq.config.loading.yaml_source import YAML_MAX_DEPTH
from flintmq.config.secret import Secret
from flintmq.config.sections.models import PLUGIN_TARGET, PluginRef
from flintmq.config.units import format_quantity, in_unit

Schema = dict[str, Any]

_START: Final = "^(?:"
_END: Final = r")$(?!\n)"
"""End of every pattern in the JSON Schema. JSON Schema has no ``fullmatch``, and in Python ``$`` alone also matches before a
final line break."""
_ANY_TEXT: Final = r"[\s\S]*"
_NO_TEXT: Final = "(?!)"

_DIGITS: Final = "[0-9]+(_[0-9]+)*"
_SIZE: Final = rf"\s*{_DIGITS}[ \t]*([bB]|[kKmMgGtT][iI]?[bB])?\s*"
_DURATION: Final = rf"\s*{_DIGITS}[ \t]*(ms|s|m|h|d)?\s*"
_INTEGER: Final = rf"\s*[+-]?{_DIGITS}\s*"
_FLOAT: Final = r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*"
_TEXT_OF_UNIT: Final[Mapping[Unit | None, str]] = {
    None: _INTEGER,
    "bytes": _SIZE,
    "ms": _DURATION,
    "s": _DURATION,
    "hours": _DURATION,
}

_BOOLEANS: Final = ("true", "false")
_INTEGERS: Final = ("0", "7", "10911", "-1", "9223372036854775808")
_NUMBERS: Final = (*_INTEGERS, "0.5", "-2.75", "1e+30")
"""Examples of numbers in YAML. A regular expression that matches all of these examples is taken to match every number."""


def field_schema(
    model: type[Any], field: attrs.Attribute[Any], hint: Any, plain: Unit | None = None, depth: int = 0
) -> Schema:
    """Return the JSON Schema of a setting's field, with the field's description and default.

    Args:
        model: the attrs class of the field.
        field: the attrs field.
        hint: the type of the field.
        plain: the unit of an integer that is written without a unit; None for the unit of the field.
        depth: the nesting depth of ``model`` in classes of a plugin's settings; 0 for FlintMQ's own settings. The schema ends
            at a maximum depth, because a class may contain itself.
    """
    spec = spec_of(field)
    made: Schema = {}
    description = _description(plain_text(field_docs(model).get(field.name, "")), spec, plain)  # type: ignore[arg-type]
    if description:
        made["description"] = description
    made |= _value(hint, spec, plain, depth)
    if spec.expects:
        for part in (made, made.get("items", {})):
            if "pattern" in part:
                part["patternErrorMessage"] = f"must be {spec.expects}"
    default = _default(field, spec)
    if default is not attrs.NOTHING:
        made["default"] = default
    if spec.secret or hint is Secret:
        made["writeOnly"] = True
    return made


def _description(doc: str, spec: FieldSpec, plain: Unit | None) -> str:
    parts = [doc]
    unit = plain or spec.unit
    if unit == "bytes":
        parts.append("A size: 4096 (bytes), 64KiB, 10MB.")
    elif unit is not None:
        parts.append(f"A duration: 500ms, 5s, 10m, 1h, 2d; a plain number is in {unit}.")
    if spec.range_text:
        low, high = (
            None if bound is None else format_quantity(bound, spec.unit) for bound in (spec.minimum, spec.maximum)
        )
        parts.append(f"{low} to {high}." if low and high else f"At least {low}." if low else f"At most {high}.")
    if spec.rocketmq:
        parts.append(f"RocketMQ: {', '.join(spec.rocketmq)}.")
    return " ".join(filter(None, parts))


def plain_text(doc: str) -> str:
    """Return a docstring as Markdown, the format in which editors show the descriptions of a JSON Schema."""
    return doc.replace("``", "`")


def _default(field: attrs.Attribute[Any], spec: FieldSpec) -> Any:
    """Return the default of a setting's field as JSON; ``NOTHING`` if the field has no default, or a default that JSON cannot
    express."""
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return attrs.NOTHING if default.takes_self else _as_json(default.factory(), spec)
    return _as_json(default, spec)


def _as_json(value: Any, spec: FieldSpec) -> Any:
    if value is attrs.NOTHING:
        # ``attrs.NOTHING`` means that the field has no default.
        # ``attrs.NOTHING`` is a member of an enum, so the test for ``attrs.NOTHING`` precedes the test for enums.
        return value
    if isinstance(value, enum.Enum):
        return str(value.value)
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        text = format_quantity(value, spec.unit)
        return value if text.lstrip("-").isdigit() else text
    if isinstance(value, PluginRef):
        return value.target
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        found = [_as_json(item, spec) for item in value]
        return attrs.NOTHING if attrs.NOTHING in found else found
    if isinstance(value, Mapping) and not value:
        return {}
    return attrs.NOTHING


# values, by type


def _value(hint: Any, spec: FieldSpec, plain: Unit | None = None, depth: int = 0) -> Schema:
    """Return the JSON Schema of the values that a field's type accepts (see
    :func:`flintmq.config.loading.binding.bind_value`)."""
    if hint is Any or hint is object:
        return {}
    kind, arms = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        parts = [_value(arm, spec, plain, depth) for arm in arms if arm is not types.NoneType]
        made = parts[0] if len(parts) == 1 else {"anyOf": parts}
        return _or_null(made) if types.NoneType in arms else made
    if kind in SEQUENCES:
        # The loader checks limits, choices and patterns of items only in tuples and Sequences, so the schema does the same.
        checked = kind in (tuple, collections.abc.Sequence)
        return _list(_value(arms[0] if arms else str, spec if checked else _unchecked(spec), plain, depth), spec)
    if isinstance(kind, type) and attrs.has(kind) and kind is not PluginRef:
        return model_schema(kind, depth + 1)
    if kind in MAPPINGS:
        return {
            "type": ["object", "null"],
            "additionalProperties": _value(arms[1] if arms else Any, NO_SPEC, None, depth),
        }
    return _scalar(hint, spec, plain)


def _unchecked(spec: FieldSpec) -> FieldSpec:
    return attrs.evolve(spec, minimum=None, maximum=None, choices=(), pattern=None, written=None)


def model_schema(model: type[Any], depth: int) -> Schema:
    """Return the JSON Schema of a plugin's attrs class.

    Args:
        model: the class.
        depth: the depth at which the class is nested in other classes of plugins.
    """
    if depth >= YAML_MAX_DEPTH:  # A class may contain itself, so the JSON Schema ends at YAML's maximum nesting depth.
        return {"type": "null"}
    hints = typing.get_type_hints(model)
    fields = [field for field in attrs.fields(model) if field.init]
    required = [field.alias for field in fields if field.default is attrs.NOTHING]
    made: Schema = {"description": plain_text(" ".join(model.__doc__.split()))} if model.__doc__ else {}
    made |= {
        "type": "object" if required else ["object", "null"],
        "properties": {field.alias: field_schema(model, field, hints[field.name], depth=depth) for field in fields},
        "additionalProperties": False,
    }
    return made | ({"required": required} if required else {})


def _list(item: Schema, spec: FieldSpec) -> Schema:
    """Return the JSON Schema of a list. The list may also be written as a text with separators. A list with one item may be
    written as this item."""
    scalars = [kind for kind in _kinds(item) if kind in ("integer", "number", "boolean")] if "enum" not in item else []
    made: Schema = {"type": ["array", "string", *scalars, "null"], "items": item}
    made |= {bound: item[bound] for bound in ("minimum", "maximum") if bound in item and scalars}
    of_item = _text_pattern(item)
    if of_item != _ANY_TEXT:
        separators = "[" + escaped(spec.separators) + "]"
        # The regular expression looks ahead only at the beginning of each item, so that matching takes linear time.
        part = rf"(?=\s*(?:{of_item})?\s*(?:{separators}|$))[^{separators[1:]}*"
        made["pattern"] = f"{_START}{part}(?:{separators}{part})*{_END}"
    return made


def _scalar(hint: Any, spec: FieldSpec, plain: Unit | None) -> Schema:
    if typing.get_origin(hint) is typing.Literal:
        return _one_of(str(value) for value in typing.get_args(hint))
    if hint is PluginRef:
        return text_schema(rf"\s*({PLUGIN_TARGET})\s*")
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return _one_of([*(str(member.value) for member in hint), *hint.__members__])
        if issubclass(hint, bool):
            return boolean_schema()
        if issubclass(hint, int):
            return _integer(spec, plain)
        if issubclass(hint, float):
            of_unit = rf"|\s*{_DIGITS}[ \t]*(ms|s|m|h|d)\s*" if spec.unit in ("ms", "s", "hours") else ""
            bounds = {"minimum": spec.minimum, "maximum": spec.maximum}
            return {"type": ["number", "string"], "pattern": whole(_FLOAT + of_unit)} | _present(bounds)
        if issubclass(hint, str):
            return (
                _one_of((*spec.choices, *spec.also))
                if spec.choices
                else text_schema(spec.written or spec.pattern, spec)
            )
        if issubclass(hint, (Path, Secret)):
            return text_schema(None)
    raise TypeError(f"a setting cannot be of type {hint!r}")


def _integer(spec: FieldSpec, plain: Unit | None) -> Schema:
    unit, low, high = spec.unit, spec.minimum, spec.maximum
    if unit is not None:
        low = max(low or 0, 0)  # A setting with a unit is a size or a duration, which cannot be negative.
    bounds = {
        "minimum": None if low is None else in_unit(low, unit, plain),
        "maximum": None if high is None else -in_unit(-high, unit, plain),
    }
    return {"type": ["integer", "string"], "pattern": whole(_TEXT_OF_UNIT[unit])} | _present(bounds)


def boolean_schema() -> Schema:
    words = sorted(TRUE | FALSE)
    anyhow = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in words)
    return {"type": ["boolean", "string"], "pattern": whole(rf"\s*({anyhow})\s*")}


def text_schema(pattern: str | None, spec: FieldSpec = NO_SPEC) -> Schema:
    """Return the JSON Schema of a text. The schema also accepts numbers and booleans, which the loader reads as texts.

    Args:
        pattern: regular expression that the whole text must match; None for any text.
        spec: the spec of the field.
    """
    if pattern is None:
        return {"type": ["string", "number", "boolean"]}
    kinds = ["string"]
    bounds: Schema = {}
    if spec.minimum is not None or spec.maximum is not None:
        # A setting such as a list of hours is a text, or a single whole number. JSON Schema checks the range of the number.
        kinds.append("integer")
        bounds = _present({"minimum": spec.minimum, "maximum": spec.maximum})
    elif _fits(pattern, _INTEGERS):
        kinds.append("number" if _fits(pattern, _NUMBERS) else "integer")
    if _fits(pattern, _BOOLEANS):
        kinds.append("boolean")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "pattern": whole(pattern)} | bounds


def _one_of(texts: Iterable[str]) -> Schema:
    """Return the JSON Schema of a setting whose value must be one of the given texts. If a text is written like a number or a
    boolean, such as ``4`` or ``true``, the schema also accepts this number or boolean, because YAML reads the text as one if it
    has no quotes."""
    values: list[Any] = []
    for text in dict.fromkeys(texts):
        values.append(text)
        try:
            read = json.loads(text)
        except ValueError:
            continue
        if isinstance(read, (bool, int, float)) and json.dumps(read) == text:
            values.append(read)
    return (
        {"enum": values} if any(not isinstance(value, str) for value in values) else {"type": "string", "enum": values}
    )


def _or_null(schema: Schema) -> Schema:
    made = dict(schema)
    if "anyOf" in made:
        made["anyOf"] = [*made["anyOf"], {"type": "null"}]
    if "enum" in made:
        made["enum"] = [*made["enum"], None]
    if "type" in made:
        made["type"] = [*dict.fromkeys((*_kinds(made), "null"))]
    return made


def _kinds(schema: Schema) -> list[str]:
    kinds: str | list[str] = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _present(bounds: Mapping[str, int | None]) -> Schema:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _fits(pattern: str, texts: tuple[str, ...]) -> bool:
    return all(re.fullmatch(pattern, text) for text in texts)


def whole(pattern: str) -> str:
    return f"{_START}{pattern}{_END}"


def escaped(text: str) -> str:
    return re.sub(r"[\\^$.|?*+()\[\]{}/]", r"\\\g<0>", text)


def _text_pattern(schema: Schema) -> str:
    """Return a regular expression that matches the texts that a JSON Schema accepts."""
    if "anyOf" in schema:
        return "|".join(f"(?:{_text_pattern(arm)})" for arm in schema["anyOf"])
    if "enum" in schema:
        return "|".join(escaped(value) for value in schema["enum"] if isinstance(value, str))
    if "type" in schema and "string" not in _kinds(schema):
        return _NO_TEXT
    pattern: str = schema.get("pattern", _ANY_TEXT)
    return pattern.removeprefix(_START).removesuffix(_END)


def dotted(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield, for each dotted name inside a plugin's section, a regular expression of the name and the JSON Schema of its
    value."""
    inner = {rf"\.{escaped(name)}": one for name, one in schema.get("properties", {}).items()}
    if isinstance(schema.get("additionalProperties"), dict):
        inner[r"\.[^.]*"] = schema["additionalProperties"]
    for path, one in inner.items():
        yield path, one
        yield from ((path + further, deeper) for further, deeper in dotted(one))
    for arm in schema.get("anyOf", ()):
        yield from dotted(arm)
    if not schema.keys() & {"type", "enum", "anyOf"}:
        yield r"(?:\.[^.]*)+", {}
