"""What plugins registered under names, and which one a name means.

The rule for equal names, the same everywhere: a third party's replaces the built-in; between two third parties the
configuration must choose, by writing ``plugin/name``.
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
    """Return whether something can be registered under this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class Registered(msgspec.Struct, Generic[T], frozen=True):
    """One thing a plugin registered."""

    name: str
    value: T
    owner: PluginOrigin
    shape: Shape
    """What its factory makes."""
    essential: bool = False
    """Its failure stops acknowledgements (dispatchers only)."""

    @property
    def what(self) -> str:
        """Return its name in errors: ``dispatcher 'audit'``."""
        return f"{self.shape.kind} '{self.name}'"

    @property
    def full_name(self) -> str:
        """``plugin/name``, which is never ambiguous."""
        return f"{self.owner.name}/{self.name}"


class Registry(Generic[T]):
    """The registrations of one kind. Filled while a broker is assembled, read-only afterwards.

    Args:
        shape: what is registered.
        setting: the configuration key that chooses by name; empty when there is none.
    """

    def __init__(self, shape: Shape, setting: str = "") -> None:
        self.shape = shape
        self.kind = shape.kind
        self._setting = setting
        self._entries: list[Registered[T]] = []

    def add(self, owner: PluginOrigin, name: str, value: T, *, essential: bool = False) -> None:
        """Take a registration.

        Raises:
            PluginError: the name is malformed, or taken by the same plugin or another built-in.
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
        """Return what a name of the configuration means: ``name`` or ``plugin/name``.

        Raises:
            PluginError: unknown (naming the nearest), or claimed by several third parties.
        """
        if "/" in name:
            plugin, _, plain = name.rpartition("/")
            # A plugin of the configuration may be written as it is there, with its colon.
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
        """Return one registration for every name, in order of first registration.

        Args:
            chosen: what the configuration says, ``name`` or ``plugin/name``: that counts for its name.

        Raises:
            PluginError: a name is claimed by several third parties.
        """
        by_name: dict[str, list[Registered[T]]] = {}
        for entry in self._entries:
            by_name.setdefault(entry.name, []).append(entry)
        picked = [self.pick(name) for name in chosen]
        found = {name: self._winner(named) for name, named in by_name.items() if name not in {p.name for p in picked}}
        found |= {entry.name: entry for entry in picked}
        return tuple(found[name] for name in by_name)

    def every(self) -> tuple[Registered[T], ...]:
        """Return all registrations, in their order, whatever their names: for what does not take another's place."""
        return tuple(self._entries)

    def of(self, owner: PluginOrigin) -> tuple[Registered[T], ...]:
        """Return what one plugin registered, replaced or not."""
        return tuple(entry for entry in self._entries if entry.owner == owner)

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.name for entry in self._entries))

    def essential_names(self) -> tuple[str, ...]:
        """Names of essential built-ins: they may be replaced, not left out."""
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
        """Make essential what replaces an essential built-in, whatever its author said."""
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
    """What was registered for a server: a request or default processor, a connection listener, an RPC hook."""

    factory: Callable[..., Any]
    """Makes it, of the context of the broker or the name server that it is for."""
    at: str
    """``broker``, ``nameserver``, or ``both``."""
    declarations: tuple[RequestDeclaration, ...] = ()
    """The request codes a processor answers; less those a third party's processor took over."""
    threads: Mapping[str, int] = {}
    """How many threads each pool of a processor has; 0 for the loop's (``LOOP_POOLS`` of the port)."""

    @property
    def codes(self) -> tuple[int, ...]:
        """The request codes it answers."""
        return tuple(one.code for one in self.declarations)

    def is_for(self, server: str) -> bool:
        """Return whether it is for the one of :data:`SERVERS`."""
        return self.at in (server, "both")


class CommandSpec(msgspec.Struct, frozen=True):
    """A subcommand of ``flintmq`` as it was registered."""

    command: Any
    """A ``click.Command``."""
    help: str
    """The help that is shown instead of the command's own; empty for the latter."""
