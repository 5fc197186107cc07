"""Figures of plugins for request 28 and ``flintmq status``: cost, failures, disabled parts, blocks of the loop."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flintmq.core.kernel.accounts import Account, Row
from flintmq.core.kernel.ports.alarm import WARNING, Alarm
from flintmq.core.kernel.ports.metrics import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flintmq.core.kernel.kernel import Kernel

ERRORS: Final = "pluginErrors"
LAST_ERROR: Final = "pluginLastError"
SWITCHED_OFF: Final = "pluginSwitchedOff"
SWITCHED_OFF_TIMES: Final = "pluginSwitchedOffTimes"
BUSY_MS: Final = "pluginBusyMillis"
LONGEST_MS: Final = "pluginLongestMillis"
TRACE: Final = "pluginTrace"
_ROWS_MAX: Final = 200
"""Most rows per plugin, because each timer has one and they are part of an answer."""


def plugin_figures(kernel: Kernel) -> dict[str, str]:
    """Return the figures for request 28. ``pluginErrors`` is the sum; others exist for third-party and failed plugins."""
    described = kernel.describe()
    found = {ERRORS: str(sum(info.errors for info in described))}
    accounts: dict[str, list[Account]] = {}
    for account in kernel.ledger.all():
        accounts.setdefault(account.owner.name, []).append(account)
    for info in described:
        failed = info.errors or info.switched_off
        if not failed and (info.origin.built_in or not info.enabled):
            continue
        name = info.name
        own = [account.row() for account in accounts.get(name, ())[:_ROWS_MAX]]
        found[f"{ERRORS}_{name}"] = str(info.errors)
        found[f"{BUSY_MS}_{name}"] = str(round(sum(row.busy_ms for row in own)))
        found[f"{LONGEST_MS}_{name}"] = str(round(max((row.longest_ms for row in own), default=0)))
        found[f"{TRACE}_{name}"] = msgspec.json.encode(own).decode()
        if info.last_error:
            found[f"{LAST_ERROR}_{name}"] = info.last_error
        if info.switched_off:
            found[f"{SWITCHED_OFF}_{name}"] = "; ".join(info.switched_off)
        if info.switched_off_times:
            found[f"{SWITCHED_OFF_TIMES}_{name}"] = str(info.switched_off_times)
    return found


def plugin_measurements(kernel: Kernel) -> Iterator[Measurement]:
    """Yield the costs of third-party plugins and the failures of all plugins, by plugin and hook."""
    busy_s: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: Counter[tuple[str, str]] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    for account in kernel.ledger.all():
        key = account.owner.name, account.hook
        if account.errors:
            errors[key] += account.errors
        if not account.owner.built_in:
            calls[key] += account.calls
            busy_s[key] += account.busy_s
    told: tuple[tuple[str, Mapping[tuple[str, str], float]], ...]
    told = (("busy_seconds", busy_s), ("calls", calls), ("errors", errors))
    for name, counted in told:
        for (plugin, hook), figure in counted.items():
            yield Measurement(f"flintmq_plugin_{name}_total", figure, {"plugin": plugin, "hook": hook}, "counter")


def plugin_alarms(kernel: Kernel) -> Iterator[Alarm]:
    """Yield an alarm for each plugin with a disabled part, with the reason."""
    for info in kernel.describe() if kernel.ledger.switched_off_times else ():  # mostly there are none
        if info.switched_off:
            text = f"plugin {info.name}: {'; '.join(info.switched_off)}; flintmq plugins --trace shows what it does and costs"
            errors, limit = info.errors, kernel.ledger.budget_of(info.origin).errors
            yield Alarm("plugin.off", WARNING, info.name, text, errors, "errors", limit, "plugin_budget.errors")


def rows_of(info: Mapping[str, str]) -> list[Row]:
    """Return the rows of ``flintmq plugins --trace`` for a running broker, from its figures of request 28."""
    return [
        row
        for key, text in sorted(info.items())
        if key.startswith(f"{TRACE}_")
        for row in msgspec.json.decode(text, type=list[Row])
    ]


def plugins_of(info: Mapping[str, str]) -> dict[str, Any]:
    """Return a broker's plugin figures for ``flintmq status``, from request 28; empty for a RocketMQ broker."""
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
                "busy_ms": int(info.get(f"{BUSY_MS}_{name}", "0")),
                "longest_ms": int(info.get(f"{LONGEST_MS}_{name}", "0")),
            }
            for name in sorted(names)
        ],
        "loop_blocked": {
            "times": int(info.get("loopBlockedTimes", "0")),
            "max_ms": int(info.get("loopBlockedMaxMillis", "0")),
            "by": info.get("loopBlockedBy", ""),
        },
    }
