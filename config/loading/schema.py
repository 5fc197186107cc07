"""Tables of all settings by dotted key, and of RocketMQ's names for them, derived from the classes of the sections."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs

from flintmq.config.fields import NO_SPEC, SPEC, FieldSpec, spec_of
from flintmq.config.sections.models import BrokerConfig

Role = Literal["broker", "namesrv"]
"""The process that a RocketMQ name refers to if broker and name server have a setting of that name, such as ``listenPort``."""

NAMESERVER: Final = "nameserver"
"""Name of the section with the settings of the name server."""

FLUSH_DISK_TYPE: Final = "flushDiskType"
TRANSIENT_POOL: Final = "transientStorePoolEnable"
COMPOSITES: Final = (FLUSH_DISK_TYPE, TRANSIENT_POOL)
"""The two RocketMQ names that together set ``flush.strategy``."""


@attrs.frozen
class Key:
    """A setting, with the class and the field that declare it."""

    name: str
    """Dotted key of a setting, such as ``flush.group_commit.sync_flush_timeout_ms``."""
    model: type[Any]
    """Class of the section that contains the setting."""
    field: attrs.Attribute[Any]
    """Field of the section's class that declares the setting."""
    hint: Any
    """Type of the setting's field."""

    @property
    def spec(self) -> FieldSpec:
        """Return the unit, the allowed values and the RocketMQ names of the setting."""
        return spec_of(self.field)

    @property
    def doc(self) -> str:
        """Return the description of the setting, which is the string under its field, as one line; empty if the source code is
        not available."""
        return field_docs(self.model).get(self.field.name, "")  # type: ignore[arg-type]  # a class is hashable

    @property
    def feature(self) -> str:
        """Return the name of the plugin that uses the setting; empty for a setting of every broker."""
        # Each start reads the metadata of all settings, so the metadata are read without spec_of(), which is slower.
        spec: FieldSpec = self.field.metadata.get(SPEC, NO_SPEC)
        return spec.feature or getattr(self.model, "FEATURE", "")

    def value_of(self, config: BrokerConfig) -> Any:
        """Return the setting's value in a configuration. The setting's dotted name is the path to the value: the setting
        ``store.compat`` is the attribute ``compat`` of ``config.store``."""
        return functools.reduce(getattr, self.name.split("."), config)


def _walk(model: type[Any], prefix: str) -> Iterator[tuple[str, Key | type[Any]]]:
    hints = typing.get_type_hints(model)
    for field in attrs.fields(model):
        name = f"{prefix}{field.name}"
        hint = hints[field.name]
        if isinstance(hint, type) and attrs.has(hint):
            yield name, hint
            yield from _walk(hint, f"{name}.")
        else:
            yield name, Key(name, model, field, hint)


_ALL = dict(_walk(BrokerConfig, ""))

NAMES: Final = tuple(_ALL)
"""Dotted names of all settings and sections, in the order of the classes that declare them."""

KEYS: Final[Mapping[str, Key]] = MappingProxyType({n: k for n, k in _ALL.items() if isinstance(k, Key)})
"""All settings, keyed by dotted name, in the order of the classes that declare them."""

SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType({n: k for n, k in _ALL.items() if isinstance(k, type)})
"""Classes of all sections of the configuration, keyed by the section's dotted name."""


def _aliases(*, nameserver: bool) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key in KEYS.values():
        if key.name.startswith(f"{NAMESERVER}.") is nameserver:
            for alias in key.spec.rocketmq:
                found[alias] = (*found.get(alias, ()), key.name)
    return found


_BROKER_ALIASES: Final = _aliases(nameserver=False)
_NAMESRV_ALIASES: Final = _aliases(nameserver=True)
_BY_ROLE: Final[Mapping[Role, Mapping[str, tuple[str, ...]]]] = {
    "broker": MappingProxyType(_NAMESRV_ALIASES | _BROKER_ALIASES),
    "namesrv": MappingProxyType(_BROKER_ALIASES | _NAMESRV_ALIASES),
}


def aliases(role: Role = "broker") -> Mapping[str, tuple[str, ...]]:
    """Return the settings that each of RocketMQ's names sets, if the name is written outside any section. The result has dotted
    keys of FlintMQ, keyed by RocketMQ's name. Some of these names set one setting in the configuration of a broker and another
    in the configuration of a name server. ``role`` selects one of the two."""
    return _BY_ROLE[role]


def aliases_in(section: str, role: Role = "broker") -> Mapping[str, tuple[str, ...]]:
    """Return the dotted keys that each RocketMQ name sets inside a section, keyed by RocketMQ's name.

    Args:
        section: the dotted name of the section; empty for the top level.
        role: broker or name server. Some names of RocketMQ have another meaning at the top level of each of them.
    """
    if not section:
        return _BY_ROLE[role]
    table = _NAMESRV_ALIASES if section == NAMESERVER else _BROKER_ALIASES
    inside = {alias: tuple(name for name in names if name.startswith(f"{section}.")) for alias, names in table.items()}
    return {alias: names for alias, names in inside.items() if names}


@functools.cache
def field_docs(model: type[Any]) -> Mapping[str, str]:
    """Return the descriptions of the fields of a class, which are the strings under the fields, as one line each, keyed by
    field; empty if the class's source code is not available."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    docs: dict[str, str] = {}
    for statement, following in itertools.pairwise(getattr(body, "body", ())):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
