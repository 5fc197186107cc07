"""One registry for each kind of thing plugins register, and the ``register`` callbacks the hooks are called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from flintmq.core.errors import PluginError
from flintmq.core.hookspecs import AuthenticatorFactory, DispatcherFactory, IndexBuilderFactory, PoolFactory
from flintmq.core.plugin_info import PluginOrigin
from flintmq.core.ports import FlushStrategy, MessageFilterFactory
from flintmq.core.registry import CommandSpec, ProcessorSpec, Registry

Registrar = Callable[[PluginOrigin], Callable[..., None]]
"""Makes the ``register`` callback of a hook for one plugin, so that what it registers has an owner."""


class Registries:
    """Everything plugins registered. Filled while a broker is assembled, read-only afterwards."""

    def __init__(self) -> None:
        self.dispatchers: Registry[DispatcherFactory] = Registry("dispatcher", "dispatchers")
        self.flush_strategies: Registry[FlushStrategy] = Registry("flush strategy", "flush.strategy")
        self.pools: Registry[PoolFactory] = Registry("transient store pool", "flush.pool")
        self.index_builders: Registry[IndexBuilderFactory] = Registry("index builder", "index.builder")
        self.processors: Registry[ProcessorSpec] = Registry("request processor")
        self.filters: Registry[MessageFilterFactory] = Registry("message filter")
        self.authenticators: Registry[AuthenticatorFactory] = Registry("authenticator", "authenticators")
        self.config_sections: Registry[type[Any]] = Registry("config section")
        self.cli_commands: Registry[CommandSpec] = Registry("command")

    def registrars(self) -> Mapping[str, Registrar]:
        """By hook name."""
        return {
            "flintmq_dispatchers": self._dispatcher_registrar,
            "flintmq_flush_services": self._flush_registrar,
            "flintmq_transient_store_pools": lambda owner: _plain_registrar(self.pools, owner),
            "flintmq_index_builders": lambda owner: _plain_registrar(self.index_builders, owner),
            "flintmq_request_processors": self._processor_registrar,
            "flintmq_message_filters": lambda owner: _plain_registrar(self.filters, owner),
            "flintmq_authenticators": lambda owner: _plain_registrar(self.authenticators, owner),
            "flintmq_config_sections": self._section_registrar,
            "flintmq_cli_commands": self._command_registrar,
        }

    def registered_by(self, owner: PluginOrigin) -> tuple[str, ...]:
        """What one plugin registered, such as ``dispatcher index``; replaced things too."""
        registries: tuple[Registry[Any], ...] = (
            self.dispatchers,
            self.flush_strategies,
            self.pools,
            self.index_builders,
            self.processors,
            self.filters,
            self.authenticators,
            self.config_sections,
            self.cli_commands,
        )
        return tuple(f"{registry.kind} {entry.name}" for registry in registries for entry in registry.of(owner))

    def _dispatcher_registrar(self, owner: PluginOrigin) -> Callable[..., None]:
        def register(name: str, factory: DispatcherFactory, *, essential: bool = False) -> None:
            _check_callable(owner, "dispatcher", name, factory)
            self.dispatchers.add(owner, name, factory, essential=essential)

        return register

    def _flush_registrar(self, owner: PluginOrigin) -> Callable[..., None]:
        def register(strategy: FlushStrategy) -> None:
            if not isinstance(strategy, FlushStrategy):
                raise PluginError(f"{owner}: a flush strategy is a FlushStrategy, not {type(strategy).__name__}")
            _check_model(owner, "flush strategy", strategy.name, strategy.settings_model, optional=True)
            _check_callable(owner, "flush strategy", strategy.name, strategy.factory)
            self.flush_strategies.add(owner, strategy.name, strategy)

        return register

    def _processor_registrar(self, owner: PluginOrigin) -> Callable[..., None]:
        def register(name: str, codes: tuple[int, ...], factory: Callable[[Any], Any], *, pool: str = "admin") -> None:
            _check_callable(owner, "request processor", name, factory)
            numbers = tuple(int(code) for code in codes)
            if not numbers or len(set(numbers)) != len(numbers):
                raise PluginError(f"{owner}: the request processor '{name}' needs codes, each once; it has {numbers}")
            self.processors.add(owner, name, ProcessorSpec(numbers, factory, pool))

        return register

    def _section_registrar(self, owner: PluginOrigin) -> Callable[..., None]:
        def register(name: str, model: type[Any]) -> None:
            _check_model(owner, "config section", name, model)
            self.config_sections.add(owner, name, model)

        return register

    def _command_registrar(self, owner: PluginOrigin) -> Callable[..., None]:
        def register(name: str, command: Callable[..., None], *, help: str = "") -> None:
            _check_callable(owner, "command", name, command)
            self.cli_commands.add(owner, name, CommandSpec(command, help))

        return register


def _plain_registrar(registry: Registry[Any], owner: PluginOrigin) -> Callable[..., None]:
    def register(name: str, factory: Callable[..., Any]) -> None:
        _check_callable(owner, registry.kind, name, factory)
        registry.add(owner, name, factory)

    return register


def _check_callable(owner: PluginOrigin, kind: str, name: object, value: object) -> None:
    if not callable(value):
        raise PluginError(f"{owner}: the {kind} {str(name)[:80]!r} needs a callable, not {type(value).__name__}")


def _check_model(owner: PluginOrigin, kind: str, name: object, model: object, *, optional: bool = False) -> None:
    if (model is None and optional) or (isinstance(model, type) and attrs.has(model)):
        return
    raise PluginError(f"{owner}: the {kind} {str(name)[:80]!r} needs an attrs class as its model, not {model!r}")
