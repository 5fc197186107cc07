"""Converts settings as written (raw nodes) to the types of an attrs class, with checks of units, ranges and choices. Errors
name the line.

The class is one of :mod:`flintmq.config.sections`, or an attrs class of a plugin. Supported types are ``bool``, ``int``,
``float``, ``str``, ``Path``, enums, ``Literal``, ``X | None`` and other unions, ``tuple``, ``list``, ``set``, ``frozenset`` and
``Sequence`` of one type, ``dict`` and ``Mapping`` from ``str``, nested attrs classes, and ``Any`` (texts, lists and dicts as
written).
"""

from __future__ import annotations

import collections.abc
import enum
import re
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.fields import NO_SPEC, SPEC, FieldSpec, Unit, spec_of
from flintmq.config.loading.raw import RawList, RawMapping, RawNode, RawScalar
from flintmq.config.secret import Secret
from flintmq.config.sections.models import PluginRef
from flintmq.config.units import parse_duration, parse_quantity

M = TypeVar("M")

TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})

SEQUENCES: dict[Any, Callable[[Any], Any]] = {
    tuple: tuple,
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: tuple,
    collections.abc.Set: frozenset,
}
MAPPINGS = (dict, collections.abc.Mapping)


def bind_model(mapping: RawMapping, model: type[M], prefix: str) -> M:
    """Return an instance of an attrs class, with the values of a mapping converted to the types of its fields.

    Args:
        mapping: the values as written.
        model: the attrs class. A field without a default is required.
        prefix: the dotted name of the section, for errors.

    Raises:
        ConfigError: a key is unknown or missing, or a value is invalid.
        TypeError: ``model`` is not an attrs class, or a field has a type that is not supported.
    """
    if not attrs.has(model):
        raise TypeError(f"the model of section '{prefix}' must be an attrs class, not {model!r}")
    hints = typing.get_type_hints(model)
    fields = {field.alias: field for field in attrs.fields(model) if field.init}
    values: dict[str, Any] = {}
    for name, node in mapping.entries.items():
        key = f"{prefix}.{name}"
        if name not in fields:
            near = nearest(name, fields)
            raise node.origin.error(f"unknown key '{key}'", key=key, suggestion=f"{prefix}.{near}" if near else None)
        values[name] = bind_field(node, hints[fields[name].name], fields[name], key)
    for name, field in fields.items():
        if field.default is attrs.NOTHING and name not in values:
            key = f"{prefix}.{name}"
            raise mapping.origin.error(f"'{key}' is required", key=key)
    try:
        made: Any = model(**values)
    except (ValueError, TypeError) as error:
        raise _located(error, mapping, prefix) from error
    return made  # type: ignore[no-any-return]


def bind_field(node: RawNode, hint: Any, field: attrs.Attribute[Any], key: str) -> Any:
    """Return a value as written in a source of settings, converted to the type of a field and checked.

    Args:
        node: the value as written.
        hint: the field's type.
        field: the attrs field.
        key: the dotted name of the field, for errors.

    Raises:
        ConfigError: the value has a wrong type, or is out of range.
    """
    spec = spec_of(field)
    value = bind_value(node, hint, spec, key)
    converter: Any = field.converter
    if SPEC in field.metadata and callable(converter) and value is not None:
        value = converter(value)
    problem = spec.problem(value)
    if problem is not None:
        raise node.origin.error(f"'{key}' {problem}", key=key)
    return value


def bind_value(node: RawNode, hint: Any, spec: FieldSpec, key: str) -> Any:
    """Convert a value from a source of settings, such as a configuration file, to the type ``hint``, and return it. The range
    of the value is not checked; :func:`bind_field`, which converts the value of an attrs field, also checks the range.

    Args:
        node: the value as written in the source.
        hint: the type.
        spec: the description of the setting, for example its unit.
        key: the dotted name of the setting, for errors.

    Raises:
        ConfigError: the value cannot be converted to the type.
    """
    if hint is Any or hint is object:
        return unbound(node)
    kind, arms = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return _bind_union(node, arms, spec, key)
    if kind in SEQUENCES:
        items = _items(node, spec, key)
        hint = arms[0] if arms else str
        return SEQUENCES[kind](bind_value(item, hint, spec, f"{key}[{place}]") for place, item in enumerate(items))
    is_model = isinstance(kind, type) and attrs.has(kind) and kind is not PluginRef
    if is_model or kind in MAPPINGS:
        if isinstance(node, RawScalar) and node.is_null:
            node = RawMapping({}, node.origin)
        if not isinstance(node, RawMapping):
            raise node.origin.error(f"'{key}' is a section: it takes 'name: value' lines", key=key)
        if is_model:
            return bind_model(node, kind, key)
        hint = arms[1] if arms else Any
        return {name: bind_value(child, hint, NO_SPEC, f"{key}.{name}") for name, child in node.entries.items()}
    if not isinstance(node, RawScalar):
        found = "list" if isinstance(node, RawList) else "section"
        raise node.origin.error(f"'{key}' takes one value, not a {found}", key=key)
    if node.is_null:
        raise node.origin.error(f"'{key}' needs a value", key=key)
    try:
        return _bind_scalar(node, hint, spec)
    except ConfigError as error:
        raise node.origin.error(f"'{key}' {error.message}", key=key) from None


