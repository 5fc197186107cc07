"""Returns the configuration as text: as rows for ``flintmq config show``, as YAML, and as RocketMQ's properties."""

from __future__ import annotations

import enum
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from flintmq.config.fields import FieldSpec
from flintmq.config.loading.raw import RawList, RawMapping, RawNode, RawScalar
from flintmq.config.loading.schema import COMPOSITES, KEYS
from flintmq.config.sections.models import BrokerConfig, PluginRef
from flintmq.config.units import format_quantity, in_unit

if TYPE_CHECKING:
    from flintmq.config.loading.load import LoadedConfig

_PLAIN = re.compile(r"[A-Za-z_./][\w./:;-]*(?<!:)", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_COMMENT_WIDTH: Final = 100
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

HIDDEN = "******"
"""Text that is shown instead of a secret."""

SECRET_NAME = re.compile(r"secret|passw|token|credential|private|access_?key|api_?key", re.IGNORECASE)
"""Pattern for names of secrets. If no plugin declares a section of the configuration, the values of settings with such names
are hidden."""


def display(value: Any, spec: FieldSpec) -> str:
    """Return a value as text for display, with its unit: ``64MiB``, ``5s``, ``true``, ``a, b``; ``null`` for None."""
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


def yaml_tree(values: Mapping[str, str], comments: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return nested YAML, in the order of ``values``.

    Args:
        values: values as YAML, keyed by dotted key. Keys of the same section must be adjacent.
        comments: comments that are written above the keys, keyed by dotted key.
    """
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for name, text in values.items():
        *sections, leaf = name.split(".")
        shared = 0
        while shared < min(len(sections), len(above)) and sections[shared] == above[shared]:
            shared += 1
        lines.extend(f"{'  ' * depth}{sections[depth]}:" for depth in range(shared, len(sections)))
        indent = "  " * len(sections)
        if name in comments:
            lines.extend(f"{indent}# {line}" for line in textwrap.wrap(comments[name], _COMMENT_WIDTH - len(indent)))
        lines.append(f"{indent}{leaf}: {text}")
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


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS and not text.startswith((".", "-")):
        return text
    import yaml  # see load.py

    dumped = yaml.dump(text, default_style='"', width=2**31, allow_unicode=True)
    return _visible(str(dumped).rstrip("\n"))


def _visible(text: str) -> str:
    """Return a text in which invisible characters, and characters that change the direction of writing, are YAML escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@attrs.frozen
class Row:
    """One line of ``flintmq config show``."""

    key: str
    """Dotted key of the setting."""
    value: str
    """Value of the setting with its unit; hidden if the setting is a secret."""
    origin: str
    """Source of the setting's value: ``default``, ``broker.yaml:12``, ``environment FLINTMQ_…`` or ``command line``."""
    rocketmq: str
    """RocketMQ's names for the setting, separated by commas; empty if there are none."""
    doc: str
    """Description of the setting."""


def rows(loaded: LoadedConfig) -> tuple[Row, ...]:
    """Return the rows of ``flintmq config show``: a row for every key, in the order of the sections, then rows for the sections
    of plugins."""
    found = []
    for name, key in KEYS.items():
        names = COMPOSITES if name == "flush.strategy" else key.spec.rocketmq
        value = display(key.value_of(loaded.config), key.spec)
        found.append(Row(name, value, str(loaded.origins[name]), ", ".join(names), key.doc))
    for name, section in loaded.sections.items():
        found += _rows_of(name, section)
    return tuple(found)


def _rows_of(name: str, node: RawNode) -> Iterator[Row]:
    """Yield a row of ``flintmq config show`` for every scalar and list of a plugin's section."""
    if isinstance(node, RawMapping):
        for key, child in node.entries.items():
            yield from _rows_of(f"{name}.{key}", child)
    else:
        yield Row(name, _hidden(name, node), str(node.origin), "", "a plugin's setting")


def to_yaml(
    config: BrokerConfig, *, only_changed: bool = False, sections: Mapping[str, RawMapping] = MappingProxyType({})
) -> str:
    """Return YAML that loads as the same configuration, without secrets. A comment at its end names the secrets that are set.

    Args:
        config: the configuration to write.
        only_changed: leave out settings with their default values.
        sections: sections of plugins, as in :attr:`LoadedConfig.sections`.
    """
    plain = BrokerConfig()
    values = {
        name: yaml_value(key.value_of(config), key.spec)
        for name, key in KEYS.items()
        if not key.spec.secret and (not only_changed or key.value_of(config) != key.value_of(plain))
    }
    for name, section in sections.items():
        values |= _values_of(name, section)
    tops = {name.partition(".")[0]: None for name in values}
    places = {top: place for place, top in enumerate(tops)}
    text = yaml_tree({name: values[name] for name in sorted(values, key=lambda name: places[name.partition(".")[0]])})
    secrets = secret_names(config, sections)
    if not secrets:
        return text
    return (
        text
        + "# Secrets are not written here. Add these to get the same configuration:\n"
        + "".join(f"#   {_visible(name)}\n" for name in secrets)
    )


def secret_names(config: BrokerConfig, sections: Mapping[str, RawMapping]) -> tuple[str, ...]:
    """Return the dotted keys of the secrets that are set, which :func:`to_yaml` leaves out."""
    own = [name for name, key in KEYS.items() if key.spec.secret and key.value_of(config) not in (None, ())]
    return (*own, *(found for name, section in sections.items() for found in _secret_names(name, section)))


def _secret_names(name: str, node: RawNode) -> Iterator[str]:
    if SECRET_NAME.search(name.rpartition(".")[2]):
        yield name
    elif isinstance(node, RawMapping):
        for key, child in node.entries.items():
            yield from _secret_names(f"{name}.{key}", child)
    elif isinstance(node, RawList):
        for place, item in enumerate(node.items):
            yield from _secret_names(f"{name}[{place}]", item)


def _values_of(name: str, section: RawMapping) -> dict[str, str]:
    """Return the values of a plugin's section as YAML, keyed by dotted key, without secrets."""
    entries = {key: node for key, node in section.entries.items() if not SECRET_NAME.search(key)}
    if all(_KEY.fullmatch(key) for key in entries):
        return {f"{name}.{key}": _flow(node) for key, node in entries.items()}
    return {name: _flow(section)}


def _flow(node: RawNode) -> str:
    """Return a raw value as one line of YAML that is read as the same value, without secrets."""
    if isinstance(node, RawScalar):
        return "null" if node.is_null else _quoted(node.text)
    if isinstance(node, RawList):
        return f"[{', '.join(map(_flow, node.items))}]"
    return (
        "{"
        + ", ".join(
            f"{_quoted(key)}: {_flow(child)}" for key, child in node.entries.items() if not SECRET_NAME.search(key)
        )
        + "}"
    )


def _text(node: RawNode) -> str:
    if isinstance(node, RawScalar):
        return node.text
    if isinstance(node, RawList):
        return ", ".join(_text(item) for item in node.items)
    return "{" + ", ".join(f"{name}: {_hidden(name, child)}" for name, child in node.entries.items()) + "}"


def _hidden(name: str, node: RawNode) -> str:
    return HIDDEN if SECRET_NAME.search(name) else _text(node)
