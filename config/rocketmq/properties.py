"""Reads RocketMQ's ``broker.conf`` (or ``namesrv.conf``): as a source of settings, and as YAML for those who want that.

Of a repeated key the last value counts, as in Java. What has no meaning here is kept with the reason, so that whoever starts
a broker with the file can be told. A key that is understood and has a value that is not is an error: a broker must not run
with another flush strategy than its file says. An import lists such a line instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.loading.binding import bind_field
from flintmq.config.loading.emit import HIDDEN, SECRET_NAME, yaml_tree, yaml_value
from flintmq.config.loading.layer import STRATEGY, Ignored, Layer
from flintmq.config.loading.load import assemble
from flintmq.config.loading.raw import DEFAULT, Origin, RawScalar
from flintmq.config.loading.schema import COMPOSITES, KEYS, TRANSIENT_POOL, Role, aliases
from flintmq.config.rocketmq.flush_type import FlushType
from flintmq.config.rocketmq.java_properties import Property, parse_properties
from flintmq.config.rocketmq.names import FIXED

POOL_SIZE: Final = "transientStorePoolSize"
POOL_SIZE_DEFAULT: Final = "5"
"""RocketMQ's: files that name everything name it, too."""

_WRITTEN_WITH_EQUALS = re.compile(r"^[^\s#!:=]+[ \t]*=", re.MULTILINE)
"""A line that no YAML of ours has in its first column."""
_NESTED = re.compile(r"^[ \t]*(-[ \t]|[\w.-]+:[ \t]*(#.*)?$)", re.MULTILINE)
"""A line under which YAML goes deeper, or an item of a list."""


@attrs.frozen
class ImportResult:
    """What became of a properties file."""

    yaml: str
    """The settings that mean the same here, in our names; loads without an error."""
    kept: Mapping[str, tuple[str, ...]]
    """RocketMQ's names that were taken over, each with the dotted keys it set."""
    dropped: tuple[tuple[str, str, str], ...]
    """(name, value, why) of the rest, in the file's order."""


def is_properties(text: str, name: str) -> bool:
    """Whether a file is RocketMQ's rather than YAML.

    Args:
        text: its content.
        name: its name; ``.conf`` and ``.properties`` count where the text could be either (``brokerName: a``).
    """
    if _WRITTEN_WITH_EQUALS.search(text):
        return True
    return name.endswith((".conf", ".properties")) and not _NESTED.search(text)


