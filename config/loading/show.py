"""The configuration for people: one row a key with where its value comes from, and the whole as YAML."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from flintmq.config.loading.emit import HIDDEN, SECRET_NAME, display, yaml_tree, yaml_value
from flintmq.config.loading.load import LoadedConfig
from flintmq.config.loading.raw import RawList, RawMapping, RawNode, RawScalar
from flintmq.config.loading.schema import COMPOSITES, KEYS
from flintmq.config.sections.models import BrokerConfig


@attrs.frozen
class Row:
    """One line of ``flintmq config show``."""

    key: str
    """Dotted."""
    value: str
    """With its unit; secrets hidden."""
    origin: str
    """``default``, ``broker.yaml:12``, ``environment FLINTMQ_…`` or ``command line``."""
    rocketmq: str
    """RocketMQ's names, separated by commas; empty without."""
    doc: str
    """What the key means."""


def rows(loaded: LoadedConfig) -> tuple[Row, ...]:
    """Return every key in the models' order, then what plugins' sections hold."""
    found = []
    for name, key in KEYS.items():
        names = COMPOSITES if name == "flush.strategy" else key.spec.rocketmq
        value = display(key.value_of(loaded.config), key.spec)
        found.append(Row(name, value, str(loaded.origins[name]), ", ".join(names), key.doc))
    for name, section in loaded.sections.items():
        found += _rows_of(name, section)
    return tuple(found)


def _rows_of(name: str, node: RawNode) -> Iterator[Row]:
    """Yield every scalar and list of a plugin's section."""
    if isinstance(node, RawMapping):
        for key, child in node.entries.items():
            yield from _rows_of(f"{name}.{key}", child)
    else:
        yield Row(name, _hidden(name, node), str(node.origin), "", "a plugin's setting")


def to_yaml(config: BrokerConfig, *, only_changed: bool = False) -> str:
    """Return YAML that loads as the same configuration, without secrets.

    Args:
        config: what to write.
        only_changed: leave out what is at its default.
    """
    plain = BrokerConfig()
    return yaml_tree(
        {
            name: yaml_value(key.value_of(config), key.spec)
            for name, key in KEYS.items()
            if not key.spec.secret and (not only_changed or key.value_of(config) != key.value_of(plain))
        }
    )


def _text(node: RawNode) -> str:
    if isinstance(node, RawScalar):
        return node.text
    if isinstance(node, RawList):
        return ", ".join(_text(item) for item in node.items)
    return "{" + ", ".join(f"{name}: {_hidden(name, child)}" for name, child in node.entries.items()) + "}"


def _hidden(name: str, node: RawNode) -> str:
    return HIDDEN if SECRET_NAME.search(name) else _text(node)
