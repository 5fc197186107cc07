"""What request 28 and ``flintmq status`` show of plugins: failures, what is switched off, and blocks of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flintmq.core.kernel.kernel import Kernel

ERRORS: Final = "pluginErrors"
LAST_ERROR: Final = "pluginLastError"
SWITCHED_OFF: Final = "pluginSwitchedOff"


def plugin_figures(kernel: Kernel) -> dict[str, str]:
    """For request 28: ``pluginErrors`` is the sum; ``pluginErrors_<plugin>`` and the others exist for plugins that failed."""
    failed = [info for info in kernel.describe() if info.errors or info.switched_off]
    found = {ERRORS: str(sum(info.errors for info in failed))}
    for info in failed:
        found[f"{ERRORS}_{info.name}"] = str(info.errors)
        found[f"{LAST_ERROR}_{info.name}"] = info.last_error
        if info.switched_off:
            found[f"{SWITCHED_OFF}_{info.name}"] = "; ".join(info.switched_off)
    return found


def plugins_of(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures for ``flintmq status`` from the table of request 28; nothing for a RocketMQ broker, which has none."""
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
            }
            for name in sorted(names)
        ],
        "loop_blocked": {
            "times": int(info.get("loopBlockedTimes", "0")),
            "max_ms": int(info.get("loopBlockedMaxMillis", "0")),
            "by": info.get("loopBlockedBy", ""),
        },
    }
