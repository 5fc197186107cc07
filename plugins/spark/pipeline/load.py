"""Reads a pipeline's YAML, without Spark. Each error names a line of the file. An error for an unknown key suggests a similar
known key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from flintmq.config.errors import ConfigError, nearest
from flintmq.config.fields import NO_SPEC
from flintmq.config.loading.binding import bind_model, bind_value
from flintmq.config.loading.load import read_limited
from flintmq.config.loading.raw import Origin, RawList, RawMapping, RawNode, RawScalar, nest
from flintmq.config.loading.yaml_source import parse_yaml
from flintmq.plugins.spark.pipeline.models import (
    ConsoleSink,
    DecodeSection,
    FileSink,
    JdbcSink,
    Pipeline,
    Sink,
    SparkSection,
    StepSection,
    StreamSection,
    TopicSink,
)
from flintmq.plugins.spark.pipeline.references import Redactor, Text, as_text, names_a_secret, read_file

SINKS: Final[Mapping[str, type[Sink]]] = {
    "parquet": FileSink,
    "delta": FileSink,
    "jdbc": JdbcSink,
    "console": ConsoleSink,
    "flintmq": TopicSink,
}
"""Classes of the sinks, keyed by the sink's ``format``."""

SCHEMA_FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a schema file in bytes. A Protobuf descriptor set with all its imports has about a megabyte."""

_SECTIONS: Final[Mapping[str, Any]] = {
    "source": Mapping[str, Text],
    "decode": DecodeSection,
    "steps": tuple[StepSection, ...],
    "stream": StreamSection,
    "spark": SparkSection,
}
"""Types to which the sections of a pipeline's file are converted, keyed by the section's name. The section ``sinks`` is
converted separately."""
_SINK_KEYS: Final = ("format", "name", "from", "output_mode")


@attrs.frozen
class LoadedPipeline:
    """A pipeline together with the line of each key in the pipeline's YAML file. Not thread-safe."""

    pipeline: Pipeline
    """The pipeline that was made from the YAML."""
    raw: RawMapping = attrs.field(repr=False, eq=False)
    """The pipeline's YAML as it was written, with the line of each key."""
    file: Path | None = None
    """The pipeline's file; None if the pipeline was given as text. Paths in a pipeline's file are relative to the file's
    folder."""
    redactor: Redactor = attrs.field(factory=Redactor, repr=False, eq=False)
    """Object that removes the pipeline's secrets from texts."""

    def origin(self, key: str) -> Origin:
        """Return the file and line of a dotted key such as ``steps[1].sql``. If the key is not in the pipeline's file, return
        the file and line of the nearest key that would contain this key."""
        node: RawNode | None = self.raw
        origin = self.raw.origin
        for part in re.findall(r"[^.\[\]]+", key):
            node = _child(node, part)
            if node is None:
                break
            origin = node.origin
        return origin

    def error(self, key: str, message: str, suggestion: str | None = None) -> ConfigError:
        """Return a ConfigError about a key of the pipeline's file. The error has the key's line; secrets are removed from the
        message."""
        return self.origin(key).error(self.redactor.clean(message), key=key, suggestion=suggestion)

    @contextlib.contextmanager
    def placed(self, key: str) -> Iterator[None]:
        """Add the line of a key in the pipeline's file to a ConfigError that is raised in the ``with`` block, unless the error
        already names a file."""
        try:
            yield
        except ConfigError as error:
            if error.file is not None:
                raise
            raise self.error(key, f"'{key}': {error.message}", error.suggestion) from error

    def revealed(self, key: str, options: Mapping[str, Text]) -> dict[str, str]:
        """Return the options of a source or sink, with references to secrets replaced by the secrets. Raises ConfigError with
        the line of the reference if a secret is missing."""
        found = {}
        for name, value in options.items():
            with self.placed(f"{key}.{name}"):
                found[name] = self.redactor.reveal(value)
        return found

    def read(self, key: str, path: Path) -> bytes:
        """Return the content of a file that the pipeline names. The path is absolute, or relative to the folder of the
        pipeline's file.

        Raises:
            ConfigError: the file cannot be read, or is larger than ``SCHEMA_FILE_MAX_BYTES``.
        """
        place = path if self.file is None else self.file.parent / path
        with self.placed(key):
            return read_file(place, SCHEMA_FILE_MAX_BYTES, str(place))

    def read_text(self, key: str, path: Path) -> str:
        """Return the text of a file that the pipeline names; see :meth:`read`. Raises ConfigError also if the file is not
        UTF-8."""
        with self.placed(key):
            return as_text(self.read(key, path), str(path))


