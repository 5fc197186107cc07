"""The kernel: loads plugins, asks each once what it offers, and hands the answers out as plain tuples.

::

    built-ins ─┐
    entry points of group "flintmq" ─┼─► Kernel.assemble ─► registries by name ─► the broker's composition root
    plugins: of the configuration ─┘        (pluggy ends here)

With :mod:`flintmq.core.kernel.hookspecs` this is the only module that knows pluggy, and only while a broker is assembled: a
pluggy call costs some ten times what a tuple of bound callables does. Whatever is wrong with a plugin is a
:class:`~flintmq.core.errors.PluginError` that names it and the place it was asked for.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

import attrs
import pluggy

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.blame import PLUGIN_FAULTS, Accountable, Blame, PluginCode, brief
from flintmq.core.kernel.finder import (
    FoundPlugin,
    find_configured,
    find_entry_points,
    find_objects,
    plain_name,
    plugin_within,
)
from flintmq.core.kernel.hookspecs import (
    PROJECT,
    AuthenticatorFactory,
    DispatcherFactory,
    FlintSpecs,
    IndexBuilderFactory,
    IntakeStepFactory,
    PluginContext,
    PoolFactory,
)
from flintmq.core.kernel.isolation import (
    IsolatedBitMapFilter,
    IsolatedDispatcher,
    IsolatedFilter,
    filter_failed,
)
from flintmq.core.kernel.plugin_info import PluginInfo, PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import (
    FILTER,
    FLUSH_STRATEGY,
    INDEX_BUILDER,
    INTAKE_STEP,
    POOL,
    check_hook,
    drop,
    shown,
)
from flintmq.core.kernel.ports import (
    BitMapFilter,
    CommitLogDispatcher,
    FlushStrategy,
    MessageFilter,
    MessageFilterFactory,
    SystemTopic,
)
from flintmq.core.kernel.registries import Registries, checked_call
from flintmq.core.kernel.registry import CommandSpec, ProcessorSpec, Registered, ServerPart, one_processor_per_code

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerHandle, ServiceFactory

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger("flintmq.plugins")

HOOK_PREFIX: Final = "flintmq_"


@attrs.frozen
class _Hook:
    """One plugin's implementation of one hook, free of pluggy."""

    owner: PluginOrigin
    name: str
    function: Callable[..., Any]
    argument_names: tuple[str, ...]
    rank: int
    """-1 for tryfirst, 1 for trylast."""

    def __call__(self, **arguments: Any) -> None:
        """Raises ``PluginError`` for something that was returned: nobody would look at it."""
        returned = self.function(**{name: arguments[name] for name in self.argument_names})
        if returned is None or not ("register" in arguments or inspect.isawaitable(returned)):
            return
        drop(returned)
        what = (
            "what is offered is handed to register(…)"
            if "register" in arguments
            else "a plain function without a result"
        )
        raise PluginError(f"{self.owner}: {self.name}: expected None to be returned: {what}; found {shown(returned)}")


