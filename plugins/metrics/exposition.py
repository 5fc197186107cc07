"""Encodes a snapshot of the figures as Prometheus's text, or as OpenMetrics if the client asks for it.

The library ``prometheus_client`` knows the formats and chooses one by the client's headers. The lines are encoded here, because
the library takes 12 µs for each, which at a thousand topics keeps a second processor busy.
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
"""The values of the labels that groups have in common, by their names."""


class Exposition:
    """Makes text of snapshots. Any thread."""

    def __init__(self) -> None:
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def text(self, samples: Samples, commons: Commons, accept: str) -> tuple[tuple[bytes, ...], str]:
        """Return the text in parts, which are not joined because one may be megabytes that are kept, and its content type.

        Args:
            samples: the figures.
            commons: what all samples of a group have in common.
            accept: what the client takes, as its header says.
        """
        encode, content_type = choose_encoder(accept)
        is_open = content_type.startswith("application/openmetrics-text")
        made = [_text_of(part, commons, is_open) for part in samples.parts]
        return (*made, encode(self._process)), content_type


def _text_of(samples: Samples, commons: Commons, is_open: bool) -> bytes:
    """Return the text of one part of the figures, which is made once and kept with them."""
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
    """Return the lines in front of the samples of each metric."""
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
        family: of the samples.
        prefix: the labels that all have in common.
        known: the text of labels that others of the same names had, which is added to.
        found: the samples.
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
    """Return the lines of a histogram."""
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
