"""The registrations of all plugins, in a registry for each kind, such as dispatchers or request processors.

The module also makes the ``register`` function that a plugin's hook gets as its argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from flintmq.config.sections.models import BrokerConfig
from flintmq.core.errors import PluginError
from flintmq.core.kernel import hookspecs, plugin_shapes
from flintmq.core.kernel.hookspecs import (
    AuthenticatorFactory,
    DispatcherFactory,
    FilterFactory,
    FlintSpecs,
    IndexBuilderFactory,
    IntakeStepFactory,
    PoolFactory,
)
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.plugin_shapes import Shape, shown
from flintmq.core.kernel.ports import FlushStrategy, SystemTopic
from flintmq.core.kernel.ports.processor import (
    LOOP_POOLS,
    THREADS_DEFAULT,
    THREADS_MAX,
    ProcessorFactory,
    RequestDeclaration,
)
from flintmq.core.kernel.registry import (
    SERVERS,
    CommandSpec,
    Registered,
    Registry,
    ServerPart,
    is_name,
)

if TYPE_CHECKING:
    from flintmq.core.broker.api import ServiceFactory

_CODE_MAX: Final = 2**15 - 1
"""Greatest request code, because a request code is a signed short in RocketMQ's binary header."""

INDEX: Final = "index"
"""Name of the dispatcher that feeds the index builder."""

Registrar = Callable[..., None]
"""Function that adds a registration. Its arguments are the plugin, followed by the arguments that the plugin passed to
``register``."""