class Kernel:
    """The plugins of one broker and what they registered. Made by :meth:`assemble`; loop thread.

    Equal names: a third party's replaces the built-in, and between two third parties the configuration chooses with
    ``plugin/name`` (see :mod:`flintmq.core.kernel.registry`). Accessors raise ``PluginError`` for names nobody registered.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._blame = Blame()
        self._found: tuple[FoundPlugin, ...] = ()
        self._hooks: dict[str, tuple[_Hook, ...]] = {}
        self._registries = Registries()
        self._isolated: list[IsolatedDispatcher] = []
        self.context_of: Callable[[Registered[Any]], PluginContext] = lambda _registered: PluginContext(None, clock)
        """What a factory is given that asks for a context."""

    @classmethod
    def assemble(
        cls,
        plugins: Sequence[PluginRef] = (),
        builtins: Iterable[object] = (),
        *,
        objects: Iterable[object] = (),
        use_entry_points: bool = True,
        disabled: Iterable[str] = (),
        config_path: str | Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Kernel:
        """Loads plugins and collects what they register.

        Args:
            plugins: ``plugins:`` of the configuration, in its order.
            builtins: plugin objects that the composition root passes in, because the core imports no plugin.
            objects: plugin objects of the program the broker lives in; third parties', so they may replace built-ins.
            use_entry_points: whether installed plugins are loaded.
            disabled: names of plugins not to load.
            config_path: the file that ``plugins`` stands in, for errors.
            clock: for counting failures.

        Raises:
            PluginError: a plugin is missing, raises while it is loaded or registers, has a hook of an unknown name or a
                wrong signature, or registers a name twice.
        """
        kernel = cls(clock)
        switched_off = frozenset(plain_name(name) for name in disabled)
        found = find_objects(builtins, switched_off)
        if use_entry_points:
            found += find_entry_points(switched_off)
        found += find_configured(plugins, config_path, switched_off, found)
        found += find_objects(objects, switched_off, PluginSource.PROGRAM)
        missing = switched_off - {f.origin.name for f in found}
        if missing:
            _LOG.warning("disabled_plugins names what is not installed: %s", ", ".join(sorted(missing)))
        kernel._found = tuple(found)
        for item in found:
            kernel._blame.code.add(item.origin, item.plugin)
        kernel._hooks = _collect_hooks(f for f in found if f.enabled)
        kernel._register_all()
        return kernel

    # What was registered.

    def dispatchers(self, names: Iterable[str]) -> tuple[Registered[DispatcherFactory], ...]:
        """The dispatchers of these names, in this order."""
        return tuple(self._registries.dispatchers.pick(name) for name in names)

    def check_dispatchers(self, names: Iterable[str]) -> None:
        """Refuses a list without the essential ones: they may be replaced, not left out. Raises ``PluginError``."""
        plain = {name.rpartition("/")[2] for name in names}
        for essential in self._registries.dispatchers.essential_names():
            if essential not in plain:
                raise PluginError(f"'dispatchers' leaves out '{essential}', without which nobody finds what is stored")

    def flush_strategy(self, name: str) -> Registered[FlushStrategy]:
        return self._registries.flush_strategies.pick(name)

    def flush_strategies(self, *chosen: str) -> tuple[Registered[FlushStrategy], ...]:
        """All of them, for the models of ``flush.<name>``; of several of one name that which is chosen."""
        return self._registries.flush_strategies.all(*chosen)

    def pool(self, name: str) -> Registered[PoolFactory]:
        return self._registries.pools.pick(name)

    def index_builder(self, name: str) -> Registered[IndexBuilderFactory]:
        return self._registries.index_builders.pick(name)

    def processors(self, server: str) -> tuple[Registered[ProcessorSpec], ...]:
        """Return the request processors of one of :data:`SERVERS`, with each request code in exactly one of them."""
        return one_processor_per_code(
            entry for entry in self._registries.processors.all() if entry.value.is_for(server)
        )

    def default_processor(self, server: str) -> Registered[ServerPart] | None:
        """What answers the codes that nobody else does, at one of :data:`SERVERS`. Raises ``PluginError`` for two of them."""
        found = [entry for entry in self._registries.default_processors.every() if entry.value.is_for(server)]
        if len(found) > 1:
            names = " or ".join(f"'{name}'" for name in dict.fromkeys(entry.owner.name for entry in found))
            both = " and ".join(f"'{entry.full_name}'" for entry in found)
            raise PluginError(f"a {server} has one default processor, not {both}: list {names} in 'disabled_plugins'")
        return found[0] if found else None

    def connection_listeners(self, server: str) -> tuple[Registered[ServerPart], ...]:
        """All of them, in order of registration."""
        return tuple(entry for entry in self._registries.connection_listeners.every() if entry.value.is_for(server))

    def rpc_hooks(self, server: str) -> tuple[Registered[ServerPart], ...]:
        """All of them, in order of registration."""
        return tuple(entry for entry in self._registries.rpc_hooks.every() if entry.value.is_for(server))

    def filter_factory(self, expression_type: str) -> MessageFilterFactory:
        """A third party's: what it raises, and what its filters raise, is counted and named, and no message fits then."""
        registered = self._registries.filters.pick(expression_type)
        return registered.value if registered.owner.built_in else self._isolated_filters(registered)

    def probe_filters(self) -> None:
        """Raises ``PluginError`` for a third party's filter of the wrong shape; a factory may refuse ``*``, then none is known.

        The built-in ones are imported with the first subscription that needs them.
        """
        for registered in self._registries.filters.all():
            if registered.owner.built_in:
                continue
            try:
                made = self._with_context(registered, registered.value)("*", frozenset())
            except PLUGIN_FAULTS as error:
                _LOG.debug("%s: %s makes no filter of '*': %s", registered.owner, registered.what, brief(error))
            else:
                FILTER.check_made(registered.owner, registered.name, made)

    def filter_types(self) -> tuple[str, ...]:
        return self._registries.filters.names()

    def authenticators(self, names: Iterable[str]) -> tuple[Registered[AuthenticatorFactory], ...]:
        """The authenticators of these names, in this order."""
        return tuple(self._registries.authenticators.pick(name) for name in names)

    def config_sections(self) -> tuple[Registered[type[Any]], ...]:
        return self._registries.config_sections.all()

    def section_for(self, registered: Registered[Any]) -> str | None:
        """The configuration section whose settings a registration is given: the owner's of the same name, else its only one."""
        names = [entry.name for entry in self._registries.config_sections.of(registered.owner)]
        if registered.name in names:
            return registered.name
        return names[0] if len(names) == 1 else None

    def cli_commands(self) -> tuple[Registered[CommandSpec], ...]:
        return self._registries.cli_commands.all()

    def services(self) -> tuple[Registered[ServiceFactory], ...]:
        """All services, in order of registration."""
        return self._registries.services.all()

    def intake_steps(self) -> tuple[Registered[IntakeStepFactory], ...]:
        """All intake steps, in order of registration."""
        return self._registries.intake_steps.all()

    def system_topics(self) -> tuple[SystemTopic, ...]:
        """The topics of all features."""
        return tuple(entry.value for entry in self._registries.system_topics.all())

    @property
    def code(self) -> PluginCode:
        """Which code belongs to which plugin."""
        return self._blame.code

    def switched_off(self) -> tuple[IsolatedDispatcher, ...]:
        """Dispatchers that failed too often."""
        return tuple(dispatcher for dispatcher in self._isolated if dispatcher.disabled)

    def describe(self) -> list[PluginInfo]:
        """Every plugin that was found, in the order of loading."""
        return [self._info(found) for found in self._found]

    # The broker's life.

    def starting(self, broker: BrokerHandle) -> None:
        """Tells plugins that the broker is assembled. A built-in that raises stops the start; others are isolated."""
        self._tell("flintmq_broker_starting", builtins_raise=True, broker=broker)

    def ready(self, broker: BrokerHandle) -> None:
        """Tells plugins that the broker listens. A built-in that raises stops the start; others are isolated."""
        self._tell("flintmq_broker_ready", builtins_raise=True, broker=broker)

    def stopping(self, broker: BrokerHandle) -> None:
        """Tells plugins, in reverse order, that the broker is about to stop. Never raises."""
        self._tell("flintmq_broker_stopping", backwards=True, broker=broker)

    def fenced(self, broker: BrokerHandle, reason: str) -> None:
        """Tells plugins that nothing is acknowledged any more. Never raises."""
        self._tell("flintmq_broker_fenced", broker=broker, reason=reason)

    def guarded(self, registered: Registered[Any], factory: Callable[P, T]) -> Callable[P, T]:
        """A factory whose failure is a ``PluginError`` that names the plugin, as is something made that cannot be used.

        What built-ins raise passes as it is: it is ours, and says what is wrong. Of a third party's flush services, pools and
        index builders, what their methods raise later is counted and named.
        """
        owner, shape = registered.owner, registered.shape

        @functools.wraps(factory)
        def make(*arguments: P.args, **named: P.kwargs) -> T:
            self._blame.code.add(owner, factory)
            try:
                made = self._with_context(registered, factory)(*arguments, **named)
            except PLUGIN_FAULTS as error:
                if isinstance(error, (PluginError, ConfigError)):
                    raise
                if owner.built_in:
                    guilty = self._blame.code.culprit(error)
                    if guilty is None:
                        raise
                    raise PluginError(f"{guilty}: raised while {registered.what} was made: {brief(error)}") from error
                hook = f"{shape.hook}: " if shape is not None else ""
                raise PluginError(f"{owner}: {hook}'{registered.name}' cannot be made: {brief(error)}") from error
            if shape is not None and (shape.methods or shape.optional):
                shape.check_made(owner, registered.name, made)
            self._blame.code.add(owner, made)
            if owner.built_in or shape is None or shape not in (FLUSH_STRATEGY, POOL, INDEX_BUILDER, INTAKE_STEP):
                return made
            return cast(
                "T",
                Accountable(
                    made,
                    shape,
                    shape.where(owner, registered.name),
                    lambda method, error: self._blame_on(registered, method, error),
                ),
            )

        return make

    def isolate(
        self, dispatcher: CommitLogDispatcher, owner: PluginOrigin, essential: bool, name: str = ""
    ) -> IsolatedDispatcher:
        """Wraps a dispatcher so that its failures are counted, and disable it rather than the broker unless essential."""
        made = IsolatedDispatcher(
            dispatcher, owner, essential=essential, blame=self._blame, clock=self._clock, name=name
        )
        self._isolated.append(made)
        return made

    def blame(self, registered: Registered[Any], doing: str, error: BaseException, *, is_secret: bool = False) -> None:
        """Counts and logs what something raised that a plugin registered, for the plugin whose code it came from.

        Args:
            doing: what it was asked to do: ``request 105``. The log tells such texts apart, so they are few.
            is_secret: the error's text may hold credentials, which only the log may show.
        """
        self._blame.note(registered.owner, f"{registered.what} ({doing})", error, is_secret=is_secret)

    def blame_code(self, doing: str, error: BaseException) -> bool:
        """Counts what came from a plugin's code that the plugin did not register by name, such as a timer's work.

        Returns:
            False when it came from no plugin: whoever caught it logs it.
        """
        return self._blame.note_code(doing, error)

    def _blame_on(self, registered: Registered[Any], doing: str, error: BaseException) -> None:
        """The same for an error that is raised on."""
        self._blame.note(registered.owner, f"{registered.what} ({doing})", error, raised_on=True)

    def _with_context(self, registered: Registered[Any], factory: Callable[P, T]) -> Callable[P, T]:
        """Hands a factory the context that it asks for."""
        shape = registered.shape
        if registered.owner.built_in or shape is None or not shape.asks_for_context(factory):
            return factory
        context = self.context_of(registered)
        return shape.bind(factory, context, context.settings)

    def _isolated_filters(self, registered: Registered[MessageFilterFactory]) -> MessageFilterFactory:
        def note(method: str, error: BaseException) -> None:
            self.blame(registered, method, error)

        factory = self._with_context(registered, registered.value)

        def make(expression: str, codes: frozenset[int]) -> MessageFilter:
            try:
                made = factory(expression, codes)
                FILTER.check_made(registered.owner, registered.name, made)
            except RefusedError:
                raise
            except PLUGIN_FAULTS as error:
                note("its factory", error)
                raise filter_failed(registered.name) from error
            self._blame.code.add(registered.owner, made)
            return IsolatedBitMapFilter(made, note) if isinstance(made, BitMapFilter) else IsolatedFilter(made, note)

        self._blame.code.add(registered.owner, registered.value)
        return make

    def _tell(self, hook: str, *, builtins_raise: bool = False, backwards: bool = False, **arguments: Any) -> None:
        hooks = self._hooks.get(hook, ())
        for implementation in reversed(hooks) if backwards else hooks:
            try:
                implementation(**arguments)
            except PLUGIN_FAULTS as error:
                guilty = self._blame.note(implementation.owner, hook, error)
                if builtins_raise and implementation.owner.built_in:
                    if guilty.built_in:
                        raise
                    raise PluginError(
                        f"{guilty}: raised in {hook} of {implementation.owner.name}: {brief(error)}"
                    ) from error

    def _info(self, found: FoundPlugin) -> PluginInfo:
        origin = found.origin
        return PluginInfo(
            origin=origin,
            enabled=found.enabled,
            hooks=tuple(name for name, hooks in self._hooks.items() if any(h.owner == origin for h in hooks)),
            registered=self._registries.registered_by(origin),
            errors=self._blame.errors(origin),
            last_error=self._blame.last_error(origin),
            switched_off=tuple(
                f"dispatcher {dispatcher.name}: {dispatcher.why_disabled}"
                for dispatcher in self._isolated
                if dispatcher.disabled and dispatcher.owner == origin
            ),
        )

    def _register_all(self) -> None:
        for hook, registrar in self._registries.registrars().items():
            for implementation in self._hooks.get(hook, ()):
                owner = implementation.owner
                try:
                    implementation(register=checked_call(owner, hook, registrar(owner)))
                except PluginError:
                    raise
                except PLUGIN_FAULTS as error:
                    raise PluginError(f"{owner}: raised in {hook}: {brief(error)}") from error


