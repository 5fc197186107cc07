"""Reads RocketMQ's ``broker.conf`` (or ``namesrv.conf``) as a source of settings.

If a key is repeated, its last value counts, as in Java. A key that has no effect in FlintMQ is recorded with the reason, and a
broker logs a warning about the key when it starts. A known key with an invalid value is an error, because a broker must not run
with another flush strategy than its file names. An import (:mod:`.importing`) lists the keys with invalid values and does not
fail.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.loading.binding import bind_field
from flintmq.config.loading.layer import STRATEGY, Ignored, Layer
from flintmq.config.loading.raw import Origin, RawScalar
from flintmq.config.loading.schema import COMPOSITES, KEYS, TRANSIENT_POOL, Role, aliases
from flintmq.config.loading.show import HIDDEN, SECRET_NAME
from flintmq.config.rocketmq.flush_type import FlushType
from flintmq.config.rocketmq.java_properties import Property, parse_properties
from flintmq.config.rocketmq.names import FIXED

POOL_SIZE: Final = "transientStorePoolSize"
POOL_SIZE_DEFAULT: Final = "5"
"""RocketMQ's default size of the transient store pool. If a file sets this size but uses no pool, no warning is logged."""

_WRITTEN_WITH_EQUALS = re.compile(r"^[^\s#!:=]+[ \t]*=", re.MULTILINE)
"""Pattern of a line that begins with a key and ``=``. No line of a YAML configuration begins with a key and ``=``."""
_NESTED = re.compile(r"^[ \t]*(-[ \t]|[\w.-]+:[ \t]*(#.*)?$)", re.MULTILINE)
"""Pattern of a line that begins a nested section or a list item of YAML. RocketMQ's properties contain no such lines."""


def is_properties(text: str, name: str) -> bool:
    """Return whether a file is a RocketMQ properties file rather than YAML.

    Args:
        text: the content of the file.
        name: the name of the file. The extension decides if the text could be YAML or properties, such as ``brokerName: a``.
    """
    if _WRITTEN_WITH_EQUALS.search(text):
        return True
    return name.endswith((".conf", ".properties")) and not _NESTED.search(text)


def has_rocketmq_keys(text: str, role: Role) -> bool:
    """Return whether a text, read as properties, sets a key under RocketMQ's name."""
    try:
        entries = parse_properties(text)
    except ConfigError:
        return False
    return any(entry.key in aliases(role) or entry.key in COMPOSITES for entry in entries)


def decode_properties(content: bytes) -> str:
    """Return the text of a properties file, decoded as UTF-8, or as ISO 8859-1 like in Java if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def properties_layer(text: str, role: Role = "broker", *, file: str = "broker.conf", lenient: bool = False) -> Layer:
    """Return the settings of a properties file. Entries without a meaning in FlintMQ are in ``Layer.ignored``.

    Args:
        text: the content of the file.
        role: ``namesrv`` for the file of a name server.
        file: the name of the file in errors and origins.
        lenient: ignore an invalid value and record the reason, instead of raising an error.

    Raises:
        ConfigError: the text is not a properties file, a value is invalid, or two names set the same key.
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
    return layer


def _check(name: str, node: RawScalar, role: Role) -> None:
    if name in COMPOSITES:
        FlushType().with_composite(name, node, name)
        return
    for dotted in aliases(role).get(name, (name,)):
        key = KEYS[dotted]
        plain = key.spec.rocketmq_unit if name != dotted else None
        bind_field(attrs.evolve(node, plain=plain), key.hint, key.field, dotted)


def _why(entry: Property, role: Role) -> str:
    """Return the reason why an entry of a properties file has no effect; empty if the entry sets a key."""
    names = aliases(role).get(entry.key, (entry.key,))
    if entry.key in COMPOSITES or names[0] in KEYS:
        is_list = names[0] in KEYS and isinstance(KEYS[names[0]].field.default, tuple)
        return "" if entry.value.strip() or is_list else "it has no value"
    if entry.key in FIXED:
        return FIXED[entry.key].why
    near = nearest(entry.key, (*aliases(role), *COMPOSITES), cutoff=0.8)
    return f"unknown key; did you mean '{near}'?" if near else "not supported"


def _says_what_is(name: str, value: str) -> bool:
    """Return whether an entry sets a RocketMQ key to the fixed value that the key has in FlintMQ."""
    fixed = FIXED.get(name)
    return fixed is not None and fixed.value is not None and fixed.value.casefold() == value.casefold()


def _ignored(name: str, node: RawScalar, why: str) -> Ignored:
    return Ignored(name, HIDDEN if SECRET_NAME.search(name) else node.text, why, node.origin)


def _note_unused_pool(layer: Layer) -> None:
    """Add the settings of the transient store pool to the ignored entries if the flush type uses no pool. RocketMQ ignores
    these settings, too."""
    flush_type = FlushType()
    for name in COMPOSITES:
        if (composite := layer.assignments.get(name)) is not None:
            flush_type = flush_type.with_composite(name, composite.node, name)
    if flush_type.strategy == "commit_real_time" or STRATEGY in layer.assignments:
        return
    enabled = layer.assignments.get(TRANSIENT_POOL)
    if enabled is not None and flush_type.pool:
        why = "with SYNC_FLUSH, RocketMQ does not use the pool either"
        layer.ignored.append(Ignored(TRANSIENT_POOL, "true", why, enabled.node.origin))
    size = next((found for found in layer.assignments.values() if found.spelling == POOL_SIZE), None)
    if size is not None and isinstance(size.node, RawScalar) and size.node.text != POOL_SIZE_DEFAULT:
        why = "the pool is used only with ASYNC_FLUSH and transientStorePoolEnable=true"
        layer.ignored.append(Ignored(POOL_SIZE, size.node.text, why, size.node.origin))
