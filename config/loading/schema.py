"""Every key by its dotted name, and RocketMQ's names for it, derived from the models."""

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
"""Whose names count where RocketMQ uses one name for two things: ``listenPort`` is a broker's or a name server's port."""

NAMESERVER: Final = "nameserver"
"""The section of the name server."""

FLUSH_DISK_TYPE: Final = "flushDiskType"
TRANSIENT_POOL: Final = "transientStorePoolEnable"
COMPOSITES: Final = (FLUSH_DISK_TYPE, TRANSIENT_POOL)
"""RocketMQ's two keys that together mean ``flush.strategy``."""


@attrs.frozen
class Key:
    """One setting."""

    name: str
    """Dotted: ``flush.group_commit.sync_flush_timeout_ms``."""
    model: type[Any]
    """The section's class."""
    field: attrs.Attribute[Any]
    """The attrs field."""
    hint: Any
    """The field's type."""

    @property
    def spec(self) -> FieldSpec:
        """Return its unit, range and other names."""
        return spec_of(self.field)

    @property
    def doc(self) -> str:
        """Return the docstring under the field; empty where the source is not at hand."""
        return field_docs(self.model).get(self.field.name, "")  # type: ignore[arg-type]  # a class is hashable

    @property
    def feature(self) -> str:
        """Return the name of the plugin that does what the key says; empty for a key that every broker has."""
        spec: FieldSpec = self.field.metadata.get(SPEC, NO_SPEC)  # faster than with its unit: each start asks all keys
        return spec.feature or getattr(self.model, "FEATURE", "")

    def value_of(self, config: BrokerConfig) -> Any:
        """Return the key's value."""
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
"""Every key and section by dotted name, in the models' order."""

KEYS: Final[Mapping[str, Key]] = MappingProxyType({n: k for n, k in _ALL.items() if isinstance(k, Key)})
"""Every setting by dotted name, in the models' order."""

SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType({n: k for n, k in _ALL.items() if isinstance(k, type)})
"""Every section's class by dotted name."""


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
    """Return RocketMQ's names, each with the dotted keys it sets, as they count for a role outside any section."""
    return _BY_ROLE[role]


def aliases_in(section: str, role: Role = "broker") -> Mapping[str, tuple[str, ...]]:
    """Return RocketMQ's names that count inside a section (dotted; empty for the top level)."""
    if not section:
        return _BY_ROLE[role]
    table = _NAMESRV_ALIASES if section == NAMESERVER else _BROKER_ALIASES
    inside = {alias: tuple(name for name in names if name.startswith(f"{section}.")) for alias, names in table.items()}
    return {alias: names for alias, names in inside.items() if names}


@functools.cache
def field_docs(model: type[Any]) -> Mapping[str, str]:
    """Return the docstrings under the fields of a class, each as one line; empty where the source is not at hand."""
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