def load_pipeline(file: Path, overrides: Sequence[str] = ()) -> LoadedPipeline:
    """Read a pipeline from a YAML file, and check it.

    Args:
        file: the YAML file.
        overrides: ``key=value`` texts that override the file, for example ``source.path=/data/store``.

    Raises:
        ConfigError: the file cannot be read or is not a valid pipeline. The error names the line in the file.
    """
    return _load(parse_yaml(read_limited(file), str(file)), file, file.stem, overrides)


def load_pipeline_text(text: str, *, name: str = "pipeline", overrides: Sequence[str] = ()) -> LoadedPipeline:
    """Read a pipeline from a YAML text, and check it; see :func:`load_pipeline`. ``name`` is the text's name in errors, and the
    pipeline's default name."""
    return _load(parse_yaml(text, name), None, name, overrides)


def _load(raw: RawMapping, file: Path | None, name: str, overrides: Sequence[str]) -> LoadedPipeline:
    for override in overrides:
        raw = raw.merged(_override(override))
    for key, node in raw.entries.items():
        if key not in attrs.fields_dict(Pipeline):
            suggestion = nearest(key, attrs.fields_dict(Pipeline))
            raise node.origin.error(f"unknown key '{key}'", key=key, suggestion=suggestion)
    if "source" not in raw.entries:
        raise raw.origin.error("'source' is required: it defines the origin of the messages", key="source")
    sections: dict[str, Any] = {
        key: bind_value(raw.entries[key], kind, NO_SPEC, key) for key, kind in _SECTIONS.items() if key in raw.entries
    }
    pipeline = Pipeline(name=_name(raw.entries.get("name"), name), sinks=_sinks(raw), **sections)
    loaded = LoadedPipeline(pipeline, raw, file)
    _check_secrets(raw, "")
    _check_views(loaded)
    _check_modes(loaded)
    return loaded


def _override(text: str) -> RawMapping:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"a setting is key=value, not '{text[:80]}'", file="command line")
    path = tuple(key.strip().split("."))
    if path[0] in ("steps", "sinks"):
        raise ConfigError(f"'{path[0]}' is a list and can only be changed in the file", key=key, file="command line")
    return nest(path, RawScalar(value, Origin("command line")))


def _name(node: RawNode | None, fallback: str) -> str:
    text = fallback if node is None else bind_value(node, str, NO_SPEC, "name")
    if node is None:
        return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "pipeline"
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text) is None:
        raise node.origin.error("'name' must be letters, digits, '-' and '_', at most 100", key="name")
    return str(text)


def _sinks(raw: RawMapping) -> tuple[Sink, ...]:
    listed = raw.entries.get("sinks")
    if listed is None or (isinstance(listed, RawList) and not listed.items):
        origin = raw.origin if listed is None else listed.origin
        raise origin.error("'sinks' is required: it lists the destinations of the rows", key="sinks")
    if not isinstance(listed, RawList):
        raise listed.origin.error("'sinks' is a list: each entry begins with '- '", key="sinks")
    sinks = [_sink(node, f"sinks[{place}]") for place, node in enumerate(listed.items)]
    formats = [sink.format for sink in sinks if not sink.name]
    named = []
    for place, sink in enumerate(sinks):
        # A sink without a name is named after its format, with a number if several sinks without a name have this format.
        several = formats.count(sink.format) > 1
        named.append(sink if sink.name else attrs.evolve(sink, name=f"{sink.format}{place + 1 if several else ''}"))
    return tuple(named)


