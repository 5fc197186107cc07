"""Reads YAML as raw nodes with line numbers, and refuses constructs that a configuration does not need.

Tags, anchors and aliases, duplicate keys, deep nesting, huge files and keys that are not texts are errors, because each is a
mistake or an attack. Only texts, lists and mappings are made from YAML.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import yaml

from flintmq.config.errors import ConfigError
from flintmq.config.loading.raw import Origin, RawList, RawMapping, RawNode, RawScalar

YAML_MAX_BYTES: Final = 1024 * 1024
"""Maximum size of a YAML document. Parsing takes seconds per MiB, and no configuration is nearly as large."""

YAML_MAX_DEPTH: Final = 10
"""Maximum nesting of a YAML document, because PyYAML's composer recurses. The deepest built-in setting is at level 3."""

YAML_MAX_NODES: Final = 20_000
"""Maximum number of values in a YAML document."""


class _LineLoader(yaml.SafeLoader):
    """Composes the nodes of a YAML document, and raises ``MarkedYAMLError`` at a construct that a configuration may not
    contain."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _rejected("anchors and aliases are not allowed", event)
        if event.tag is not None:
            raise _rejected(f"tags are not allowed: '{str(event.tag)[:40]}'", event)
        self._nodes += 1
        if self._nodes > YAML_MAX_NODES:
            raise _rejected(f"the YAML text has more than {YAML_MAX_NODES} values", event)
        nested = isinstance(event, yaml.CollectionStartEvent)
        self._depth += nested
        if self._depth > YAML_MAX_DEPTH:
            raise _rejected(f"the YAML text is nested deeper than {YAML_MAX_DEPTH} levels", event)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= nested
        return node


def _rejected(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def parse_yaml(content: str | bytes, file: str) -> RawMapping:
    """Return the mapping at the top level of a YAML document. An empty document is an empty mapping.

    Args:
        content: the document; bytes are UTF-8.
        file: name of the document in errors and origins.

    Raises:
        ConfigError: the content is not YAML, or contains a construct that is not allowed. The error names the line.
    """
    size = len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "surrogatepass"))
    if size > YAML_MAX_BYTES:
        raise ConfigError(f"the YAML text is larger than {YAML_MAX_BYTES} bytes", file=file)
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        loader = _LineLoader(text.removeprefix("\ufeff"))
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError("not UTF-8", file=file, line=line) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context or "not YAML").split())
        raise ConfigError(problem, file=file, line=mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # For an out-of-range escape, PyYAML raises the ValueError or OverflowError of chr() or int() instead of a YAMLError.
        raise ConfigError(f"not YAML: {' '.join(str(error).split())[:200]}", file=file) from error
    if node is None:
        return RawMapping({}, Origin("file", file, 1))
    raw = _convert(node, file, Origin("file", file, node.start_mark.line + 1))
    if isinstance(raw, RawMapping):
        return raw
    if isinstance(raw, RawScalar) and raw.is_null:
        return RawMapping({}, raw.origin)
    raise raw.origin.error("the top level must be 'key: value' lines")


def parse_list(node: RawScalar, key: str) -> RawList:
    """Return the list that a text of the environment or the command line contains, such as ``[a, b]``.

    Args:
        node: the text, which begins and ends with a bracket. All values of the list get the origin of this text.
        key: dotted key of the list, for the error.

    Raises:
        ConfigError: the text is not a list in YAML.
    """
    try:
        found = parse_yaml(f"list: {node.text.strip()}", str(node.origin)).entries["list"]
    except ConfigError as error:
        raise node.origin.error(f"'{key}' is not a list like [a, b]: {error.message}", key=key) from error
    placed = _placed(found, node)
    assert isinstance(placed, RawList)
    return placed


def _placed(found: RawNode, where: RawScalar) -> RawNode:
    """Return a copy of a YAML node that was parsed from the text of a setting on the command line or in the environment.

    In the copy, each value has the origin of that text, so that error messages name the right source. A number that is written
    without a unit has the unit that applies to such numbers in that text.
    """
    if isinstance(found, RawScalar):
        return attrs.evolve(found, origin=where.origin, plain=where.plain)
    if isinstance(found, RawList):
        return RawList(tuple(_placed(item, where) for item in found.items), where.origin)
    return RawMapping({name: _placed(child, where) for name, child in found.entries.items()}, where.origin)


def _convert(node: yaml.Node, file: str, origin: Origin) -> RawNode:
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, RawNode] = {}
        for key_node, value_node in node.value:
            here = Origin("file", file, key_node.start_mark.line + 1)
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                raise here.error("a key must be a scalar that is not empty, and not a list or a mapping")
            key = key_node.value
            if key in entries:
                raise here.error(f"'{key[:80]}' is given twice; first in line {entries[key].origin.line}", key=key)
            entries[key] = _convert(value_node, file, here)
        return RawMapping(entries, origin)
    if isinstance(node, yaml.SequenceNode):
        items = tuple(_convert(item, file, Origin("file", file, item.start_mark.line + 1)) for item in node.value)
        return RawList(items, origin)
    assert isinstance(node, yaml.ScalarNode)
    return RawScalar(node.value, origin, quoted=node.style is not None)