class Registries:
    """All registrations of plugins, by kind. Filled while a broker is assembled, read-only afterwards."""

    def __init__(self) -> None:
        self.dispatchers: Registry[DispatcherFactory[Any]] = Registry(plugin_shapes.DISPATCHER, "dispatchers")
        self.flush_strategies: Registry[FlushStrategy[Any]] = Registry(plugin_shapes.FLUSH_STRATEGY, "flush.strategy")
        self.pools: Registry[PoolFactory[Any]] = Registry(plugin_shapes.POOL, "flush.pool")
        self.index_builders: Registry[IndexBuilderFactory[Any]] = Registry(plugin_shapes.INDEX_BUILDER, "index.builder")
        self.processors: Registry[ServerPart] = Registry(plugin_shapes.PROCESSOR)
        self.filters: Registry[FilterFactory[Any]] = Registry(plugin_shapes.FILTER)
        self.authenticators: Registry[AuthenticatorFactory[Any]] = Registry(
            plugin_shapes.AUTHENTICATOR, "authenticators"
        )
        self.default_processors: Registry[ServerPart] = Registry(plugin_shapes.DEFAULT_PROCESSOR)
        self.connection_listeners: Registry[ServerPart] = Registry(plugin_shapes.CONNECTION_LISTENER)
        self.rpc_hooks: Registry[ServerPart] = Registry(plugin_shapes.RPC_HOOK)
        self.services: Registry[ServiceFactory] = Registry(plugin_shapes.SERVICE)
        self.intake_steps: Registry[IntakeStepFactory[Any]] = Registry(plugin_shapes.INTAKE_STEP)
        self.system_topics: Registry[SystemTopic] = Registry(plugin_shapes.SYSTEM_TOPIC)
        self.config_sections: Registry[type[Any]] = Registry(plugin_shapes.CONFIG_SECTION)
        self.cli_commands: Registry[CommandSpec] = Registry(plugin_shapes.COMMAND)

    def registrars(self) -> Mapping[str, Registrar]:
        """Return the functions that plugins call to add registrations, keyed by hook."""
        plain = (self.pools, self.index_builders, self.filters, self.authenticators, self.services, self.intake_steps)
        parts = (self.connection_listeners, self.rpc_hooks)
        return {
            self.dispatchers.shape.hook: self._add_dispatcher,
            self.flush_strategies.shape.hook: self._add_flush_strategy,
            self.processors.shape.hook: self._add_processor,
            self.default_processors.shape.hook: self._add_default_processor,
            self.system_topics.shape.hook: self._add_topic,
            self.config_sections.shape.hook: self._add_section,
            self.cli_commands.shape.hook: self._add_command,
            **{registry.shape.hook: partial(_add_factory, registry) for registry in plain},
            **{registry.shape.hook: partial(_add_part, registry) for registry in parts},
        }

    def registered_by(self, owner: PluginOrigin) -> tuple[str, ...]:
        """Return the registrations of a plugin as texts, such as ``dispatcher index``, including replaced registrations."""
        registries: Iterable[Registry[Any]] = vars(self).values()
        return tuple(f"{registry.kind} {entry.name}" for registry in registries for entry in registry.of(owner))

    def replaces_built_in(self, registered: Registered[Any]) -> bool:
        """Return whether a registration is a request processor that answers a code in place of a built-in processor."""
        if registered.shape is not plugin_shapes.PROCESSOR or registered.owner.built_in:
            return False
        built_in = {code for one in self.processors.every() if one.owner.built_in for code in one.value.codes}
        return not built_in.isdisjoint(registered.value.codes)

    def features_topics(self) -> tuple[SystemTopic, ...]:
        """Return the system topics of all features."""
        return tuple(entry.value for entry in self.system_topics.all())

    def _add_dispatcher(self, owner: PluginOrigin, name: str, factory: DispatcherFactory[Any], essential: bool) -> None:
        if name == INDEX:
            raise PluginError(
                f"{self.dispatchers.shape.where(owner, name)}: expected another name; '{INDEX}' is the index builder "
                f"that 'index.builder' selects. Register an index builder with {self.index_builders.shape.hook}"
            )
        _add_factory(self.dispatchers, owner, name, factory, essential)

    def _add_flush_strategy(self, owner: PluginOrigin, strategy: FlushStrategy[Any]) -> None:
        shape = self.flush_strategies.shape
        if not isinstance(strategy, FlushStrategy):
            raise PluginError(
                f"{owner}: {shape.hook}: a flush strategy is a FlushStrategy, not {type(strategy).__name__}: "
                f"expected register(FlushStrategy(name, factory)), found {shown(strategy)}"
            )
        name = strategy.name
        if strategy.settings_model is not None:
            _check_model(owner, shape, name, strategy.settings_model)
        shape.check_factory(owner, name, strategy.factory)
        _check_type(owner, shape, name, "synchronous", strategy.synchronous, bool)
        _check_type(owner, shape, name, "uses_pool", strategy.uses_pool, bool)
        self.flush_strategies.add(owner, name, strategy)

    def _add_processor(
        self,
        owner: PluginOrigin,
        name: str,
        codes: object,
        factory: ProcessorFactory,
        at: str,
        pool: str,
        threads: object,
    ) -> None:
        declarations = _declarations(owner, self.processors.shape, name, codes, pool)
        pools = {one.pool for one in declarations}
        _add_part(self.processors, owner, name, factory, at, pools, threads, declarations)

    def _add_default_processor(
        self, owner: PluginOrigin, name: str, factory: Callable[..., Any], at: str, pool: str, threads: object
    ) -> None:
        _add_part(self.default_processors, owner, name, factory, at, (pool,), threads)

    def _add_topic(self, owner: PluginOrigin, topic: SystemTopic) -> None:
        if not isinstance(topic, SystemTopic):
            raise PluginError(
                f"{owner}: {self.system_topics.shape.hook}: expected register(SystemTopic(name, …)); "
                f"found register({shown(topic)})"
            )
        self.system_topics.add(owner, topic.name, topic)

    def _add_section(self, owner: PluginOrigin, name: str, model: type[Any]) -> None:
        shape = self.config_sections.shape
        _check_model(owner, shape, name, model)
        if name in _OWN_SECTIONS and not owner.built_in:
            raise PluginError(
                f"{shape.where(owner, name)}: FlintMQ's configuration has a section {shown(name)}; choose another name"
            )
        self.config_sections.add(owner, name, model)

    def _add_command(self, owner: PluginOrigin, name: str, command: Any, help: str) -> None:
        # click is imported late, because a broker needs click only if a plugin registers a command.
        import click

        shape = self.cli_commands.shape
        if not isinstance(command, click.Command) or isinstance(command, click.Group):
            raise PluginError(
                f"{shape.where(owner, name)}: expected a click.Command, which the decorator @click.command() makes of a "
                f"function; found {shown(command)} ({type(command).__name__})"
            )
        _check_type(owner, shape, name, "help", help, str)
        self.cli_commands.add(owner, name, CommandSpec(command, help))


_OWN_SECTIONS: Final = frozenset(field.name for field in attrs.fields(BrokerConfig))


