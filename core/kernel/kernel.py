"""The kernel: loads plugins, calls their hooks once, and keeps the objects that the plugins register, by kind and name.

::

    built-ins ─┐
    entry points of group "flintmq" ─┼─► Kernel.assemble ─► registries by name ─► the broker's composition root
    plugins: of the configuration ─┘        (pluggy ends here)

Only :mod:`flintmq.core.kernel.hooks` and :mod:`flintmq.core.kernel.hookspecs` import pluggy. If a plugin cannot be used, the
kernel raises a :class:`~flintmq.core.errors.PluginError` that names the plugin and the distribution or configuration file that
it comes from.
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
"""Kinds of registered objects that can fail because of a client's request or message. Only consecutive failures of such an
object count."""


class Kernel:
    """The plugins of one broker and their registrations. Made by :meth:`assemble`. Used only on the event loop's thread.

    If two registrations have the same name, a third party's registration replaces the built-in registration. Between two third
    parties, the configuration chooses with ``plugin/name`` (see :mod:`flintmq.core.kernel.registry`).
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, failures: Failures | None = None) -> None:
        self._clock = clock
        self.failures = failures or Failures()
        """Failures of the objects that each plugin registered, and the objects that are switched off after too many
        failures."""
        self._found: tuple[FoundPlugin, ...] = ()
        self._parts: dict[PluginOrigin, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Hooks and registrations of each plugin, keyed by plugin. The mapping never changes after the kernel is assembled."""
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        self.registries = Registries()
        """Registrations of all plugins."""
        self.settings_of: Callable[[Registered[Any]], object] = lambda _registered: None
        """Function that returns the section of the configuration that belongs to a plugin's registration."""

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
        """Load plugins and collect their registrations.

        Args:
            plugins: the entries of ``plugins`` in the configuration, in its order.
            builtins: plugin objects that the composition root passes in, because the core imports no plugin.
            objects: plugin objects of the program that embeds the broker. Like third parties' plugins, they may replace
                built-ins.
            use_entry_points: whether installed plugins are loaded.
            disabled: names of the plugins that are not loaded.
            disabled_at: the place of ``disabled`` in the configuration; None if a program passes the names. A name in the
                configuration that no plugin has is an error. A name from a program is only logged, because another broker may
                have the plugin.
            elsewhere: names of plugins that ``disabled`` may contain although this program does not have them.
            config_path: the file that contains ``plugins``, for errors.
            clock: the clock in the contexts of factories.
            failures: the counters for plugins' errors; None for new ones.

        Raises:
            ConfigError: ``disabled`` contains a name that no plugin has.
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
        """Return every plugin that the kernel found, in the order of loading."""
        return [self._info(found) for found in self._found]

    def starting(self, api: BrokerApi) -> None:
        """Call ``flintmq_broker_starting`` of all plugins.

        An error of a built-in stops the start; errors of other plugins are only counted.
        """
        self._tell("flintmq_broker_starting", builtins_raise=True, api=api)

    def fenced(self, api: BrokerApi, reason: str) -> None:
        """Call ``flintmq_broker_fenced`` of all plugins. Never raises."""
        self._tell("flintmq_broker_fenced", api=api, reason=reason)

    def context(self, registered: Registered[Any], kind: Callable[..., C], **given: object) -> C:
        """Return the context for the factory of a registration.

        Args:
            registered: the registration, whose settings the context gets.
            kind: the class of the context.
            given: further fields of the context, keyed by name.

        Raises:
            ConfigError: the settings are wrong.
        """
        return kind(settings=self.settings_of(registered), clock=self._clock, **given)

    def make(self, registered: Registered[Any], factory: Callable[[C], T], context: C) -> T:
        """Call a factory and return the object that it makes. Errors of built-ins are raised unchanged.

        A third party's flush service, pool, index builder or intake step is returned in a :class:`Guarded`, which counts and
        logs its later errors.

        Raises:
            PluginError: a third party's factory raised, or made an object that cannot be used. The text names the plugin.
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
        # A factory of services, or of steps that process sent messages, may return None if the settings do not need the object.
        if (made is None and shape in (INTAKE_STEP, SERVICE)) or shape is FILTER:
            return made
        if not owner.built_in and (shape.methods or shape.optional):  # mypy and tests check built-in ones
            shape.check_made(owner, registered.name, made)
        if owner.built_in or shape not in _GUARDED:
            return made
        return cast("T", Guarded(made, shape, self.part(registered), shape.where(owner, registered.name)))

    def part(self, registered: Registered[Any]) -> Part:
        """Return the :class:`Part` that counts the failures of a registered object.

        Objects that the broker needs are never switched off. This includes all objects that decide whether a request or a
        message is accepted.
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
        """Return the object that counts the failures of a timer or runtime figure, and switches it off after too many failures.

        The broker calls this method while a timer or figure is added. If a third party's plugin adds it during a call from the
        kernel, its failures are counted for this plugin. If it is added by a built-in plugin or outside such a call, the method
        returns None.

        Args:
            what: the name of the timer or figure in lists, such as ``the timer 'audit'``.
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
