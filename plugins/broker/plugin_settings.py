"""Plugins' own sections of the configuration: each is checked at the start, and handed to what the plugin registered."""

from __future__ import annotations

from typing import Any

from flintmq.config import LoadedConfig
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.hookspecs import PluginContext
from flintmq.core.kernel.kernel import Kernel
from flintmq.core.kernel.ports import FlushStrategy
from flintmq.core.kernel.registry import Registered


class PluginSettings:
    """The sections of one configuration, by the plugins of one kernel. Made while a broker is assembled; read-only then.

    Args:
        kernel: what it hands to pools, processors and filters is taken from here from now on.
        loaded: the configuration.
        clock: for factories that take a context.
        flushes: whether the kernel has flush strategies, as a broker's has; else their sections are not looked at.
    """

    def __init__(
        self, kernel: Kernel, loaded: LoadedConfig, clock: Clock = SYSTEM_CLOCK, *, flushes: bool = True
    ) -> None:
        self._kernel = kernel
        self.loaded = loaded
        self._clock = clock
        self._models: dict[str, type[Any]] = {
            entry.name: entry.value for entry in kernel.registries.config_sections.all()
        }
        self._flushes = flushes
        self._strategies = kernel.registries.flush_strategies.all(loaded.config.flush.strategy) if flushes else ()
        self._made: dict[str, Any] = {}
        kernel.context_of = self.context

    def check(self) -> None:
        """Looks at every section that is written, used or not.

        Raises:
            ConfigError: no plugin has such a section, or a key or value in it is wrong; names the line and what is near.
        """
        models = dict(self._models)
        for entry in self._strategies:
            if entry.value.settings_model is not None:
                models[f"flush.{entry.name}"] = entry.value.settings_model
        known = [*models, *(name for name in self.loaded.sections if name.startswith("flush.") and not self._flushes)]
        off = [info.name for info in self._kernel.describe() if not info.enabled]
        self.loaded.check_claimed(known, off)
        for name, model in models.items():
            if name in self.loaded.sections:
                self.loaded.section(name, model)

    def of(self, registered: Registered[Any]) -> Any:
        """Return the settings for what was registered: of the section of the same name, else of the plugin's only one.

        None for a plugin without a section, or with several of other names. Raises ``ConfigError``.
        """
        name = self._kernel.registries.section_for(registered)
        if name is None:
            return None
        if name not in self._made:
            self._made[name] = self.loaded.section(name, self._models[name])
        return self._made[name]

    def of_strategy(self, registered: Registered[FlushStrategy[Any]]) -> Any:
        """``flush.<name>`` where the strategy has a model for it, else as :meth:`of`. Raises ``ConfigError``."""
        strategy = registered.value
        built_in = getattr(self.loaded.config.flush, strategy.name, None)
        if built_in is not None:
            return built_in
        if strategy.settings_model is None:
            return self.of(registered)
        return self.loaded.section(f"flush.{strategy.name}", strategy.settings_model)

    def context(self, registered: Registered[Any]) -> PluginContext[Any]:
        """What a factory that asks for it is given. Raises ``ConfigError``."""
        return PluginContext(self.of(registered), self._clock)
