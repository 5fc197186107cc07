"""Assigns the entries of one source of settings to keys, or to sections that may belong to a plugin.

The rules are the same for a file, the environment and the command line. A dotted name and nested sections mean the same.
RocketMQ's names are accepted at the top level and inside their section. A source may set each key only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.loading.raw import Origin, RawMapping, RawNode, RawScalar, nest
from flintmq.config.loading.schema import COMPOSITES, KEYS, SECTIONS, Role, aliases, aliases_in

ENVIRONMENT_PREFIX = "FLINTMQ_"
STRATEGY = "flush.strategy"
OPEN_SECTIONS = ("", "flush")
"""Sections of the configuration in which a plugin may have its own section; the empty name is the top level."""


@attrs.frozen
class Assignment:
    """An entry of a file, the environment or the command line that sets a key of the configuration."""

    key: str
    """Dotted key that the entry sets. For an entry ``flushDiskType`` or ``transientStorePoolEnable``, which together set one
    key, it is the entry's name."""
    node: RawNode
    """Value of the entry as written."""
    spelling: str
    """Name of the entry as written, which may be RocketMQ's."""


@attrs.frozen
class Ignored:
    """An entry of RocketMQ's properties that has no effect in FlintMQ."""

    name: str
    """Name of the entry as written."""
    value: str
    """Value of the entry as written; hidden if the name looks like that of a secret."""
    why: str
    """The reason why the entry has no effect."""
    origin: Origin
    """File and line of the entry that has no effect."""

    def __str__(self) -> str:
        return f"{self.origin}: {self.name} changes nothing: {self.why}"


@attrs.define
class Layer:
    """The entries of one source of settings. One thread fills this object; afterwards the object is only read."""

    role: Role = "broker"
    """The process, broker or name server, that an ambiguous RocketMQ name refers to. For example, broker and name server both
    have a setting ``listenPort``."""
    fold_case: bool = False
    """Whether the case of settings' names is ignored, as in environment variables."""
    last_wins: bool = False
    """Whether a source may contain a name more than once, as the command line may. The last value is used."""
    assignments: dict[str, Assignment] = attrs.field(factory=dict)
    """Entries that set keys, keyed by dotted key. The entries ``flushDiskType`` and ``transientStorePoolEnable``, which
    together set one key, are keyed by their names."""
    sections: dict[str, RawMapping] = attrs.field(factory=dict)
    """Sections of a source that may belong to plugins, keyed by dotted name."""
    ignored: list[Ignored] = attrs.field(factory=list)
    """Entries that have no effect in FlintMQ. Only RocketMQ's files may contain entries without effect."""

    def add(self, name: str, node: RawNode) -> None:
        """Add a top-level entry of a source of settings. The entry's name may be dotted.

        Raises:
            ConfigError: the name is unknown, or its key is already set.
        """
        # Some of RocketMQ's own setting names contain dots, such as tls.server.mode.
        # A dotted name is first looked up as a setting name of RocketMQ, and only then split at its dots into sections.
        dotted_by_rocketmq = "." in name and self._take_rocketmq_name("", name, node, name)
        if not dotted_by_rocketmq:
            self._place("", tuple(name.split(".")), node)

    def _place(self, section: str, parts: tuple[str, ...], node: RawNode) -> None:
        head, rest = (parts[0].lower() if self.fold_case else parts[0]), parts[1:]
        name = f"{section}.{head}" if section else head
        spelling = ".".join((section, *parts) if section else parts)
        if name in SECTIONS:
            self._enter(name, rest, node)
        elif name in KEYS and not rest:
            self._assign(Assignment(name, node, spelling))
        elif not rest and self._take_rocketmq_name(section, parts[0], node, spelling):
            pass
        elif section in OPEN_SECTIONS and name not in KEYS and (rest or _may_be_section(node)):
            self._keep(name, rest, node)
        else:
            raise self._unknown(section, parts[0], spelling, node.origin)

    def _enter(self, section: str, rest: tuple[str, ...], node: RawNode) -> None:
        if rest:
            self._place(section, rest, node)
        elif isinstance(node, RawMapping):
            for name, child in node.entries.items():
                self._place(section, tuple(name.split(".")), child)
        elif not (isinstance(node, RawScalar) and node.is_null):
            raise node.origin.error(f"'{section}' is a section: it takes 'name: value' lines", key=section)

    def _take_rocketmq_name(self, section: str, name: str, node: RawNode, spelling: str) -> bool:
        """Set the keys that a RocketMQ name stands for. Return false, and set nothing, if the section does not accept the
        name."""
        table = aliases_in(section, self.role)
        if self.fold_case:
            known = {other.casefold(): other for other in (*table, *COMPOSITES)}
            name = known.get(name.casefold(), name)
        if name in COMPOSITES and section in OPEN_SECTIONS:
            self._assign(Assignment(name, node, spelling))
            return True
        for key in table.get(name, ()):
            unit = KEYS[key].spec.rocketmq_unit
            self._assign(
                Assignment(key, attrs.evolve(node, plain=unit) if isinstance(node, RawScalar) else node, spelling)
            )
        return name in table

    def _assign(self, new: Assignment) -> None:
        old = self.assignments.get(new.key)
        if old is not None and self.last_wins and old.spelling == new.spelling:
            old = None
        rivals = COMPOSITES if new.key == STRATEGY else (STRATEGY,) if new.key in COMPOSITES else ()
        old = next((self.assignments[rival] for rival in rivals if rival in self.assignments), old)
        if old is not None:
            key = new.key if old.key == new.key else STRATEGY
            message = f"'{new.spelling}' sets '{key}', which '{old.spelling}' ({old.node.origin}) sets already"
            raise new.node.origin.error(message, key=key)
        self.assignments[new.key] = new

    def _keep(self, name: str, rest: tuple[str, ...], node: RawNode) -> None:
        if self.fold_case:
            rest = tuple(part.lower() for part in rest)
        if rest:
            node = nest(rest, node)
        elif isinstance(node, RawScalar):
            node = RawMapping({}, node.origin)
        assert isinstance(node, RawMapping)
        known = self.sections.get(name)
        if known is not None and not self.last_wins:
            _refuse_overlap(name, known, node)
        self.sections[name] = known.merged(node) if known is not None else node

    def _unknown(self, section: str, head: str, spelling: str, origin: Origin) -> ConfigError:
        from flintmq.config.rocketmq.names import FIXED  # for errors only

        if spelling in FIXED:
            return origin.error(f"'{spelling}' cannot be set: {FIXED[spelling].why}", key=spelling)
        elsewhere = aliases(self.role).get(head)
        inside = [name[len(section) + 1 :] for name in (*KEYS, *SECTIONS) if name.startswith(f"{section}.")]
        if elsewhere is not None:
            suggestion: str | None = elsewhere[0]
        elif section:
            near = nearest(spelling[len(section) + 1 :], (*inside, *aliases_in(section, self.role)))
            suggestion = f"{section}.{near}" if near in inside else near
            suggestion = suggestion or nearest(spelling, KEYS, cutoff=0.75)
        else:
            suggestion = nearest(spelling, (*KEYS, *SECTIONS, *aliases(self.role), *COMPOSITES))
        return origin.error(f"unknown key '{spelling[:120]}'", key=spelling, suggestion=suggestion)