def checked_call(owner: PluginOrigin, hook: str, registrar: Registrar) -> Callable[..., None]:
    """Return the function ``register`` that a plugin's implementation of a hook is called with. Its annotation in the hook's
    specification is a protocol class, whose method ``__call__`` defines the allowed arguments.

    If the plugin calls the function with other arguments, the function raises ``PluginError`` with the expected and the found
    arguments.

    Args:
        owner: the plugin.
        hook: name of the hook.
        registrar: stores a registration. It is called with the plugin and the checked arguments.
    """
    protocol = vars(hookspecs)[inspect.signature(vars(FlintSpecs)[hook]).parameters["register"].annotation]
    parameters = [*inspect.signature(protocol.__call__).parameters.values()][1:]
    signature = inspect.Signature([one.replace(annotation=one.empty) for one in parameters])

    def checked(*arguments: Any, **named: Any) -> None:
        try:
            call = signature.bind(*arguments, **named)
        except TypeError as error:
            given = ", ".join([*map(shown, arguments), *(f"{name}={shown(value)}" for name, value in named.items())])
            raise PluginError(
                f"{owner}: {hook}: expected register{signature}; found register({given}): {error}"
            ) from error
        call.apply_defaults()
        registrar(owner, *call.arguments.values())

    return checked


def _add_factory(
    registry: Registry[Any], owner: PluginOrigin, name: str, factory: Callable[..., Any], essential: bool = False
) -> None:
    registry.shape.check_factory(owner, name, factory)
    _check_type(owner, registry.shape, name, "essential", essential, bool)
    registry.add(owner, name, factory, essential=essential)


def _add_part(
    registry: Registry[ServerPart],
    owner: PluginOrigin,
    name: str,
    factory: Callable[..., Any],
    at: str,
    pools: Iterable[str] = (),
    threads: object = None,
    declarations: tuple[RequestDeclaration, ...] = (),
) -> None:
    counts = {pool: _threads(owner, registry.shape, name, pool, threads) for pool in pools}
    registry.shape.check_factory(owner, name, factory)
    known = (*SERVERS, "both")
    registry.shape.expect(owner, name, at in known, f"at to be one of {', '.join(known)}", at)
    registry.add(owner, name, ServerPart(factory, at, declarations, counts))


def _check_type(
    owner: PluginOrigin, shape: Shape, name: object, argument: str, value: object, expected: type[Any]
) -> None:
    shape.expect(owner, name, isinstance(value, expected), f"{argument} of type {expected.__name__}", value)


def _check_model(owner: PluginOrigin, shape: Shape, name: object, model: object) -> None:
    fits = isinstance(model, type) and attrs.has(model)
    shape.expect(owner, name, fits, "an attrs class as its model, made with @attrs.frozen", model)


def _declarations(
    owner: PluginOrigin, shape: Shape, name: object, codes: object, pool: str
) -> tuple[RequestDeclaration, ...]:
    """Return a declaration for each request code that a plugin registers a processor for.

    If a code is given as a number, its declaration names ``pool`` as the pool that runs the processor.
    """
    given = tuple(codes) if isinstance(codes, Iterable) and not isinstance(codes, (str, bytes)) else ()
    numbers = [one.code if isinstance(one, RequestDeclaration) else one for one in given]
    fit = all(isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= _CODE_MAX for code in numbers)
    expected = f"a tuple of int from 0 to {_CODE_MAX}, each once, or what declared_by(...) returns"
    shape.expect(owner, name, bool(numbers) and fit and len(set(numbers)) == len(numbers), expected, codes)
    return tuple(
        one if isinstance(one, RequestDeclaration) else RequestDeclaration(int(one), pool=pool) for one in given
    )


def _threads(owner: PluginOrigin, shape: Shape, name: object, pool: object, threads: object) -> int:
    """Return the number of threads that a plugin declares for a request pool; 0 for the broker's pools that have no threads.

    Raises ``PluginError`` for invalid arguments.
    """
    own = ", ".join(sorted(LOOP_POOLS))
    expected = f"pool to be the name of one of the broker's queues ({own}), or of a pool of threads of the plugin's own"
    shape.expect(owner, name, is_name(pool), expected, pool)
    if pool in LOOP_POOLS:
        expected = f"threads with a pool of the plugin's own name, not with '{pool}', whose requests the loop handles"
        shape.expect(owner, name, threads is None, expected, threads)
        return 0
    if threads is None:
        return THREADS_DEFAULT
    fits = isinstance(threads, int) and not isinstance(threads, bool) and 1 <= threads <= THREADS_MAX
    shape.expect(owner, name, fits, f"threads of type int, from 1 to {THREADS_MAX}", threads)
    return cast("int", threads)
