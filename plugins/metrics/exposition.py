"""Encodes a snapshot of the metrics in Prometheus's text format, or in OpenMetrics if the client asks for it.

The library ``prometheus_client`` chooses the format from the client's headers. The library does not encode the lines, because
it needs 12 µs for each line. With a thousand topics, this would keep one more processor busy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from flintmq.core.io.clock import SYSTEM_CLOCK, thread_time_of
from flintmq.core.kernel.ports import Measurement
from flintmq.plugins.metrics.families import FAMILIES, NODE, Family
from flintmq.plugins.metrics.samples import Distribution, Labels, Samples

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_SPECIAL = re.compile(r'[\\\n"]')
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
Commons = Mapping[tuple[str, ...], Labels]
"""Values of the labels that several metrics share. The key is a tuple of the labels' names, in the order of the values."""


class Exposition:
    """Formats snapshots of the metrics as the text of ``/metrics``. Can be used from any thread."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def text(self, samples: Samples, commons: Commons, accept: str) -> tuple[tuple[bytes, ...], str]:
        """Return the text of ``/metrics``, in parts, and its content type.

        The parts are not joined, because a cached part may have megabytes.

        Args:
            samples: the figures.
            commons: values of labels that are the same in all samples of a metric, such as ``cluster`` and ``broker``. The key
                is the tuple of the labels' names.
            accept: the client's header ``Accept``.
        """
        encode, content_type = choose_encoder(accept)
        is_open = content_type.startswith("application/openmetrics-text")
        made = [_text_of(part, commons, is_open) for part in samples.parts]
        return (*made, encode(self._process)), content_type


def _text_of(samples: Samples, commons: Commons, is_open: bool) -> bytes:
    """Return the samples as text for ``/metrics``. The text is formatted once for each format, and cached in
    ``samples.texts``."""
    if is_open not in samples.texts:
        worked_s = thread_time_of(SYSTEM_CLOCK)
        begun_s = worked_s()
        text = "".join(f"{line}\n" for line in _all_lines(samples, commons, is_open))
        samples.texts[is_open] = text.encode("utf-8", "replace")
        samples.spent_s += worked_s() - begun_s
    return samples.texts[is_open]


def _all_lines(samples: Samples, commons: Commons, is_open: bool) -> Iterator[str]:
    prefixes = {names: _text(names, values) for names, values in commons.items()}
    texts: defaultdict[tuple[str, tuple[str, ...]], dict[Labels, str]] = defaultdict(dict)
    for name, family in FAMILIES.items():
        if name not in samples.by_name and name not in samples.distributions:
            continue
        yield _heads(is_open)[name]
        known = texts[prefixes[family.common], family.labels]
        if found := samples.by_name.get(name):
            yield from _lines(family, prefixes[family.common], known, found)
        for labels, distribution in samples.distributions.get(name, ()):
            yield _buckets(name, _joined(prefixes[family.common], family.labels, labels), distribution)
    yield from _of_services(samples.of_services, prefixes[NODE], is_open)


@cache
def _heads(is_open: bool) -> Mapping[str, str]:
    """Return the lines ``# HELP`` and ``# TYPE`` of each metric, keyed by the metric's name."""
    return {name: _head(name, family.kind, family.meaning, is_open) for name, family in FAMILIES.items()}


def _head(name: str, kind: str, meaning: str, is_open: bool) -> str:
    if is_open and kind == "counter":
        name = name.removesuffix("_total")
    return f"# HELP {name} {(meaning or name).translate(_ESCAPES if is_open else _HELP_ESCAPES)}\n# TYPE {name} {kind}"


def _lines(
    family: Family, prefix: str, known: dict[Labels, str], found: Iterable[tuple[Labels, float]]
) -> Iterator[str]:
    """Yield a line for each sample.

    Args:
        family: the metric of the samples.
        prefix: the text of the labels that all samples share.
        known: cache of formatted labels, keyed by their values; shared by metrics with the same label names. New labels are
            added to the cache.
        found: values of the labels, and the figure, of each sample.
    """
    begin, names = family.name, family.labels
    for labels, figure in found:
        text = known.get(labels)
        if text is None:
            joined = _joined(prefix, names, labels)
            text = known[labels] = f"{{{joined}}}" if joined else ""
        yield f"{begin}{text} {figure}"


def _joined(prefix: str, names: tuple[str, ...], values: Labels) -> str:
    own = _text(names, values)
    return f"{prefix},{own}" if prefix and own else prefix or own


def _text(names: tuple[str, ...], values: Labels) -> str:
    if _SPECIAL.search("".join(values)):
        values = tuple(value.translate(_ESCAPES) for value in values)
    return _template(names) % values


@cache
def _template(names: tuple[str, ...]) -> str:
    return ",".join(f'{name}="%s"' for name in names)


def _buckets(name: str, labels: str, one: Distribution) -> str:
    """Return the lines of ``/metrics`` for a histogram."""
    begin = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
    below = tuple(accumulate(one.counts))
    lines = [f'{begin}{bound}"}} {count}' for bound, count in zip((*one.bounds, "+Inf"), below, strict=True)]
    in_braces = f"{{{labels}}}" if labels else ""
    return "\n".join((*lines, f"{name}_count{in_braces} {below[-1]}", f"{name}_sum{in_braces} {one.total}"))


def _of_services(told: Iterable[Measurement], node: str, is_open: bool) -> Iterator[str]:
    by_name: dict[str, list[Measurement]] = {}
    for one in told:
        by_name.setdefault(one.name, []).append(one)
    for name, found in by_name.items():
        yield _head(name, found[0].kind, found[0].meaning, is_open)
        once = {_text(tuple(one.labels), tuple(one.labels.values())): one.value for one in found}
        for labels, figure in once.items():
            yield f"{name}{{{node}{',' if labels else ''}{labels}}} {figure}"
