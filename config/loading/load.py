"""Loading of the configuration: defaults, then a file, the environment and the command line; later ones win."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.loading.binding import bind_field, bind_model
from flintmq.config.loading.layer import (
    STRATEGY,
    Ignored,
    Layer,
    environment_layer,
    mapping_layer,
    override_layer,
)
from flintmq.config.loading.raw import DEFAULT, Origin, RawMapping
from flintmq.config.loading.schema import COMPOSITES, KEYS, SECTIONS, Role
from flintmq.config.rocketmq.flush_type import FlushType
from flintmq.config.sections.models import BrokerConfig

M = TypeVar("M")

REMOVED: Final[Mapping[str, str]] = {
    "plugin_budget": "plugins have no budgets of time; delete the section, and set 'plugin_failures_max' in place of its "
    "'errors'"
}
"""Sections that were settings, with the remedy for who still writes them."""


@attrs.frozen
class LoadedConfig:
    """A configuration with the place every value comes from. Immutable; safe to share between threads."""

    config: BrokerConfig
    """The values."""
    origins: Mapping[str, Origin]
    """Where each dotted key's value comes from; every key is there."""
    sections: Mapping[str, RawMapping]
    """Sections no built-in model describes, by dotted name (``my_plugin``, ``flush.my_strategy``): plugins' or mistakes."""
    role: Role = "broker"
    """Whose meaning an ambiguous RocketMQ name had."""
    layers: tuple[Layer, ...] = attrs.field(default=(), repr=False, eq=False)
    """The sources, lowest first."""

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """Return the lines of RocketMQ files that change nothing here, for a warning at the start."""
        return tuple(entry for layer in self.layers for entry in layer.ignored)

    def section(self, name: str, model: type[M]) -> M:
        """Return a plugin's section as an instance of the plugin's own attrs class; its defaults where nothing is written.

        Args:
            name: ``my_plugin``, or ``flush.my_strategy`` for a flush strategy's settings.
            model: an attrs class; :func:`flintmq.config.option` declares units and ranges, plain fields work too.

        Raises:
            ConfigError: a key is unknown or missing, or a value does not fit; names the line.
        """
        return bind_model(self.sections.get(name, RawMapping()), model, name)

    def written(self, key: str) -> Origin | None:
        """Return where a setting is written: in a file, in the environment or on the command line; None for one that is not."""
        origin = self.origins.get(key, DEFAULT)
        return None if origin.kind == "default" else origin

    def check_claimed(self, names: Iterable[str], switched_off: Sequence[str] = ()) -> None:
        """Raise for a section that no plugin has claimed.

        Args:
            names: the sections that plugins claimed, dotted as in :attr:`sections`.
            switched_off: plugins that were not asked, for the error.

        Raises:
            ConfigError: a section is not among them; suggests the nearest name.
        """
        claimed = set(names)
        for name, found in self.sections.items():
            if name not in claimed:
                near = nearest(name, (*claimed, *SECTIONS, *KEYS))
                message = f"unknown key '{name}': no plugin has such a section"
                if switched_off:
                    off = ", ".join(f"'{plugin}'" for plugin in switched_off)
                    message += f"; those of a plugin that 'disabled_plugins' lists ({off}) go with it"
                raise found.origin.error(message, key=name, suggestion=near)

    def with_overrides(self, overrides: Sequence[str]) -> LoadedConfig:
        """Return this configuration with further ``key=value`` settings on top.

        Raises:
            ConfigError: as :func:`load_config`.
        """
        return assemble((*self.layers, override_layer(overrides, self.role)), self.role)


def load_config(
    file: Path | str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    role: Role = "broker",
) -> LoadedConfig:
    """Load the configuration. Sections that no built-in model describes are checked by :meth:`LoadedConfig.check_claimed`.

    Args:
        file: YAML, or RocketMQ's properties (``broker.conf``), recognised by its content; None for none.
        overrides: ``key=value`` texts, as given to ``--set``.
        environ: environment variables; None for the process's own, ``{}`` for none.
        role: whether RocketMQ's ``listenPort`` and the like mean the broker's or the name server's.

    Raises:
        ConfigError: the file cannot be read, or a setting is unknown, malformed, out of range or set twice.
    """
    layers = []
    if file is not None:
        layers.append(_file_layer(read_limited(Path(file)), str(file), role))
    layers.append(environment_layer(os.environ if environ is None else environ, role))
    layers.append(override_layer(overrides, role))
    return assemble(tuple(layers), role)


