"""Computes the figures of plugins for answers to GET_BROKER_RUNTIME_INFO (request 28) and for ``flintmq status``.

The figures are the failures of plugins, the objects of plugins that were switched off after failures, and the times for which
the event loop was blocked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flintmq.core.kernel.failures import Part, Row
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.kernel.ports.metrics import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flintmq.core.kernel.kernel import Kernel

ERRORS: Final = "pluginErrors"
LAST_ERROR: Final = "pluginLastError"
SWITCHED_OFF: Final = "pluginSwitchedOff"
SWITCHED_OFF_TIMES: Final = "pluginSwitchedOffTimes"
TRACE: Final = "pluginTrace"
_ROWS_MAX: Final = 200
"""Maximum number of rows per plugin in ``pluginTrace``. A plugin has a row for each of its timers, and the answer must stay
small."""


def plugin_figures(kernel: Kernel) -> dict[str, str]:
    """Return the figures of plugins for answers to the request GET_BROKER_RUNTIME_INFO. ``pluginErrors`` is the number of
    errors in all plugins. The result also has separate figures for each third-party plugin and for each plugin that failed."""
    described = kernel.describe()
    found = {ERRORS: str(sum(info.errors for info in described))}
    parts: dict[str, list[Part]] = {}
    for part in kernel.failures.all():
        parts.setdefault(part.owner.name, []).append(part)
    for info in described:
        if not info.errors and (info.origin.built_in or not info.enabled):
            continue
        name = info.name
        found[f"{ERRORS}_{name}"] = str(info.errors)
        found[f"{TRACE}_{name}"] = msgspec.json.encode([one.row() for one in parts.get(name, ())[:_ROWS_MAX]]).decode()
        if info.last_error:
            found[f"{LAST_ERROR}_{name}"] = info.last_error
        if info.switched_off:
            found[f"{SWITCHED_OFF}_{name}"] = "; ".join(info.switched_off)
            found[f"{SWITCHED_OFF_TIMES}_{name}"] = str(len(info.switched_off))
    return found


def plugin_measurements(kernel: Kernel) -> Iterator[Measurement]:
    """Yield how often third parties' plugins were called, and how often any plugin failed, by plugin and hook."""
    calls: Counter[tuple[str, str]] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    for part in kernel.failures.all():
        key = part.owner.name, part.hook
        if part.errors:
            errors[key] += part.errors
        if not part.owner.built_in:
            calls[key] += part.calls
    for name, counted in (("calls", calls), ("errors", errors)):
        for (plugin, hook), count in counted.items():
            yield Measurement(f"flintmq_plugin_{name}_total", count, {"plugin": plugin, "hook": hook}, "counter")


def plugin_alarms(kernel: Kernel) -> Iterator[Alarm]:
    """Yield an alarm for each plugin of which an object, such as a dispatcher, was switched off after failures. The alarm names
    these objects and the reasons."""
    for info in kernel.describe():
        if info.switched_off:
            text = f"plugin {info.name}: {'; '.join(info.switched_off)}; flintmq plugins --trace shows its failures"
            most = kernel.failures.most
            yield Alarm("plugin.off", WARNING, info.name, text, info.errors, "errors", most, "plugin_failures_max")


def rows_of(info: Mapping[str, str]) -> list[Row]:
    """Return the rows that ``flintmq plugins --trace`` prints for a running broker.

    Args:
        info: the broker's answer to GET_BROKER_RUNTIME_INFO (request 28).
    """
    return [
        row
        for key, text in sorted(info.items())
        if key.startswith(f"{TRACE}_")
        for row in msgspec.json.decode(text, type=list[Row])
    ]


def plugins_of(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of a broker's plugins that ``flintmq status`` shows; empty for a RocketMQ broker.

    Args:
        info: the broker's answer to GET_BROKER_RUNTIME_INFO (request 28).
    """
    if ERRORS not in info:
        return {}
    names = [key.removeprefix(f"{ERRORS}_") for key in info if key.startswith(f"{ERRORS}_")]
    return {
        "plugins": [
            {
                "name": name,
                "errors": int(info[f"{ERRORS}_{name}"]),
                "last_error": info.get(f"{LAST_ERROR}_{name}", ""),
                "switched_off": info.get(f"{SWITCHED_OFF}_{name}", ""),
                "switched_off_times": int(info.get(f"{SWITCHED_OFF_TIMES}_{name}", "0")),
            }
            for name in sorted(names)
        ],
        "loop_blocked": {
            "times": int(info.get("loopBlockedTimes", "0")),
            "max_ms": int(info.get("loopBlockedMaxMillis", "0")),
            "by": info.get("loopBlockedBy", ""),
        },
    }
