"""Finds plugin objects that are passed in, installed, or named in the configuration."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from flintmq.config.errors import hint
from flintmq.config.sections.models import PluginRef
from flintmq.core.errors import PluginError
from flintmq.core.kernel.failures import PLUGIN_FAULTS, brief
from flintmq.core.kernel.plugin_info import PluginOrigin, PluginSource

ENTRY_POINT_GROUP: Final = "flintmq"
_ANNOUNCED: Final = f"[{ENTRY_POINT_GROUP}]".encode()


class FoundPlugin(msgspec.Struct, frozen=True):
    """A plugin that was found. It is loaded unless the configuration disables it."""

    origin: PluginOrigin
    target: str
    """Import path of the plugin: ``package.module:object`` or ``package.module``; empty for a plugin that was passed as an
    object."""
    plugin: Any
    """Plugin object; None if the plugin is disabled."""
    enabled: bool


def plain_name(target: str) -> str:
    """Return a plugin's name, given its text in the configuration: ``a.b:c`` is named ``a.b.c``."""
    return target.replace(":", ".")


def find_objects(
    plugins: Iterable[object], disabled: frozenset[str], source: PluginSource = PluginSource.BUILT_IN
) -> list[FoundPlugin]:
    """Return the plugins that were passed as objects. Each object is named by its ``plugin_name``; without this attribute, by
    its module or class.
    """
    found = []
    for plugin in plugins:
        origin = PluginOrigin(_object_name(plugin), source)
        enabled = origin.name not in disabled
        found.append(FoundPlugin(origin, "", plugin if enabled else None, enabled))
    return found


def may_have_entry_points() -> bool:
    """Return True if an installed distribution may have plugins, and False if certainly none has plugins.

    An import of ``importlib_metadata`` costs 2 MiB and 5 % of the time of a start, and most installations have no plugins.
    Therefore this function only searches the ``entry_points.txt`` files of the installed distributions for the name of the
    plugins' entry point group. The function returns True if Python can import from a Zip file, or with an additional import
    finder that finds distributions. Distributions in these places cannot be searched in this way.
    """
    if any(hasattr(f, "find_distributions") and f is not importlib.machinery.PathFinder for f in sys.meta_path):
        return True
    return any(_announces(folder or os.curdir) for folder in sys.path)


def _announces(folder: str) -> bool:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - hundreds of them, at every start
    except (FileNotFoundError, PermissionError):
        return False
    except OSError:
        return True
    for name in names:
        if name.lower().endswith((".dist-info", ".egg-info")) or name == "EGG-INFO":
            try:
                with open(f"{folder}/{name}/entry_points.txt", "rb") as file:
                    if _ANNOUNCED in file.read():
                        return True
            except (FileNotFoundError, NotADirectoryError):
                continue
    return False


def find_entry_points(disabled: frozenset[str]) -> list[FoundPlugin]:
    """Return the installed plugins, sorted by name.

    Raises:
        PluginError: a plugin cannot be loaded, or two distributions use the same name.
    """
    found: dict[str, FoundPlugin] = {}
    if not may_have_entry_points():
        return []
    import importlib_metadata

    entry_points = importlib_metadata.entry_points(group=ENTRY_POINT_GROUP)
    for entry_point in sorted(entry_points, key=lambda entry_point: entry_point.name):
        distribution = entry_point.dist
        place = f"{distribution.name} {distribution.version}" if distribution is not None else ""
        origin = PluginOrigin(entry_point.name, PluginSource.ENTRY_POINT, place)
        other = found.get(origin.name)
        if other is not None:
            raise PluginError(f"{origin}: another plugin, {other.origin}, has the same name")
        enabled = origin.name not in disabled
        plugin = _load(origin, entry_point.value) if enabled else None
        found[origin.name] = FoundPlugin(origin, entry_point.value, plugin, enabled)
    return list(found.values())


def find_configured(
    refs: Sequence[PluginRef], config_path: str | Path | None, disabled: frozenset[str], found: Sequence[FoundPlugin]
) -> list[FoundPlugin]:
    """Return the plugins that the configuration names, in the configuration's order, without plugins that are also entry
    points.

    Raises:
        PluginError: a plugin cannot be loaded or is named twice.
    """
    targets = {item.target for item in found if item.target}
    configured: dict[str, FoundPlugin] = {}
    for ref in refs:
        place = _place(config_path, ref.line)
        origin = PluginOrigin(plain_name(ref.target), PluginSource.CONFIGURATION, place)
        if origin.name in configured:
            raise PluginError(f"{origin}: the configuration names this plugin twice")
        if ref.target in targets:
            continue
        enabled = origin.name not in disabled
        plugin = _load(origin, ref.target) if enabled else None
        configured[origin.name] = FoundPlugin(origin, ref.target, plugin, enabled)
    return list(configured.values())


def _place(config_path: str | Path | None, line: int | None) -> str:
    if config_path is None:
        return "" if line is None else f"line {line}"
    return str(config_path) if line is None else f"{config_path}:{line}"


def _object_name(plugin: object) -> str:
    name = getattr(plugin, "plugin_name", None)
    if isinstance(name, str):
        return name
    if isinstance(plugin, types.ModuleType):
        return plugin.__name__.rpartition(".")[2]
    return type(plugin).__name__


def plugin_within(module: object, prefix: str) -> str:
    """Return the name ``module:object`` of the first object in a module that has hooks; empty if no object in the module has
    hooks.

    Args:
        module: the module; for any other object the result is empty.
        prefix: the prefix of the names of hooks.
    """
    if isinstance(module, types.ModuleType):
        for name, value in vars(module).items():
            known = isinstance(value, types.ModuleType) or name.startswith("_")
            if not known and any(attribute.startswith(prefix) for attribute in dir(value)):
                return f"{module.__name__}:{name}"
    return ""


def _load(origin: PluginOrigin, target: str) -> Any:
    """Return the plugin object that ``package.module:object`` or ``package.module`` names. A class is instantiated.

    Raises:
        PluginError: the plugin cannot be loaded, for example because its import raised an exception of any type.
    """
    module_name, _, path = target.partition(":")
    try:
        plugin: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            parent, _, last = module_name.rpartition(".")
            if not path and hasattr(sys.modules.get(parent), last):
                raise PluginError(f"{origin}: '{last}' is not a module; did you mean '{parent}:{last}'?") from error
            raise PluginError(
                f"{origin}: there is no module '{error.name}': install it, or name its folder in PYTHONPATH"
            ) from error
        raise PluginError(f"{origin}: '{module_name}' needs a module that is missing: {error}") from error
    except PLUGIN_FAULTS as error:
        raise PluginError(f"{origin}: raised while it was loaded: {brief(error)}") from error
    for part in path.split(".") if path else ():
        try:
            plugin = getattr(plugin, part)
        except AttributeError as error:
            raise PluginError(f"{origin}: '{module_name}' has no '{part}'{hint(part, dir(plugin))}") from error
    if not isinstance(plugin, type):
        return plugin
    try:
        return plugin()
    except PLUGIN_FAULTS as error:
        raise PluginError(f"{origin}: raised while it was made: {brief(error)}") from error