def _bind_scalar(node: RawScalar, hint: Any, spec: FieldSpec) -> Any:
    text = node.text
    if typing.get_origin(hint) is typing.Literal:
        return _one_of(text, {str(value): value for value in typing.get_args(hint)})
    if hint is PluginRef:
        try:
            return PluginRef(text.strip(), node.origin.line)
        except ConfigError as error:
            raise ConfigError(f"is not the name of a plugin: {error.message}") from None
    if not isinstance(hint, type):
        raise TypeError(f"a setting cannot be of type {hint!r}")
    if issubclass(hint, enum.Enum):
        return _one_of(text, {str(member.value): member for member in hint} | dict(hint.__members__))
    if issubclass(hint, bool):
        if text.strip().casefold() not in TRUE | FALSE:
            raise ConfigError(f"must be true or false, not '{text[:80]}'")
        return text.strip().casefold() in TRUE
    if issubclass(hint, int):
        return parse_quantity(text, spec.unit, plain=node.plain)
    if issubclass(hint, float):
        return _float(text, spec.unit)
    if issubclass(hint, (str, Path, Secret)):
        return hint(text)
    raise TypeError(f"a setting cannot be of type {hint!r}")


def _float(text: str, unit: Unit | None) -> float:
    if unit in ("ms", "s", "hours") and text.strip()[-1:].isalpha():
        return parse_duration(text, "ms") / parse_duration("1", "ms", plain=unit)
    if len(text) > 40 or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text.strip(), re.ASCII) is None:
        raise ConfigError(f"must be a number, not '{text[:80]}'")
    return float(text)


def _one_of(text: str, allowed: dict[str, Any]) -> Any:
    if text not in allowed:
        raise ConfigError(f"must be one of {', '.join(allowed)}, not '{text[:80]}'")
    return allowed[text]


def _bind_union(node: RawNode, arms: tuple[Any, ...], spec: FieldSpec, key: str) -> Any:
    if type(None) in arms and isinstance(node, RawScalar) and node.is_null:
        return None
    sections = [arm for arm in arms if isinstance(arm, type) and attrs.has(arm)]
    if isinstance(node, RawMapping) and len(sections) == 1:
        # The attrs class is the only type of the union that accepts a mapping, so the other types need not be tried.
        return bind_value(node, sections[0], spec, key)
    # Every value can be read as a text, so the union's type ``str`` is tried last.
    candidates = sorted((arm for arm in arms if arm is not type(None)), key=lambda arm: arm is str)
    for arm in candidates[:-1]:
        try:
            return bind_value(node, arm, spec, key)
        except ConfigError:
            continue
    return bind_value(node, candidates[-1], spec, key)


def _items(node: RawNode, spec: FieldSpec, key: str) -> Sequence[RawNode]:
    """Return the elements of a list. The list may be written as one text: ``a, b``, or, except in files, ``[a, b]``."""
    if isinstance(node, RawScalar) and node.origin.kind != "file" and _is_bracketed(node.text.strip()):
        # parse_list is imported late, because it loads PyYAML (1 MiB of memory), and only a list in brackets needs PyYAML.
        from flintmq.config.loading.yaml_source import parse_list

        return parse_list(node, key).items
    if isinstance(node, RawScalar):
        parts = () if node.is_null else re.split(f"[{re.escape(spec.separators)}]", node.text)
        return [attrs.evolve(node, text=part.strip()) for part in parts if part.strip()]
    if isinstance(node, RawList):
        return node.items
    raise node.origin.error(f"'{key}' takes a list, not a section", key=key)


def _is_bracketed(text: str) -> bool:
    """Return whether a pair of brackets encloses the whole text, as in a list; false for an IPv6 address in brackets."""
    depth = 0
    for place, sign in enumerate(text if text.startswith("[") else ""):
        depth += (sign == "[") - (sign == "]")
        if depth == 0:
            return place == len(text) - 1 and not _is_ipv6(text[1:-1])
    return False


def _is_ipv6(text: str) -> bool:
    if ":" not in text:
        return False
    import ipaddress

    try:
        return bool(ipaddress.IPv6Address(text).packed)
    except ValueError:
        return False


def unbound(node: RawNode) -> Any:
    """Return a value as written in a source of settings, as texts, lists and dicts, without conversion; null is None."""
    if isinstance(node, RawMapping):
        return {name: unbound(child) for name, child in node.entries.items()}
    if isinstance(node, RawList):
        return [unbound(item) for item in node.items]
    return None if node.is_null else node.text


def _located(error: ValueError | TypeError, mapping: RawMapping, prefix: str) -> ConfigError:
    """Return a validator's error as a ``ConfigError`` with the file and line of the field that the error's text names."""
    if isinstance(error, ConfigError) and error.file is not None:
        return error
    message = error.message if isinstance(error, ConfigError) else str(error.args[0] if error.args else error)
    named = error.key if isinstance(error, ConfigError) else None
    if named is None:
        quoted = re.match(r"'(\w+)'", message)
        named = quoted[1] if quoted else None
    node = mapping.entries.get(named) if named else None
    if node is None or named is None:
        return mapping.origin.error(f"'{prefix}': {message}", key=prefix)
    message = message.replace(f"'{named}'", f"'{prefix}.{named}'", 1)
    return node.origin.error(message, key=f"{prefix}.{named}")