def _may_be_section(node: RawNode) -> bool:
    return isinstance(node, RawMapping) or (isinstance(node, RawScalar) and node.is_null)


def _refuse_overlap(name: str, old: RawMapping, new: RawMapping) -> None:
    """Raise a ``ConfigError`` if one source sets a plugin's key twice: with a dotted name and nested."""
    for key, node in new.entries.items():
        before = old.entries.get(key)
        if isinstance(before, RawMapping) and isinstance(node, RawMapping):
            _refuse_overlap(f"{name}.{key}", before, node)
        elif before is not None:
            message = f"'{name}.{key}' is set twice; first at {before.origin}"
            raise node.origin.error(message, key=f"{name}.{key}")


def mapping_layer(mapping: RawMapping, role: Role = "broker") -> Layer:
    """Return the settings of a file.

    Raises:
        ConfigError: a key is unknown, or is set twice.
    """
    layer = Layer(role)
    for name, node in mapping.entries.items():
        layer.add(name, node)
    return layer


def environment_layer(environ: Mapping[str, str], role: Role = "broker") -> Layer:
    """Return the settings that environment variables give, such as ``FLINTMQ_FLUSH__STRATEGY`` and ``FLINTMQ_brokerName``.
    Upper and lower case do not matter after ``FLINTMQ_``.

    A variable whose name contains ``__`` must be a setting. A variable without ``__`` is a setting if it names a top-level key
    or a RocketMQ name, and an error if its name is similar to such a name. Other variables are ignored, because container
    platforms define ``FLINTMQ_PORT`` and others for a service with the name flintmq.

    Raises:
        ConfigError: a key is unknown, or is set twice.
    """
    layer = Layer(role, fold_case=True)
    whole = {name.casefold(): name for name in (*KEYS, *aliases(role), *COMPOSITES) if "." not in name}
    for variable in sorted(environ):
        name = variable[len(ENVIRONMENT_PREFIX) :]
        if not variable.startswith(ENVIRONMENT_PREFIX) or not name:
            continue
        origin = Origin("environment", f"environment {variable}")
        if "__" in name:
            layer.add(name.replace("__", "."), RawScalar(environ[variable], origin))
        elif name.casefold() in whole:
            layer.add(whole[name.casefold()], RawScalar(environ[variable], origin))
        elif (near := nearest(name, whole, cutoff=0.85)) is not None:
            raise origin.error(f"unknown key '{name[:80]}'", key=name, suggestion=whole[near])
    return layer


def override_layer(overrides: Iterable[str], role: Role = "broker") -> Layer:
    """Return the ``key=value`` settings of the command line. If a key is repeated, its last value counts.

    Raises:
        ConfigError: an override has no ``=``, or its key is unknown or set under two names.
    """
    layer = Layer(role, last_wins=True)
    origin = Origin("command line")
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            raise origin.error(f"a setting is written key=value, not '{override[:80]}'")
        layer.add(name.strip(), RawScalar(text.strip(), origin))
    return layer
