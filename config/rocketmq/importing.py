"""Translates RocketMQ's ``broker.conf`` to YAML, for ``flintmq config import``."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from flintmq.config.loading.layer import STRATEGY, Ignored
from flintmq.config.loading.load import assemble
from flintmq.config.loading.raw import DEFAULT
from flintmq.config.loading.schema import COMPOSITES, KEYS, Role
from flintmq.config.loading.show import HIDDEN, yaml_tree, yaml_value
from flintmq.config.rocketmq.properties import properties_layer


@attrs.frozen
class ImportResult:
    """The translation of a RocketMQ properties file: the YAML, the translated entries, and the dropped entries."""

    yaml: str
    """YAML under FlintMQ's names, with the same meaning as the entries of RocketMQ's file. FlintMQ loads this YAML without an
    error."""
    kept: Mapping[str, tuple[str, ...]]
    """Dotted keys that each translated entry of RocketMQ's file sets, keyed by RocketMQ's name."""
    dropped: tuple[tuple[str, str, str], ...]
    """Name, value and reason of every entry of RocketMQ's file that is not in the YAML, in the order of the file."""


def import_broker_conf(text: str, *, role: Role = "broker", file: str = "broker.conf") -> ImportResult:
    """Return the translation of a properties file to YAML.

    Args:
        text: the content of the file.
        role: ``namesrv`` for the file of a name server.
        file: the name of the file in errors.

    Raises:
        ConfigError: the text is not a properties file, or its settings contradict each other.
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
