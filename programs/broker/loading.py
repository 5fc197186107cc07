"""Turns an embedder's arguments into a checked configuration, the broker's plugins, and the plugins' settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.config import BrokerConfig, LoadedConfig, load_config
from flintmq.config.errors import ConfigError
from flintmq.config.loading.schema import KEYS
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.failures import Failures
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.core.kernel.registry import Registered
from flintmq.plugins.builtin import BUILTIN_PLUGINS
from flintmq.programs.broker.service import tell_ignored

if TYPE_CHECKING:
    from flintmq.config.loading.schema import Role
    from flintmq.core.kernel.registries import Registries


def as_loaded(config: BrokerConfig | LoadedConfig | Path | str | None, role: Role = "broker") -> LoadedConfig:
    """Return the loaded configuration for a configuration object, a loaded configuration, the path of a file, or None, which
    means the defaults."""
    if isinstance(config, LoadedConfig):
        return config
    if isinstance(config, BrokerConfig):
        return LoadedConfig(config=config, origins={}, sections={})
    loaded = load_config(Path(config) if config is not None else None, environ={}, role=role)
    tell_ignored(loaded)
    return loaded


def config_path(loaded: LoadedConfig) -> Path | None:
    """Return the configuration file that contains the setting ``plugins``; None if no file contains the setting."""
    origin = loaded.origins.get("plugins")
    return Path(origin.place) if origin is not None and origin.kind == "file" and origin.place else None


def new_failures(loaded: LoadedConfig) -> Failures:
    """Return a new counter of plugins' failures, with the limit ``plugin_failures_max`` of a configuration."""
    return Failures(loaded.config.plugin_failures_max)


def load_plugins(
    loaded: LoadedConfig, objects: Iterable[object], clock: Clock, failures: Failures | None = None
) -> tuple[Kernel, PluginSettings]:
    """Load the plugins of a broker, check their settings, and return the plugins and the settings.

    Args:
        loaded: the configuration.
        objects: plugin objects of the program that embeds the broker.
        clock: the clock.
        failures: counts the plugins' failures; None for a new counter.

    Raises:
        ConfigError, PluginError: a plugin or a section is not valid, or a setting needs a plugin that is missing.
    """
    from flintmq.programs.broker.processors import ProcessorsPlugin

    config = loaded.config
    kernel = Kernel.assemble(
        config.plugins,
        (*BUILTIN_PLUGINS, ProcessorsPlugin()),
        objects=objects,
        disabled=config.disabled_plugins,
        disabled_at=loaded.written("disabled_plugins"),
        config_path=config_path(loaded),
        clock=clock,
        failures=failures or new_failures(loaded),
    )
    settings = PluginSettings(kernel, loaded, clock)
    settings.check()
    check_required(config, kernel)
    return kernel, settings


def check_required(config: BrokerConfig, kernel: Kernel) -> None:
    """Check that the plugins that are needed by settings with non-default values are loaded.

    Raises:
        ConfigError: a setting needs a plugin that is not loaded; the error names the setting and the plugin.
    """
    registries = kernel.registries
    known = {info.name for info in kernel.describe() if info.enabled}
    known.update(registries.services.names(), registries.authenticators.names(), registries.dispatchers.names())
    for name, key in KEYS.items():
        if key.feature and key.feature not in known and key.value_of(config) != key.field.default:
            raise missing(name, key.feature)


def missing(key: str, plugin: str) -> ConfigError:
    """Return the error for a setting whose plugin is not loaded."""
    return ConfigError(f"'{key}' needs the plugin '{plugin}', which is not loaded: see 'disabled_plugins'", key=key)


class PluginSettings:
    """The plugins' sections of a configuration. Created while a broker is assembled; read-only afterwards.

    Args:
        kernel: the registry of plugins, with the factories that they registered. Factories for pools, processors and filters
            get their settings from this object.
        loaded: the configuration.
        clock: the clock in the factories' context.
        flushes: whether the server uses a flush strategy. A broker does, a name server does not. If false, the sections of
            flush strategies are ignored.
    """

    def __init__(
        self, kernel: Kernel, loaded: LoadedConfig, clock: Clock = SYSTEM_CLOCK, *, flushes: bool = True
    ) -> None:
        self._kernel = kernel
        self.loaded = loaded
        self._models: dict[str, type[Any]] = {
            entry.name: entry.value for entry in kernel.registries.config_sections.all()
        }
        self._flushes = flushes
        self._strategies = kernel.registries.flush_strategies.all(loaded.config.flush.strategy) if flushes else ()
        self._made: dict[str, Any] = {}
        kernel.settings_of = self.of

    @property
    def models(self) -> dict[str, type[Any]]:
        """The models of the plugins' sections, keyed by dotted name such as ``audit`` or ``flush.my_strategy``."""
        of_strategies = {f"flush.{entry.name}": entry.value.settings_model for entry in self._strategies}
        return self._models | {name: model for name, model in of_strategies.items() if model is not None}

    def check(self) -> None:
        """Check every section of a plugin in the configuration, whether the section is used or not.

        Raises:
            ConfigError: no plugin has the section, or a key or value is not valid; the error names the line and similar names.
        """
        models = self.models
        known = [*models, *(name for name in self.loaded.sections if name.startswith("flush.") and not self._flushes)]
        off = [info.name for info in self._kernel.describe() if not info.enabled]
        self.loaded.check_claimed(known, off)
        for name, model in models.items():
            if name in self.loaded.sections:
                self.loaded.section(name, model)

    def of(self, registered: Registered[Any]) -> Any:
        """Return the settings of an object that a plugin registered: the section with the object's name, or else the plugin's
        only section.

        None if the plugin has no section, or has several sections and none with the object's name. Raises ConfigError.
        """
        name = section_for(self._kernel.registries, registered)
        if name is None:
            return None
        if name not in self._made:
            self._made[name] = self.loaded.section(name, self._models[name])
        return self._made[name]

    def of_strategy(self, registered: Registered[FlushStrategy[Any]]) -> Any:
        """Return the settings of a flush strategy; None if the strategy has no section in the configuration.

        A built-in strategy, and a strategy with a ``settings_model``, have the section ``flush.<name>``. Another strategy has
        the section with the strategy's name, or, without such a section, the only section that its plugin registered.

        Raises ConfigError.
        """
        strategy = registered.value
        built_in = getattr(self.loaded.config.flush, strategy.name, None)
        if built_in is not None:
            return built_in
        if strategy.settings_model is None:
            return self.of(registered)
        return self.loaded.section(f"flush.{strategy.name}", strategy.settings_model)


def section_for(registries: Registries, registered: Registered[Any]) -> str | None:
    """Return the name of the configuration section of an object that a plugin registered: the plugin's section with the
    object's name, or else the plugin's only section."""
    names = [entry.name for entry in registries.config_sections.of(registered.owner)]
    if registered.name in names:
        return registered.name
    return names[0] if len(names) == 1 else None
