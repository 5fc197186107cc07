"""Collects the functions that plugins have for each hook. This is the only module that calls pluggy.

The functions are checked and collected once, while a broker is assembled, because a call through pluggy is many times slower
than a call of a bound function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
import pluggy

from flintmq.config.errors import hint
from flintmq.core.errors import PluginError
from flintmq.core.kernel.finder import FoundPlugin, plugin_within
from flintmq.core.kernel.hookspecs import PROJECT, FlintSpecs
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.plugin_shapes import Signature, drop, is_async, shown

HOOK_PREFIX: Final = "flintmq_"


class Hook(msgspec.Struct, frozen=True):
    """A plugin's implementation of one hook: a plain function, which is called without pluggy."""

    owner: PluginOrigin
    name: str
    function: Callable[..., object]
    argument_names: tuple[str, ...]
    rank: int
    """Sort key of a plugin's implementation among the implementations of a hook: -1 for ``tryfirst``, 1 for ``trylast``,
    otherwise 0."""

    def __call__(self, **arguments: object) -> None:
        """Call a plugin's implementation of a hook.

        Raises ``PluginError`` if it returns a value, because hooks return nothing.
        """
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


class _Manager(pluggy.PluginManager):
    """A plugin manager that looks for no hooks in attributes that every Python object has, like ``__class__``."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Return the hook options of a plugin's attribute; None if the attribute is not marked as a hook."""
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


def collect_hooks(found: Iterable[FoundPlugin]) -> dict[str, tuple[Hook, ...]]:
    """Check every plugin against the hook specifications, and return the functions of all plugins, keyed by hook.

    Raises:
        PluginError: a plugin has no hook, or it has a hook with an unknown name, with a wrong signature, or without the mark of
            ``hookimpl``.
    """
    manager = _Manager(PROJECT)
    manager.add_hookspecs(FlintSpecs)
    known = {
        name: tuple(inspect.signature(spec).parameters)[1:]
        for name, spec in vars(FlintSpecs).items()
        if name.startswith(HOOK_PREFIX)
    }
    hooks: dict[str, list[Hook]] = {name: [] for name in known}
    for item in found:
        origin, plugin = item.origin, item.plugin
        for hook in _hooks_of(manager, origin, plugin, known):
            hooks[hook.name].append(hook)
        try:
            manager.register(plugin, name=origin.name)
        except ValueError as error:
            raise PluginError(f"{origin}: a plugin of this name, or the same object, is loaded already") from error
        if not manager.get_hookcallers(plugin):
            within = plugin_within(plugin, HOOK_PREFIX)
            meant = f"; did you mean '{within}'?" if within else ""
            raise PluginError(
                f"{origin}: implements no hook; its functions need @flintmq.core.kernel.hookspecs.hookimpl{meant}"
            )
    return {name: tuple(sorted(items, key=lambda hook: hook.rank)) for name, items in hooks.items()}


def _hooks_of(
    manager: pluggy.PluginManager, origin: PluginOrigin, plugin: object, known: Mapping[str, Signature]
) -> Iterator[Hook]:
    """Yield the hooks of a plugin. The hooks are checked before pluggy registers them, because pluggy's errors name no remedy,
    and pluggy ignores functions that are not marked.

    Raises:
        PluginError: as :func:`collect_hooks`.
    """
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            _check_unmarked(origin, plugin, attribute, known)
            continue
        name = options["specname"] or attribute
        if name in known:
            if options["wrapper"] or options["hookwrapper"]:
                raise PluginError(f"{origin}: '{name}' cannot be wrapped, it is called once per plugin")
            function = getattr(plugin, attribute)
            arguments = _check_function(origin, name, function, known[name])
            yield Hook(origin, name, function, arguments, options["trylast"] - options["tryfirst"])
        elif not options["optionalhook"]:
            there = f"; there are: {', '.join(known)}"
            raise PluginError(f"{origin}: there is no hook '{name}'{hint(name, known, there)}")


def _check_unmarked(origin: PluginOrigin, plugin: object, name: str, known: Mapping[str, Signature]) -> None:
    """Raise ``PluginError`` if an attribute has the name of a hook, but is not a marked function."""
    found = inspect.getattr_static(plugin, name, None) if name.startswith(HOOK_PREFIX) else None
    if inspect.isroutine(found):
        raise PluginError(f"{origin}: '{name}' is not marked with @flintmq.core.kernel.hookspecs.hookimpl")
    if name in known:
        raise PluginError(
            f"{origin}: {name}: expected a function {name}({', '.join(known[name])}), marked with "
            f"@flintmq.core.kernel.hookspecs.hookimpl; found {shown(found)}"
        )


def _check_function(owner: PluginOrigin, hook: str, function: Callable[..., object], expected: Signature) -> Signature:
    """Check a plugin's function for a hook before it is called.

    Args:
        expected: the names of the hook's arguments. The function must take ``register`` if the hook has it, and may leave
            out others.

    Returns:
        The names of the arguments that the function takes.

    Raises:
        PluginError: the function has other arguments than the hook, or it is not a plain function.
    """
    where = f"{owner}: {hook}"
    call = f"{hook}({', '.join(expected)})"
    if is_async(function):
        raise PluginError(f"{where}: expected a plain function {call}; found 'async def', which is never awaited")
    if inspect.isgeneratorfunction(function):
        raise PluginError(
            f"{where}: expected a plain function {call}; found a 'yield': calling the function does nothing"
        )
    signature = inspect.signature(function)
    named: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named += [name for name in expected if name not in named]
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif parameter.kind is not parameter.POSITIONAL_ONLY and parameter.name in expected:
            named.append(parameter.name)
        elif parameter.default is parameter.empty:
            meant = hint(parameter.name, expected)
            raise PluginError(f"{where}: expected {call}, with these parameter names; found {hook}{signature}{meant}")
    if "register" in expected and "register" not in named:
        raise PluginError(f"{where}: expected {call}; found {hook}{signature}: add the parameter 'register'")
    return tuple(named)
