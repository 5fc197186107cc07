"""The kernel: loads plugins, asks each once what it offers, and hands the answers out as plain tuples.

::

    built-ins ─┐
    entry points of group "flintmq" ─┼─► Kernel.assemble ─► registries by name ─► the broker's composition root
    plugins: of the configuration ─┘        (pluggy ends here)

Only :mod:`flintmq.core.kernel.hooks` and :mod:`flintmq.core.kernel.hookspecs` know pluggy. Every fault of a plugin is a
:class:`~flintmq.core.errors.PluginError` that names the plugin and the place that asks for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.sections.models import PluginRef
from flintmq.config.sections.service import PluginBudgetSection
from flintmq.core.errors import PluginError, RefusedError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.accounts import Account, Ledger
from flintmq.core.kernel.blame import PLUGIN_FAULTS, Blame, PluginCode, brief
from flintmq.core.kernel.finder import FoundPlugin, find_configured, find_entry_points, find_objects, plain_name
from flintmq.core.kernel.hooks import Hook, collect_hooks
from flintmq.core.kernel.hookspecs import PluginContext
from flintmq.core.kernel.isolation import (
    Accountable,
    IsolatedBitMapFilter,
    IsolatedDispatcher,
    IsolatedFilter,
    filter_failed,
)
from flintmq.core.kernel.plugin_info import PluginInfo, PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import (
    AUTHENTICATOR,
    DEFAULT_PROCESSOR,
    DISPATCHER,
    FILTER,
    FLUSH_STRATEGY,
    INDEX_BUILDER,
    INTAKE_STEP,
    POOL,
    PROCESSOR,
    RPC_HOOK,
    SERVICE,
)
from flintmq.core.kernel.ports import BitMapFilter, CommitLogDispatcher, MessageFilter, MessageFilterFactory
from flintmq.core.kernel.registries import Registries, checked_call
from flintmq.core.kernel.registry import Registered
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from flintmq.config.loading.raw import Origin
    from flintmq.core.broker.api import BrokerApi

P = ParamSpec("P")
T = TypeVar("T")

_LOG = event_log("flintmq.plugins")

_NEVER_OFF = (FLUSH_STRATEGY, POOL, AUTHENTICATOR, RPC_HOOK)
_PROVOKED = (PROCESSOR, DEFAULT_PROCESSOR, FILTER, INTAKE_STEP)
"""What clients' requests and messages may lead astray."""


