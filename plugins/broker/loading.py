"""From what an embedder hands over to a checked configuration and the plugins of a broker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.config import BrokerConfig, LoadedConfig, load_config
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.kernel import Kernel
from flintmq.plugins.broker.plugin_settings import PluginSettings
from flintmq.plugins.broker.required import check_required
from flintmq.plugins.broker.service import tell_ignored
from flintmq.plugins.builtin import BUILTIN_PLUGINS

if TYPE_CHECKING:
    from flintmq.config.loading.schema import Role


def as_loaded(config: BrokerConfig | LoadedConfig | Path | str | None, role: Role = "broker") -> LoadedConfig:
    """Return a configuration in any of the forms an embedder may have it: a value, a loaded one, a file, or the defaults."""
    if isinstance(config, LoadedConfig):
        return config
    if isinstance(config, BrokerConfig):
        return LoadedConfig(config=config, origins={}, sections={})
    loaded = load_config(Path(config) if config is not None else None, environ={}, role=role)
    tell_ignored(loaded)
    return loaded


def config_path(loaded: LoadedConfig) -> Path | None:
    """Return the file that ``plugins`` stands in; None where it stands in none."""
    origin = loaded.origins.get("plugins")
    return Path(origin.place) if origin is not None and origin.kind == "file" and origin.place else None


def load_plugins(loaded: LoadedConfig, objects: Iterable[object], clock: Clock) -> tuple[Kernel, PluginSettings]:
    """Load the plugins of a broker, and check their settings.

    Args:
        loaded: the configuration.
        objects: plugin objects of the program the broker lives in.
        clock: time.

    Raises:
        ConfigError, PluginError: a plugin or a section is wrong, or a setting asks for a plugin that is not there.
    """
    from flintmq.plugins.broker.processors import ProcessorsPlugin

    config = loaded.config
    kernel = Kernel.assemble(
        config.plugins,
        (*BUILTIN_PLUGINS, ProcessorsPlugin()),
        objects=objects,
        disabled=config.disabled_plugins,
        config_path=config_path(loaded),
        clock=clock,
    )
    settings = PluginSettings(kernel, loaded, clock)
    settings.check()
    check_required(config, kernel)
    return kernel, settings
