"""The kernel: loads plugins, asks each once what it offers, and hands the answers out as plain tuples.

::

    built-ins ─┐
    entry points of group "flintmq" ─┼─► Kernel.assemble ─► registries by name ─► the broker's composition root
    plugins: of the configuration ─┘        (pluggy ends here)

Only :mod:`flintmq.core.kernel.hooks` and :mod:`flintmq.core.kernel.hookspecs` know pluggy. Every fault of a plugin is a
:class:`~flintmq.core.errors.PluginError` that names the plugin and the place that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import PluginError
from flintmq.core.io.clock import SYSTEM_CLOCK, Clock
from flintmq.core.kernel.failures import CALLING, PLUGIN_FAULTS, Failures, Part, brief
from flintmq.core.kernel.finder import FoundPlugin, find_configured, find_entry_points, find_objects, plain_name
from flintmq.core.kernel.hooks import Hook, collect_hooks
from flintmq.core.kernel.isolation import Guarded
from flintmq.core.kernel.plugin_info import PluginInfo, PluginOrigin, PluginSource
from flintmq.core.kernel.plugin_shapes import (
    AUTHENTICATOR,
    DEFAULT_PROCESSOR,
    FILTER,
    FLUSH_STRATEGY,
    INDEX_BUILDER,
    INTAKE_STEP,
    POOL,
    PROCESSOR,
    RPC_HOOK,
    SERVICE,
)
from flintmq.core.kernel.registries import Registries, checked_call
from flintmq.core.kernel.registry import Registered
from flintmq.core.log_events import event_log

if TYPE_CHECKING:
    from flintmq.config.loading.raw import Origin
    from flintmq.core.broker.api import BrokerApi

C = TypeVar("C")
T = TypeVar("T")

_LOG = event_log("flintmq.plugins")

_NEVER_OFF = (FLUSH_STRATEGY, POOL, AUTHENTICATOR, RPC_HOOK)
_GUARDED = (FLUSH_STRATEGY, POOL, INDEX_BUILDER, INTAKE_STEP)
_PROVOKED = (PROCESSOR, DEFAULT_PROCESSOR, FILTER, INTAKE_STEP)
"""What clients' requests and messages may lead astray."""


class Kernel:
    """The plugins of one broker and what they registered. Made by :meth:`assemble`; loop thread.

    Equal names: a third party's replaces the built-in, and between two third parties the configuration chooses with
    ``plugin/name`` (see :mod:`flintmq.core.kernel.registry`).
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, failures: Failures | None = None) -> None:
        self._clock = clock
        self.failures = failures or Failures()
        """What the parts of each plugin do wrong, and which are off."""
        self._found: tuple[FoundPlugin, ...] = ()
        self._parts: dict[PluginOrigin, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """The hooks of each plugin and what it registered, which never changes once the kernel is assembled."""
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self.registries = Registries()
        """What the plugins registered."""
        self.settings_of: Callable[[Registered[Any]], object] = lambda _registered: None
        """Returns the section of the configuration for a registration."""

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
        failures: Failures | None = None,
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
            clock: for the contexts of factories.
            failures: what plugins do wrong is counted here; None for a new one.

        Raises:
            ConfigError: ``disabled`` names what no plugin is.
            PluginError: a plugin is missing, raises while it is loaded or registers, has a hook of an unknown name or a
                wrong signature, or registers a name twice.
        """
        kernel = cls(clock, failures)
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
                f"'disabled_plugins' names '{name[:120]}', but no installed plugin has this name",
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
        kernel._hooks = collect_hooks(f for f in found if f.enabled)
        kernel._register_all()
        return kernel

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

    def context(self, registered: Registered[Any], kind: Callable[..., C], **given: object) -> C:
        """Return what the factory of a registration is given.

        Args:
            kind: the class of the context.
            given: its fields beside the settings and the clock.

        Raises:
            ConfigError: the settings are wrong.
        """
        return kind(settings=self.settings_of(registered), clock=self._clock, **given)

    def make(self, registered: Registered[Any], factory: Callable[[C], T], context: C) -> T:
        """Return what a factory makes. Errors of built-ins pass as they are.

        Errors that the methods of a third party's flush services, pools, index builders and intake steps raise later are
        counted and named.

        Raises:
            PluginError: a third party's factory raises, or what it makes cannot be used; names the plugin.
        """
        owner, shape = registered.owner, registered.shape
        try:
            with self.failures.of(owner, shape.hook, f"make {registered.what}").making() as call:
                made = factory(context)
            call.outcome = f"made a {type(made).__name__}"
        except PLUGIN_FAULTS as error:
            if owner.built_in or isinstance(error, (PluginError, ConfigError)):
                raise
            raise PluginError(f"{owner}: {shape.hook}: '{registered.name}' cannot be made: {brief(error)}") from error
        # None is asked for; the filters of a factory are checked when they are made.
        if (made is None and shape in (INTAKE_STEP, SERVICE)) or shape is FILTER:
            return made
        if not owner.built_in and (shape.methods or shape.optional):  # mypy and the kits check those built in
            shape.check_made(owner, registered.name, made)
        if owner.built_in or shape not in _GUARDED:
            return made
        return cast("T", Guarded(made, shape, self.part(registered), shape.where(owner, registered.name)))

    def part(self, registered: Registered[Any]) -> Part:
        """Return what counts the failures of a registration, which is optional as its kind is.

        What decides whether a request or a message may pass is never switched off, nor what the broker cannot do without.
        """
        needed = registered.essential or registered.shape in _NEVER_OFF or self.registries.replaces_built_in(registered)
        return self.failures.of(
            registered.owner,
            registered.shape.hook,
            registered.what,
            optional=not needed,
            provoked=registered.shape in _PROVOKED,
        )

    def calling(self, what: str) -> Part | None:
        """Return what counts the failures of something that a third party's plugin adds while it is called; None if none is.

        Args:
            what: its name in lists: ``the timer 'audit'``.
        """
        owner = CALLING.get()
        return None if owner is None else self.failures.of(owner, SERVICE.hook, what, optional=True)

    def _tell(self, hook: str, *, builtins_raise: bool = False, **arguments: Any) -> None:
        for implementation in self._hooks.get(hook, ()):
            try:
                with self.failures.of(implementation.owner, hook, "the call").making():
                    implementation(**arguments)
            except PLUGIN_FAULTS as error:
                self.failures.note(implementation.owner, hook, error)
                if builtins_raise and implementation.owner.built_in:
                    raise

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
            errors=self.failures.errors(origin),
            last_error=self.failures.last_error(origin),
            switched_off=self.failures.off(origin),
        )

    def _register_all(self) -> None:
        for hook, registrar in self.registries.registrars().items():
            for implementation in self._hooks.get(hook, ()):
                owner = implementation.owner
                try:
                    with self.failures.of(owner, hook, "register").making():
                        implementation(register=checked_call(owner, hook, registrar))
                except PluginError:
                    raise
                except PLUGIN_FAULTS as error:
                    raise PluginError(f"{owner}: raised in {hook}: {brief(error)}") from error