def _collect_hooks(found: Iterable[FoundPlugin]) -> dict[str, tuple[_Hook, ...]]:
    """Lets pluggy check every plugin against the specs, then takes the bare functions out, in order of registration."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(FlintSpecs)
    known = {
        name: tuple(inspect.signature(spec).parameters)[1:]
        for name, spec in vars(FlintSpecs).items()
        if name.startswith(HOOK_PREFIX)
    }
    hooks: dict[str, list[_Hook]] = {name: [] for name in known}
    for item in found:
        origin, plugin = item.origin, item.plugin
        _check_hooks(manager, origin, plugin, known)
        try:
            manager.register(plugin, name=origin.name)
        except pluggy.PluginValidationError as error:
            raise PluginError(f"{origin}: {' '.join(str(error).split())}") from error
        except ValueError as error:
            raise PluginError(f"{origin}: a plugin of this name, or the same object, is loaded already") from error
        callers = manager.get_hookcallers(plugin) or []
        if not callers:
            within = plugin_within(plugin, HOOK_PREFIX)
            hint = f"; did you mean '{within}'?" if within else ""
            raise PluginError(
                f"{origin}: implements no hook; its functions need @flintmq.core.kernel.hookspecs.hookimpl{hint}"
            )
        for caller in callers:
            for implementation in caller.get_hookimpls():
                if implementation.plugin is not plugin:
                    continue
                if caller.name not in hooks:
                    if implementation.optionalhook:
                        continue
                    close = nearest(caller.name, known)
                    hint = f"; did you mean '{close}'?" if close else f"; there are: {', '.join(known)}"
                    raise PluginError(f"{origin}: there is no hook '{caller.name}'{hint}")
                if implementation.wrapper or implementation.hookwrapper:
                    raise PluginError(f"{origin}: '{caller.name}' cannot be wrapped, it is called once per plugin")
                rank = -1 if implementation.tryfirst else 1 if implementation.trylast else 0
                arguments = check_hook(origin, caller.name, implementation.function, known[caller.name])
                hooks[caller.name].append(_Hook(origin, caller.name, implementation.function, arguments, rank))
    return {name: tuple(sorted(items, key=lambda hook: hook.rank)) for name, items in hooks.items()}


def _check_hooks(
    manager: pluggy.PluginManager, origin: PluginOrigin, plugin: object, known: Mapping[str, tuple[str, ...]]
) -> None:
    """Says what pluggy would not: a hook without its mark, or of something that is no function, is passed over in silence."""
    for name in dir(plugin):
        if not name.startswith(HOOK_PREFIX):
            continue
        found = inspect.getattr_static(plugin, name, None)
        options = manager.parse_hookimpl_opts(plugin, name)
        marked = options is not None
        if options is not None and name in known and not (options["wrapper"] or options["hookwrapper"]):
            check_hook(origin, name, getattr(plugin, name), known[name])
        if inspect.isroutine(found) and not marked:
            raise PluginError(f"{origin}: '{name}' is not marked with @flintmq.core.kernel.hookspecs.hookimpl")
        if name in known and not inspect.isroutine(found) and not marked:
            raise PluginError(
                f"{origin}: {name}: expected a function {name}({', '.join(known[name])}), marked with "
                f"@flintmq.core.kernel.hookspecs.hookimpl; found {shown(found)}"
            )