def _sink(node: RawNode, key: str) -> Sink:
    if not isinstance(node, RawMapping):
        raise node.origin.error(f"'{key}' is a section: it takes 'name: value' lines", key=key)
    format_node = node.entries.get("format")
    if format_node is None:
        raise node.origin.error(f"'{key}.format' is required: one of {', '.join(SINKS)}", key=f"{key}.format")
    format_name = bind_value(format_node, str, NO_SPEC, f"{key}.format")
    model = SINKS.get(format_name)
    if model is None:
        message = f"'{key}.format' must be one of {', '.join(SINKS)}, not '{format_name[:80]}'"
        raise format_node.origin.error(message, key=f"{key}.format", suggestion=nearest(format_name, SINKS))
    if model is TopicSink:
        own = {name: child for name, child in node.entries.items() if name in _SINK_KEYS}
        rest = {name: child for name, child in node.entries.items() if name not in _SINK_KEYS}
        node = RawMapping({**own, "options": RawMapping(rest, node.origin)}, node.origin)
    if "view" in node.entries:
        name = f"{key}.view"
        raise node.entries["view"].origin.error(f"unknown key '{name}'", key=name, suggestion=f"{key}.from")
    # The key 'from' is a Python keyword, so the field of a sink's class is named 'view'.
    entries = {"view" if name == "from" else name: child for name, child in node.entries.items()}
    return bind_model(RawMapping(entries, node.origin), model, key)


def _check_secrets(node: RawNode, key: str) -> None:
    """Raise ConfigError for a secret in plain text, anywhere in the pipeline."""
    if isinstance(node, RawMapping):
        for name, child in node.entries.items():
            inner = f"{key}.{name}" if key else name
            if isinstance(child, RawScalar) and names_a_secret(name) and not child.is_null:
                message = f"'{inner}' may not stand here in plain text: write {{env: NAME}} or {{file: PATH}}"
                raise child.origin.error(message, key=inner)
            _check_secrets(child, inner)
    elif isinstance(node, RawList):
        for place, child in enumerate(node.items):
            _check_secrets(child, f"{key}[{place}]")


def _check_views(loaded: LoadedPipeline) -> None:
    pipeline = loaded.pipeline
    known = list(pipeline.views[: -len(pipeline.steps) or None])
    for place, step in enumerate(pipeline.steps):
        key = f"steps[{place}].view"
        if step.view.casefold() in (name.casefold() for name in known):
            raise loaded.error(key, f"'{key}': another view already has the name '{step.view}'")
        known.append(step.view)
    names: list[str] = []
    for place, sink in enumerate(pipeline.sinks):
        key = f"sinks[{place}]"
        if sink.view and sink.view not in known:
            message = f"'{key}.from': there is no view '{sink.view}', only {', '.join(known)}"
            raise loaded.error(f"{key}.from", message, nearest(sink.view, known))
        if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", sink.name) is None:
            raise loaded.error(f"{key}.name", f"'{key}.name' must be letters, digits, '-' and '_', at most 100")
        if sink.name in names:
            raise loaded.error(f"{key}.name", f"'{key}.name': another sink already has the name '{sink.name}'")
        names.append(sink.name)


def _check_modes(loaded: LoadedPipeline) -> None:
    """Raise ConfigError if a streaming pipeline has a key that applies only to batches, or if a batch pipeline has a key that
    applies only to streams."""
    streaming = loaded.pipeline.is_streaming
    for place, step in enumerate(loaded.pipeline.steps):
        key = f"steps[{place}]"
        if step.watermark is not None and not streaming:
            raise loaded.error(f"{key}.watermark", f"'{key}.watermark' has a meaning only with 'stream'")
        if step.cache and streaming:
            raise loaded.error(f"{key}.cache", f"'{key}.cache' has a meaning only without 'stream'")
    for place in range(len(loaded.pipeline.sinks)):
        key = f"sinks[{place}]"
        for name, only_streaming in (("mode", False), ("output_mode", True), ("batch_column", True)):
            if _child(_child(_child(loaded.raw, "sinks"), str(place)), name) is None or only_streaming is streaming:
                continue
            where = "with" if only_streaming else "without"
            raise loaded.error(f"{key}.{name}", f"'{key}.{name}' has a meaning only {where} 'stream'")


def _child(node: RawNode | None, part: str) -> RawNode | None:
    if isinstance(node, RawMapping):
        return node.entries.get(part)
    if isinstance(node, RawList) and part.isdecimal() and int(part) < len(node.items):
        return node.items[int(part)]
    return None
