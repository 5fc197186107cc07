"""Translation of RocketMQ's ``broker.conf`` to YAML."""

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
    """The YAML of a properties file, and what was taken over."""

    yaml: str
    """The settings that mean the same here, by FlintMQ's names; it loads without an error."""
    kept: Mapping[str, tuple[str, ...]]
    """RocketMQ's names that were taken over, each with the dotted keys it set."""
    dropped: tuple[tuple[str, str, str], ...]
    """(name, value, why) of every other line, in the file's order."""


def import_broker_conf(text: str, *, role: Role = "broker", file: str = "broker.conf") -> ImportResult:
    """Translate a properties file.

    Args:
        text: the file's content.
        role: ``namesrv`` for a name server's file.
        file: the name in errors.

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