def decode_properties(content: bytes) -> str:
    """A properties file's text: UTF-8, or else ISO 8859-1 as Java reads it."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def properties_layer(text: str, role: Role = "broker", *, file: str = "broker.conf", lenient: bool = False) -> Layer:
    """A properties file's settings, by RocketMQ's names or dotted ones; what has no meaning here is in ``Layer.ignored``.

    Args:
        text: the file's content.
        role: ``namesrv`` for a name server's file.
        file: what errors and origins call it.
        lenient: ignores a value that does not fit, with the reason, where it is an error otherwise.

    Raises:
        ConfigError: it is not a properties file, a value does not fit, or two names set one key.
    """
    layer = Layer(role)
    entries = parse_properties(text, file=file)
    last = {entry.key: entry for entry in entries}
    for entry in entries:
        node = RawScalar(entry.value.strip(), Origin("file", file, entry.line))
        why = f"given again in line {last[entry.key].line}" if last[entry.key] is not entry else _why(entry, role)
        if not why:
            try:
                _check(entry.key, node, role)
            except ConfigError as error:
                if not lenient:
                    raise
                why = error.message
        if not why:
            layer.add(entry.key, node)
        elif not _says_what_is(entry.key, node.text):
            layer.ignored.append(_ignored(entry.key, node, why))
    _note_unused_pool(layer)
    layer.ignored.sort(key=lambda ignored: ignored.origin.line or 0)
    return layer.finish()


def import_broker_conf(text: str, *, role: Role = "broker", file: str = "broker.conf") -> ImportResult:
    """Translates a properties file.

    Args:
        text: the file's content.
        role: ``namesrv`` for a name server's file.
        file: what errors call it.

    Raises:
        ConfigError: it is not a properties file, or its settings do not fit together.
    """
    layer = properties_layer(text, role, file=file, lenient=True)
    kept: dict[str, tuple[str, ...]] = {}
    for name, assignment in tuple(layer.assignments.items()):
        if name in KEYS and KEYS[name].spec.secret:
            del layer.assignments[name]
            why = f"a secret: write it to '{name}' yourself"
            layer.ignored.append(Ignored(assignment.spelling, HIDDEN, why, assignment.node.origin))
            continue
        keys = (STRATEGY,) if name in COMPOSITES else (name,)
        kept[assignment.spelling] = (*kept.get(assignment.spelling, ()), *keys)
    loaded = assemble((layer,), role)
    ordered = {
        name: yaml_value(key.value_of(loaded.config), key.spec)
        for name, key in KEYS.items()
        if loaded.origins[name] != DEFAULT
    }
    dropped = sorted(layer.ignored, key=lambda ignored: ignored.origin.line or 0)
    return ImportResult(yaml_tree(ordered), kept, tuple((entry.name, entry.value, entry.why) for entry in dropped))


def _check(name: str, node: RawScalar, role: Role) -> None:
    if name in COMPOSITES:
        FlushType().with_composite(name, node, name)
        return
    for dotted in aliases(role).get(name, (name,)):
        key = KEYS[dotted]
        bind_field(node, key.hint, key.field, dotted, plain=key.spec.rocketmq_unit if name != dotted else None)


def _why(entry: Property, role: Role) -> str:
    """Why a key changes nothing; empty for one that does."""
    names = aliases(role).get(entry.key, (entry.key,))
    if entry.key in COMPOSITES or names[0] in KEYS:
        is_list = names[0] in KEYS and isinstance(KEYS[names[0]].field.default, tuple)
        return "" if entry.value.strip() or is_list else "it has no value"
    if entry.key in FIXED:
        return FIXED[entry.key].why
    near = nearest(entry.key, (*aliases(role), *COMPOSITES), cutoff=0.8)
    return f"unknown key; did you mean '{near}'?" if near else "not supported"


def _says_what_is(name: str, value: str) -> bool:
    """Whether a key that cannot be set has the value that holds here anyway."""
    fixed = FIXED.get(name)
    return fixed is not None and fixed.value is not None and fixed.value.casefold() == value.casefold()


def _ignored(name: str, node: RawScalar, why: str) -> Ignored:
    return Ignored(name, HIDDEN if SECRET_NAME.search(name) else node.text, why, node.origin)


def _note_unused_pool(layer: Layer) -> None:
    """RocketMQ, too, has no pool when flushes are synchronous: a file may ask for one and get none."""
    flush_type = FlushType()
    for name in COMPOSITES:
        if (composite := layer.assignments.get(name)) is not None:
            flush_type = flush_type.with_composite(name, composite.node, name)
    if flush_type.strategy == "commit_real_time" or STRATEGY in layer.assignments:
        return
    enabled = layer.assignments.get(TRANSIENT_POOL)
    if enabled is not None and flush_type.pool:
        why = "SYNC_FLUSH uses no pool, in RocketMQ neither"
        layer.ignored.append(Ignored(TRANSIENT_POOL, "true", why, enabled.node.origin))
    size = next((found for found in layer.assignments.values() if found.spelling == POOL_SIZE), None)
    if size is not None and isinstance(size.node, RawScalar) and size.node.text != POOL_SIZE_DEFAULT:
        why = "it takes ASYNC_FLUSH and transientStorePoolEnable=true to use a pool"
        layer.ignored.append(Ignored(POOL_SIZE, size.node.text, why, size.node.origin))
