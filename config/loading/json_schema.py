"""The configuration as a JSON Schema (draft 2020-12): for editors that complete and check YAML, and for programs that write it.

The schema is derived from the models by the rules of the loader (:mod:`.layer` for names, :mod:`.binding` for values), so it
takes what the loader takes and refuses what the loader refuses, but for :data:`BEYOND`. Nested names are its ``properties``,
which editors offer; dotted ones and RocketMQ's are ``patternProperties``, which are checked and not offered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from flintmq.config.loading.layer import OPEN_SECTIONS
from flintmq.config.loading.schema import (
    COMPOSITES,
    KEYS,
    NAMES,
    SECTIONS,
    TRANSIENT_POOL,
    Role,
    aliases_in,
    field_docs,
)
from flintmq.config.loading.value_schema import (
    Schema,
    boolean_schema,
    dotted,
    escaped,
    field_schema,
    model_schema,
    plain_text,
    text_schema,
    whole,
)
from flintmq.config.rocketmq.flush_type import ASYNC, SYNC
from flintmq.config.sections.models import BrokerConfig

BEYOND: Final[Mapping[str, str]] = MappingProxyType(
    {
        "twice": "One key is set once, however it is spelled: nested, dotted, or by RocketMQ's name.",
        "together": "Values that are fine alone may not fit together, and the class of a section may check more of its values.",
        "text numbers": "A number that is written as text (5s, 64KiB, 6_000, '8') is checked for its form, not for its bounds, "
        "its length, or being a whole number of the key's unit.",
        "fractions": "5.0 and 1e3 are whole numbers for a schema. The loader reads them as they are written, and refuses them.",
        "numbers as text": "A pattern cannot be applied to a number: where a text must fit one that not all numbers fit, a "
        "number must be quoted.",
        "converted": "A few values are brought into form or within bounds, as RocketMQ does it; the schema describes what "
        "comes out: diskMaxUsedSpaceRatio 10 to 95, whole units of the consume queue, paths and topics listed once.",
        "dotted sections": "What a plugin's section requires is looked for in its nested form.",
        "yaml": "Anchors, aliases, tags, keys given twice, more than 10 levels, 20,000 values or 1 MiB are refused before any "
        "value is looked at.",
    }
)
"""What the loader demands, and a schema cannot say, or the reverse. Nothing else differs."""


def json_schema(sections: Mapping[str, type[Any]] = MappingProxyType({}), role: Role = "broker") -> Schema:
    """Return the schema of the whole configuration.

    Args:
        sections: the models of plugins' sections by dotted name: ``my_plugin``, ``flush.my_strategy``.
        role: whose meaning an ambiguous RocketMQ name has.

    Raises:
        TypeError: a plugin's model has a field of a type that is not understood.
    """
    return _Sections(sections, role).whole()


class _Sections:
    """Names of the configuration, and what each of them takes."""

    def __init__(self, plugins: Mapping[str, type[Any]], role: Role) -> None:
        self._role: Role = role
        # A section of any other name cannot be written: its dots would be sections.
        self._plugins = {
            name: model_schema(model, 1)
            for name, model in plugins.items()
            if name not in SECTIONS and name.rpartition(".")[0] in OPEN_SECTIONS
        }

    def whole(self) -> Schema:
        """Return the schema."""
        beyond = "Beyond this schema: " + " ".join(BEYOND.values())
        definitions: Schema = {name: self._section(name) for name in SECTIONS}
        for name, key in KEYS.items():
            definitions[name] = field_schema(key.model, key.field, key.hint)
            unit = key.spec.rocketmq_unit
            if unit is not None:
                definitions[f"{name}.in_{unit}"] = field_schema(key.model, key.field, key.hint, unit)
        definitions |= {name: _composite(name) for name in COMPOSITES} | self._plugins
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "FlintMQ's configuration",
            "$comment": beyond,
            **self._section(""),
            "$defs": definitions,
        }

    def _section(self, section: str) -> Schema:
        """Return what a section takes; the empty name is the top level."""
        offered = {name.rpartition(".")[2]: _reference(name) for name in self._members(section)}
        targets: dict[str, tuple[Schema, list[str]]] = {}
        for name, schema in self._names(section):
            if name not in offered:
                targets.setdefault(json.dumps(schema), (schema, []))[1].append(name)
        made: Schema = {"description": _section_doc(section)} if section else {}
        return made | {
            "type": ["object", "null"],
            "properties": offered,
            "patternProperties": {whole("|".join(dict.fromkeys(names))): schema for schema, names in targets.values()},
            "additionalProperties": False,
        }

    def _members(self, section: str) -> Iterator[str]:
        """Yield the dotted names of the keys and sections that lie directly in a section."""
        yield from (name for name in (*NAMES, *self._plugins) if name.rpartition(".")[0] == section)

    def _names(self, section: str) -> Iterator[tuple[str, Schema]]:
        """Yield every name that counts in a section, as a regular expression, with what it takes (see ``Layer._place``)."""
        for name in self._members(section):
            leaf = escaped(name.rpartition(".")[2])
            yield leaf, _reference(name)
            if name in SECTIONS:
                yield from ((rf"{leaf}\.{inner}", schema) for inner, schema in self._names(name))
            elif name in self._plugins:
                yield from ((leaf + path, schema) for path, schema in dotted(self._plugins[name]))
        for alias, names in aliases_in(section, self._role).items():
            if not section or "." not in alias:
                yield escaped(alias), _all_of(names)
        if section in OPEN_SECTIONS:
            yield from ((name, _reference(name)) for name in COMPOSITES)


def _section_doc(section: str) -> str:
    above, _, leaf = section.rpartition(".")
    return plain_text(field_docs(SECTIONS.get(above, BrokerConfig)).get(leaf, ""))  # type: ignore[arg-type]  # a class is hashable


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _all_of(names: tuple[str, ...]) -> Schema:
    """Return what one of RocketMQ's names takes that sets these keys."""
    units = {name: KEYS[name].spec.rocketmq_unit for name in names}
    parts = [_reference(f"{name}.in_{unit}" if unit else name) for name, unit in units.items()]
    return parts[0] if len(parts) == 1 else {"allOf": parts}


def _composite(name: str) -> Schema:
    """Return what ``flushDiskType`` or ``transientStorePoolEnable`` takes."""
    made = boolean_schema() if name == TRANSIENT_POOL else text_schema(rf"\s*({SYNC}|{ASYNC})\s*")
    return {"description": f"RocketMQ's {name}, which is `flush.strategy` here."} | made
