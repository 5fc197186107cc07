"""The registry of one kind of registration, and the choice between registrations of the same name.

The rule is the same for all kinds: a third party's registration replaces the built-in. If two third parties register the same
name, the configuration must choose with ``plugin/name``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from flintmq.config.errors import hint
from flintmq.core.errors import PluginError
from flintmq.core.kernel.plugin_info import PluginOrigin
from flintmq.core.kernel.plugin_shapes import Shape, shown
from flintmq.core.kernel.ports.processor import RequestDeclaration

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def is_name(name: object) -> bool:
    """Return whether an object is a valid name for a registration."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class Registered(msgspec.Struct, Generic[T], frozen=True):
    """A plugin's registration: the registered object, its name, the plugin, and the requirements for the object."""

    name: str
    value: T
    owner: PluginOrigin
    shape: Shape
    """Requirements for the object that the factory makes."""
    essential: bool = False
    """Whether the object that the factory makes is essential: its failure stops acknowledgments. Only dispatchers can be
    essential."""

    @property
    def what(self) -> str:
        """Kind and name of the registration, for errors: ``dispatcher 'audit'``."""
        return f"{self.shape.kind} '{self.name}'"

    @property
    def full_name(self) -> str:
        """Name of the registration with its plugin, ``plugin/name``, which is unique."""
        return f"{self.owner.name}/{self.name}"


class Registry(Generic[T]):
    """The plugins' registrations of one kind. Filled while a broker is assembled, read-only afterwards.

    Args:
        shape: the requirements for the registrations.
        setting: the configuration key that selects one of the registrations; empty if no key selects.
    """

    def __init__(self, shape: Shape, setting: str = "") -> None:
        self.shape = shape
        self.kind = shape.kind
        self._setting = setting
        self._entries: list[Registered[T]] = []

    def add(self, owner: PluginOrigin, name: str, value: T, *, essential: bool = False) -> None:
        """Add a plugin's registration.

        Raises:
            PluginError: the name is malformed, or the same plugin has already registered it. The error is also raised if a
                built-in plugin registers a name that another built-in plugin has registered.
        """
        if not is_name(name):
            raise PluginError(
                f"{owner}: {self.shape.hook}: a {self.kind}'s name has letters, digits, '_', '.' and '-': "
                f"expected such a str, found {shown(name)}"
            )
        for entry in self._entries:
            if entry.name == name and entry.owner == owner:
                raise PluginError(
                    f"{owner}: {self.shape.hook}: registers the {self.kind} '{name}' twice: expected each name once"
                )
            if entry.name == name and entry.owner.built_in and owner.built_in:
                raise PluginError(f"{owner}: the {self.kind} '{name}' is registered by {entry.owner} already")
        self._entries.append(Registered(name, value, owner, self.shape, essential))

    def pick(self, name: str) -> Registered[T]:
        """Return the registration that the configuration names as ``name`` or ``plugin/name``.

        Raises:
            PluginError: the name is unknown (the text has the nearest known name), or several third parties registered the
                name.
        """
        if "/" in name:
            plugin, _, plain = name.rpartition("/")
            # The setting ``plugins`` lists a plugin as ``module:object``, but the plugin's name is ``module.object``.
            # If the configuration names a plugin as ``module:object``, the colon is replaced by a dot to find the plugin.
            plugin = plugin.replace(":", ".")
            for entry in self._entries:
                if entry.name == plain and entry.owner.name == plugin:
                    return self._as_essential_as_built_in(entry)
            raise self._unknown(name, [entry.full_name for entry in self._entries])
        named = [entry for entry in self._entries if entry.name == name]
        if not named:
            raise self._unknown(name, [entry.name for entry in self._entries])
        return self._winner(named)

    def all(self, *chosen: str) -> tuple[Registered[T], ...]:
        """Return one registration for each registered name, in the order of the names' first registration.

        Args:
            chosen: names from the configuration, ``name`` or ``plugin/name``, which decide between equal names.

        Raises:
            PluginError: several third parties registered a name, and the configuration does not choose.
        """
        by_name: dict[str, list[Registered[T]]] = {}
        for entry in self._entries:
            by_name.setdefault(entry.name, []).append(entry)
        picked = [self.pick(name) for name in chosen]
        found = {name: self._winner(named) for name, named in by_name.items() if name not in {p.name for p in picked}}
        found |= {entry.name: entry for entry in picked}
        return tuple(found[name] for name in by_name)

    def every(self) -> tuple[Registered[T], ...]:
        """Return all registrations of one kind, in their order, including registrations with the same name."""
        return tuple(self._entries)

    def of(self, owner: PluginOrigin) -> tuple[Registered[T], ...]:
        """Return all registrations of one kind that a plugin made, including replaced registrations."""
        return tuple(entry for entry in self._entries if entry.owner == owner)

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.name for entry in self._entries))

    def essential_names(self) -> tuple[str, ...]:
        """Return the names of essential built-ins, which may be replaced, but not left out."""
        return tuple(entry.name for entry in self._entries if entry.essential and entry.owner.built_in)

    def _winner(self, named: list[Registered[T]]) -> Registered[T]:
        third_party = [entry for entry in named if not entry.owner.built_in]
        if len(third_party) > 1:
            owners = " and ".join(str(entry.owner) for entry in third_party)
            choice = " or ".join(f"'{entry.full_name}'" for entry in third_party)
            names = " or ".join(f"'{entry.owner.name}'" for entry in third_party)
            advice = f"write {choice} in '{self._setting}'" if self._setting else f"list {names} in 'disabled_plugins'"
            raise PluginError(f"the {self.kind} '{named[0].name}' is registered by {owners}: {advice}")
        return self._as_essential_as_built_in(third_party[0]) if third_party else named[0]

    def _as_essential_as_built_in(self, entry: Registered[T]) -> Registered[T]:
        """Return a registration, marked as essential if it replaces an essential built-in."""
        if not entry.essential and entry.name in self.essential_names():
            return msgspec.structs.replace(entry, essential=True)
        return entry

    def _unknown(self, name: str, known: Iterable[str]) -> PluginError:
        names = sorted(set(known))
        where = f" ({self._setting})" if self._setting else ""
        there = f"; there are: {', '.join(names) or 'none'}"
        return PluginError(f"no {self.kind} is named '{name[:80]}'{where}{hint(name, names, there)}")


SERVERS: Final = ("broker", "nameserver")


class ServerPart(msgspec.Struct, frozen=True):
    """A registration for a server: a request or default processor, a connection listener, or an RPC hook."""

    factory: Callable[..., Any]
    """Function that makes the registered object from the context of a broker or a name server."""
    at: str
    """Server for which the object is registered: ``broker``, ``nameserver`` or ``both``."""
    declarations: tuple[RequestDeclaration, ...] = ()
    """Request codes that the processor answers, without the codes that a third party's processor answers instead."""
    threads: Mapping[str, int] = {}
    """Number of threads of each pool of a processor, keyed by pool name; 0 for the broker's own pools
    (:data:`flintmq.core.kernel.ports.processor.LOOP_POOLS`)."""

    @property
    def codes(self) -> tuple[int, ...]:
        """Request codes that the processor answers."""
        return tuple(one.code for one in self.declarations)

    def is_for(self, server: str) -> bool:
        """Return whether the registration is for a server, one of :data:`SERVERS`."""
        return self.at in (server, "both")


class CommandSpec(msgspec.Struct, frozen=True):
    """A subcommand of ``flintmq`` that a plugin registered."""

    command: Any
    """The subcommand, a ``click.Command``."""
    help: str
    """Help text that replaces the help text of the subcommand; empty if the subcommand keeps its help text."""