def load_text(text: str, *, name: str = "configuration", role: Role = "broker") -> LoadedConfig:
    """Load YAML text alone, without the environment; ``name`` is what errors call it.

    Raises:
        ConfigError: as :func:`load_config`.
    """
    return assemble((_yaml_layer(text, name, role),), role)


def _file_layer(content: bytes, name: str, role: Role) -> Layer:
    from flintmq.config.rocketmq.properties import decode_properties, has_rocketmq_keys, is_properties, properties_layer

    text = decode_properties(content)
    if is_properties(text, name):
        return properties_layer(text, role, file=name)
    try:
        return _yaml_layer(content, name, role)
    except ConfigError as error:
        if error.key is None and has_rocketmq_keys(text, role):  # no YAML at all
            error.message += f"; if it is RocketMQ's file, this makes YAML of it: flintmq config import {name}"
        raise


def _yaml_layer(content: str | bytes, name: str, role: Role) -> Layer:
    from flintmq.config.loading.yaml_source import parse_yaml  # a MiB that a broker without a file does without

    return mapping_layer(parse_yaml(content, name), role)


def assemble(layers: tuple[Layer, ...], role: Role = "broker") -> LoadedConfig:
    """Lay layers over the defaults, the first one lowest.

    Raises:
        ConfigError: a value does not fit.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, DEFAULT)
    flush_type = FlushType()
    for layer in layers:
        for name, assignment in layer.assignments.items():
            origin = assignment.node.origin
            if name in COMPOSITES:
                flush_type = flush_type.with_composite(name, assignment.node, assignment.spelling)
                if values.get(STRATEGY) != flush_type.strategy or origins[STRATEGY].place != origin.place:
                    values[STRATEGY], origins[STRATEGY] = flush_type.strategy, origin
                continue
            key = KEYS[name]
            values[name] = bind_field(assignment.node, key.hint, key.field, name)
            origins[name] = origin
            if name == STRATEGY:
                flush_type = FlushType.of_strategy(values[name])
    sections: dict[str, RawMapping] = {}
    for layer in layers:
        for name, mapping in layer.sections.items():
            sections[name] = sections[name].merged(mapping) if name in sections else mapping
    for name in sections.keys() & REMOVED.keys():
        raise sections[name].origin.error(f"'{name}' is not a setting any more: {REMOVED[name]}", key=name)
    try:
        config: BrokerConfig = _build(BrokerConfig, "", values)
    except ConfigError as error:  # values that are fine alone do not fit together
        origin = _guilty(error.key or "", origins)
        raise origin.error(error.message, key=error.key, suggestion=error.suggestion) from error
    return LoadedConfig(config, MappingProxyType(origins), MappingProxyType(sections), role, layers)


def _build(model: type[Any], prefix: str, values: Mapping[str, Any]) -> Any:
    given: dict[str, Any] = {}
    for field in attrs.fields(model):
        name = f"{prefix}{field.name}"
        if name in SECTIONS:
            given[field.name] = _build(SECTIONS[name], f"{name}.", values)
        elif name in values:
            given[field.name] = values[name]
    return model(**given)


def _guilty(key: str, origins: Mapping[str, Origin]) -> Origin:
    """Return where to look for the mistake: the key itself, or what else was written in its section."""
    section = key.rpartition(".")[0]
    near = [key, *(name for name in origins if section and name.startswith(f"{section}."))]
    return next((origins[name] for name in near if origins.get(name, DEFAULT) != DEFAULT), DEFAULT)


def read_limited(file: Path) -> bytes:
    """Return a file's content, cut where it is longer than YAML may be. Raises ``ConfigError``."""
    from flintmq.config.loading.yaml_source import YAML_MAX_BYTES

    try:
        with file.open("rb") as stream:
            return stream.read(YAML_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=str(file)) from error
