"""Returns a JSON Schema (draft 2020-12) of the configuration, with which editors complete and check YAML.

The schema is derived from the classes of the sections by the rules of the loader (:mod:`.layer` for names, :mod:`.binding` for
values). It accepts and refuses the same documents as the loader, except for the differences in :data:`BEYOND`. Nested names are
``properties``, which editors offer. Dotted names and RocketMQ's names are ``patternProperties``, which are only checked.
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
        "twice": "The loader refuses a file that sets a key twice, for example by its nested and by its dotted name, or by "
        "RocketMQ's name. The schema does not detect this.",
        "together": "The loader refuses values that contradict each other, and the class of a section may have more checks. "
        "The schema does not make these checks.",
        "text numbers": "The schema checks the form of a number that is written as text (5s, 64KiB, 6_000, '8'), but not its "
        "bounds, its length, or whether it is a whole number of the key's unit.",
        "fractions": "The schema accepts 5.0 and 1e3 as whole numbers. The loader refuses them.",
        "numbers as text": "A schema cannot apply a pattern to a number. If a text must match a pattern that not all numbers "
        "match, a number must be quoted.",
        "converted": "The loader rounds, limits or merges a few values, as RocketMQ does. The schema describes the result: "
        "diskMaxUsedSpaceRatio of 10 to 95, whole units of the consume queue, paths and topics listed once.",
        "dotted sections": "If a plugin's section is written with dotted names, the schema does not detect that a required "
        "key is missing. The loader does.",
        "yaml": "The loader refuses a YAML file with anchors, aliases, tags or duplicate keys, or with more than 10 levels, "
        "20,000 values or 1 MiB, before it checks any value.",
    }
)
"""Differences between the checks of the JSON Schema and those of the loader, as sentences, keyed by a short name."""


def json_schema(sections: Mapping[str, type[Any]] = MappingProxyType({}), role: Role = "broker") -> Schema:
    """Return the schema of the whole configuration.

    Args:
        sections: attrs classes of plugins' sections, keyed by dotted name (``my_plugin``, ``flush.my_strategy``).
        role: broker or name server. Some names of RocketMQ have another meaning in each of them.

    Raises:
        TypeError: a plugin's class has a field of a type that is not supported.
    """
    return _Sections(sections, role).whole()


class _Sections:
    """Builds the JSON Schemas of all sections of the configuration. Used by :func:`json_schema`."""

    def __init__(self, plugins: Mapping[str, type[Any]], role: Role) -> None:
        self._role: Role = role
        # A dot in a plugin's name means a nested section of the configuration. Plugins add sections only under OPEN_SECTIONS.
        self._plugins = {
            name: model_schema(model, 1)
            for name, model in plugins.items()
            if name not in SECTIONS and name.rpartition(".")[0] in OPEN_SECTIONS
        }

    def whole(self) -> Schema:
        """Return the JSON Schema of the configuration's top level, with the definitions of all sections and keys."""
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
        """Return the JSON Schema of a section of the configuration. The empty name stands for the top level."""
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
        """Yield a pair for every name that a section accepts: a regular expression for the name, and the schema of the name."""
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
    """Return the schema of a RocketMQ name that sets all of the given keys."""
    units = {name: KEYS[name].spec.rocketmq_unit for name in names}
    parts = [_reference(f"{name}.in_{unit}" if unit else name) for name, unit in units.items()]
    return parts[0] if len(parts) == 1 else {"allOf": parts}


def _composite(name: str) -> Schema:
    """Return the schema of ``flushDiskType`` or ``transientStorePoolEnable``."""
    made = boolean_schema() if name == TRANSIENT_POOL else text_schema(rf"\s*({SYNC}|{ASYNC})\s*")
    return {"description": f"RocketMQ's {name}, which is `flush.strategy` here."} | made
