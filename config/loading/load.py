"""Loads the configuration from defaults, a file, the environment and the command line. Later sources override earlier
sources."""

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
"""Remedy for each section that was removed from the configuration, keyed by the section's name. An error shows the remedy if a
configuration still has the section."""


@attrs.frozen
class LoadedConfig:
    """A configuration with the source of each value. Immutable; safe to share between threads."""

    config: BrokerConfig
    """The loaded configuration, with a value for every setting."""
    origins: Mapping[str, Origin]
    """Source of the value of every setting, keyed by the setting's dotted key."""
    sections: Mapping[str, RawMapping]
    """Sections of plugins, and sections that are not known, keyed by dotted name (``my_plugin``, ``flush.my_strategy``)."""
    role: Role = "broker"
    """The process, broker or name server, that an ambiguous RocketMQ name refers to. For example, broker and name server both
    have a setting ``listenPort``."""
    layers: tuple[Layer, ...] = attrs.field(default=(), repr=False, eq=False)
    """Sources of settings. A later source overrides the earlier sources."""

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """Return the lines of RocketMQ's properties files that have no effect in FlintMQ, for a warning at the start."""
        return tuple(entry for layer in self.layers for entry in layer.ignored)

    def section(self, name: str, model: type[M]) -> M:
        """Return a plugin's section as an instance of the plugin's attrs class. Settings that no source sets have defaults.

        Args:
            name: ``my_plugin``, or ``flush.my_strategy`` for the settings of a flush strategy.
            model: an attrs class. Its fields may be declared with :func:`flintmq.config.option`, which adds units and ranges.

        Raises:
            ConfigError: a key is unknown or missing, or a value is invalid. The error names the line.
        """
        return bind_model(self.sections.get(name, RawMapping()), model, name)

    def written(self, key: str) -> Origin | None:
        """Return the file, environment variable or command line that sets a setting; None if it has its default."""
        origin = self.origins.get(key, DEFAULT)
        return None if origin.kind == "default" else origin

    def check_claimed(self, names: Iterable[str], switched_off: Sequence[str] = ()) -> None:
        """Check that each section in :attr:`sections` belongs to a plugin.

        Args:
            names: dotted names of the sections of plugins.
            switched_off: names of plugins that are switched off, for the error.

        Raises:
            ConfigError: a section belongs to no plugin. The error suggests the nearest name.
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
        """Return this configuration with further settings, ``key=value`` each, which override all others.

        Raises:
            ConfigError: a setting is unknown, malformed, out of range or set twice.
        """
        return assemble((*self.layers, override_layer(overrides, self.role)), self.role)


def load_config(
    file: Path | str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    role: Role = "broker",
) -> LoadedConfig:
    """Load the configuration. Unknown sections may belong to plugins; :meth:`LoadedConfig.check_claimed` checks them.

    Args:
        file: path of a file of YAML or of RocketMQ's properties (``broker.conf``), which are distinguished by the content; None
            for no file.
        overrides: settings as ``key=value``, as for the option ``--set``.
        environ: environment variables; None for those of the process.
        role: broker or name server. Some names of RocketMQ, such as ``listenPort``, have another meaning in each of them.

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
    """Load the configuration from YAML text, without the environment.

    Args:
        text: the YAML text.
        name: name of the text in errors.
        role: broker or name server. Some names of RocketMQ have another meaning in each of them.

    Raises:
        ConfigError: a setting is unknown, malformed, out of range or set twice.
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
        if error.key is None and has_rocketmq_keys(text, role):
            # An error without a key means that the file is not valid YAML.
            # A file with RocketMQ's setting names is probably RocketMQ's own file, so the error suggests an import of the file.
            error.message += f"; if it is RocketMQ's file, this makes YAML of it: flintmq config import {name}"
        raise


def _yaml_layer(content: str | bytes, name: str, role: Role) -> Layer:
    # parse_yaml is imported late, because it loads PyYAML (1 MiB of memory), and only a configuration file needs PyYAML.
    from flintmq.config.loading.yaml_source import parse_yaml

    return mapping_layer(parse_yaml(content, name), role)


def assemble(layers: tuple[Layer, ...], role: Role = "broker") -> LoadedConfig:
    """Return the configuration that the defaults and some sources of settings (layers) give. Later layers override earlier
    layers.

    Raises:
        ConfigError: a value is invalid, or two values contradict each other.
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
    except ConfigError as error:
        # The error means that two settings, each of which is valid alone, contradict each other.
        # The error text names the file, line or environment variable that sets one of the two contradicting settings.
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
    """Return the place that an error about the setting ``key`` shows as its cause, such as a line of a file or an environment
    variable.

    If the setting has its default value, it was not set in any place. The result is then the place of another setting that is
    set in the same section, because the two settings may contradict each other. If all settings of the section have their
    default values, the result is ``DEFAULT``.
    """
    section = key.rpartition(".")[0]
    near = [key, *(name for name in origins if section and name.startswith(f"{section}."))]
    return next((origins[name] for name in near if origins.get(name, DEFAULT) != DEFAULT), DEFAULT)


def read_limited(file: Path) -> bytes:
    """Return the content of a configuration file. If the file is longer than a YAML configuration may be, return only the
    beginning. Raises ``ConfigError`` if the file cannot be read."""
    from flintmq.config.loading.yaml_source import YAML_MAX_BYTES

    try:
        with file.open("rb") as stream:
            return stream.read(YAML_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror or error}", file=str(file)) from error