class Kernel:
    """The plugins of one broker and what they registered. Made by :meth:`assemble`; loop thread.

    Equal names: a third party's replaces the built-in, and between two third parties the configuration chooses with
    ``plugin/name`` (see :mod:`flintmq.core.kernel.registry`).
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, ledger: Ledger | None = None) -> None:
        self._clock = clock
        self.ledger = ledger or Ledger(Blame(), clock, PluginBudgetSection())
        """What each thing of a plugin costs and does wrong."""
        self._blame = self.ledger.blame
        self._found: tuple[FoundPlugin, ...] = ()
        self._parts: dict[PluginOrigin, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """The hooks of each plugin and what it registered, which never changes once the kernel is assembled."""
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self.registries = Registries()
        """What the plugins registered."""
        self.context_of: Callable[[Registered[Any]], PluginContext[Any]] = lambda _registered: PluginContext(
            None, clock
        )
        """Makes the context of a factory that asks for one."""

    @classmethod
    def assemble(
        cls,
        plugins: Sequence[PluginRef] = (),
        builtins: Iterable[object] = (),
        *,
        objects: Iterable[object] = (),
        use_entry_points: bool = True,
        disabled: Iterable[str] = (),
        disabled_at: Origin | None = None,
        elsewhere: Iterable[str] = (),
        config_path: str | Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ledger: Ledger | None = None,
    ) -> Kernel:
        """Load plugins and collect what they register.

        Args:
            plugins: ``plugins:`` of the configuration, in its order.
            builtins: plugin objects that the composition root passes in, because the core imports no plugin.
            objects: plugin objects of the program the broker lives in; third parties', so they may replace built-ins.
            use_entry_points: whether installed plugins are loaded.
            disabled: names of plugins not to load.
            disabled_at: where they are written; a name there that no plugin has is refused. None where a program gives them,
                which may have plugins of the name in another broker: then it is logged.
            elsewhere: names of plugins that ``disabled`` may name although they are none of these.
            config_path: the file that ``plugins`` stands in, for errors.
            clock: for counting failures.
            ledger: what plugins cost and do wrong is noted here, and what they may; None for a new one.

        Raises:
            ConfigError: ``disabled`` names what no plugin is.
            PluginError: a plugin is missing, raises while it is loaded or registers, has a hook of an unknown name or a
                wrong signature, or registers a name twice.
        """
        kernel = cls(clock, ledger)
        switched_off = frozenset(plain_name(name) for name in disabled)
        found = find_objects(builtins, switched_off)
        if use_entry_points:
            found += find_entry_points(switched_off)
        found += find_configured(plugins, config_path, switched_off, found)
        found += find_objects(objects, switched_off, PluginSource.PROGRAM)
        known = {*elsewhere, *(one.origin.name for one in found)}
        missing = switched_off - known
        if missing and disabled_at is not None:
            name = min(missing)
            raise disabled_at.error(
                f"'disabled_plugins' names '{name[:120]}', and no plugin that is installed has this name",
                key="disabled_plugins",
                suggestion=nearest(name, known),
            )
        if missing:
            _LOG.warning(
                "plugin.not_installed",
                "disabled_plugins names what is not installed: %(plugins)s",
                plugins=", ".join(sorted(missing)),
            )
        kernel._found = tuple(found)
        for item in found:
            kernel._blame.code.add(item.origin, item.plugin)
        kernel._hooks = collect_hooks(f for f in found if f.enabled)
        kernel._register_all()
        return kernel

    # Filters.

    def filter_factory(self, expression_type: str) -> MessageFilterFactory:
        """Return the factory of a type of filters. Errors of a third party's are counted and named, and no message fits then.

        Raises:
            PluginError: no plugin registered the type.
        """
        registered = self.registries.filters.pick(expression_type)
        return registered.value if registered.owner.built_in else self._isolated_filters(registered)

    def probe_filters(self) -> None:
        """Raise ``PluginError`` for a third party's filter of the wrong shape, unless its factory refuses the expression ``*``.

        Built-in filters are imported with the first subscription that needs them.
        """
        for registered in self.registries.filters.all():
            if registered.owner.built_in:
                continue
            try:
                made = self._with_context(registered, registered.value)("*", frozenset())
            except PLUGIN_FAULTS as error:
                _LOG.debug(
                    "filter.not_made",
                    "%(plugin)s: %(what)s makes no filter of '*': %(error)s",
                    plugin=registered.owner,
                    what=registered.what,
                    error=brief(error),
                )
            else:
                FILTER.check_made(registered.owner, registered.name, made)

    @property
    def code(self) -> PluginCode:
        """Return which code belongs to which plugin."""
        return self._blame.code

    def describe(self) -> list[PluginInfo]:
        """Return every plugin that was found, in the order of loading."""
        return [self._info(found) for found in self._found]

    # The broker's life.

    def starting(self, api: BrokerApi) -> None:
        """Call the plugins: the broker is assembled. A built-in that raises stops the start; others are isolated."""
        self._tell("flintmq_broker_starting", builtins_raise=True, api=api)

    def fenced(self, api: BrokerApi, reason: str) -> None:
        """Call the plugins: nothing is acknowledged any more. Never raises."""
        self._tell("flintmq_broker_fenced", api=api, reason=reason)

    def guarded(self, registered: Registered[Any], factory: Callable[P, T]) -> Callable[P, T]:
        """Return a factory whose failure is a ``PluginError`` that names the plugin, as is a product that cannot be used.

        Errors of built-ins pass as they are. Errors that the methods of a third party's flush services, pools, index builders
        and intake steps raise later are counted and named.
        """
        owner, shape = registered.owner, registered.shape

        @functools.wraps(factory)
        def make(*arguments: P.args, **named: P.kwargs) -> T:
            self._blame.code.add(owner, factory)
            try:
                with self.ledger.noting(owner, registered.hook, f"make {registered.what}") as account:
                    made = self._with_context(registered, factory)(*arguments, **named)
                account.outcome = f"made a {type(made).__name__}"
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
            if made is None and shape is INTAKE_STEP:
                return made  # the configuration asks for none
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
                    self.account(registered),
                    lambda method, error: self._blame_on(registered, method, error),
                ),
            )

        return make

    def isolate(
        self, dispatcher: CommitLogDispatcher, owner: PluginOrigin, essential: bool, name: str = ""
    ) -> IsolatedDispatcher:
        """Wrap a dispatcher: failures are counted, and switch it off rather than stop the broker, unless it is essential."""
        account = self.ledger.of(
            owner, DISPATCHER.hook, f"dispatcher '{name}'", limited=not essential, until_restart=True
        )
        return IsolatedDispatcher(dispatcher, account, essential=essential, blame=self._blame, name=name)

    def account(self, registered: Registered[Any]) -> Account:
        """Return the account of what a plugin registered, limited as its kind is.

        What decides whether a request or a message may pass is never switched off, nor what the broker cannot do without.
        """
        needed = registered.essential or registered.shape in _NEVER_OFF or self.registries.replaces_built_in(registered)
        limited = not (needed or registered.owner.built_in)
        return self.ledger.of_registered(
            registered,
            limited=limited,
            until_restart=registered.shape is INDEX_BUILDER,
            by_share=registered.shape in _PROVOKED,
        )

    def account_of_timer(self, name: str, work: Callable[..., object]) -> Account | None:
        """Return the account of a timer of a third party's code; None for other timers."""
        owner = self._blame.code.owner_of_code(work)
        if owner is None or owner.built_in:
            return None
        return self.ledger.of(owner, SERVICE.hook, f"the timer '{name}'", limited=True)

    def blame(self, registered: Registered[Any], doing: str, error: BaseException, *, is_secret: bool = False) -> None:
        """Count and log an error of something that a plugin registered, for the plugin from whose code it came.

        Args:
            doing: what it was asked to do: ``request 105``. The log distinguishes such texts, so there must be few of them.
            is_secret: the error's text may hold credentials, which only the log may show.
        """
        guilty = self._blame.note(registered.owner, f"{registered.what} ({doing})", error, is_secret=is_secret)
        self.account(registered).failed(guilty)

    @contextlib.contextmanager
    def counting(self, registered: Registered[Any], doing: str) -> Iterator[None]:
        """Count and log what is raised meanwhile, as :meth:`blame` does; it goes no further."""
        try:
            yield
        except PLUGIN_FAULTS as error:
            self.blame(registered, doing, error)

    def blame_code(self, doing: str, error: BaseException) -> bool:
        """Count an error from a plugin's code that the plugin did not register by name, such as the work of a timer.

        Returns:
            False when it came from no plugin, and the caller has to log it.
        """
        return self._blame.note_code(doing, error)

    def _blame_on(self, registered: Registered[Any], doing: str, error: BaseException) -> None:
        """Count and log an error that is raised again."""
        guilty = self._blame.note(registered.owner, f"{registered.what} ({doing})", error, raised_on=True)
        self.account(registered).failed(guilty)

    def _with_context(self, registered: Registered[Any], factory: Callable[P, T]) -> Callable[P, T]:
        """Return a factory bound to the context that it asks for."""
        shape = registered.shape
        if registered.owner.built_in or shape is None or not shape.asks_for_context(factory):
            return factory
        context = self.context_of(registered)
        return shape.bind(factory, context, context.settings)

    def _isolated_filters(self, registered: Registered[MessageFilterFactory]) -> MessageFilterFactory:
        def note(method: str, error: BaseException) -> None:
            self.blame(registered, method, error)

        factory = self._with_context(registered, registered.value)
        account = self.account(registered)

        def make(expression: str, codes: frozenset[int]) -> MessageFilter:
            account.check()
            try:
                made = factory(expression, codes)
                FILTER.check_made(registered.owner, registered.name, made)
            except RefusedError:
                raise
            except PLUGIN_FAULTS as error:
                note("its factory", error)
                raise filter_failed(registered.name) from error
            self._blame.code.add(registered.owner, made)
            if isinstance(made, BitMapFilter):
                return IsolatedBitMapFilter(made, account, note)
            return IsolatedFilter(made, account, note)

        self._blame.code.add(registered.owner, registered.value)
        return make

    def _tell(self, hook: str, *, builtins_raise: bool = False, **arguments: Any) -> None:
        for implementation in self._hooks.get(hook, ()):
            try:
                with self.ledger.noting(implementation.owner, hook, "the call"):
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
        if origin not in self._parts:
            hooks = tuple(name for name, hooks in self._hooks.items() if any(h.owner == origin for h in hooks))
            self._parts[origin] = hooks, self.registries.registered_by(origin)
        hooks, registered = self._parts[origin]
        return PluginInfo(
            origin=origin,
            enabled=found.enabled,
            hooks=hooks,
            registered=registered,
            errors=self._blame.errors(origin),
            last_error=self._blame.last_error(origin),
            switched_off=self.ledger.off(origin),
            switched_off_times=self.ledger.switched_off_times.get(origin, 0),
        )

    def _register_all(self) -> None:
        for hook, registrar in self.registries.registrars().items():
            for implementation in self._hooks.get(hook, ()):
                owner = implementation.owner
                try:
                    with self.ledger.noting(owner, hook, "register"):
                        implementation(register=checked_call(owner, hook, registrar))
                except PluginError:
                    raise
                except PLUGIN_FAULTS as error:
                    raise PluginError(f"{owner}: raised in {hook}: {brief(error)}") from error
