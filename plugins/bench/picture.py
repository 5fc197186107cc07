"""Reports as pictures: latency distributions and throughput per strategy. Needs matplotlib, imported here and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

FORMATS: Final = (".svg", ".png", ".pdf")
INSTALL: Final = "matplotlib is not installed: pip install 'flintmq[bench]'"
_SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)


def draw_flush(report: dict[str, Any], path: Path) -> None:
    """Draw the report of ``flintmq bench flush``.

    Args:
        report: the document that ``--report`` writes.
        path: where to; its ending says the format.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no format that can be drawn.
        OSError: the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"'{path.name}' ends with none of {', '.join(FORMATS)}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    latency, bars = figure.subplots(1, 2, width_ratios=[3, 2])
    strategies = report["strategies"]
    colors = [f"C{n % 10}" for n in range(len(strategies))]
    for one, color in zip(strategies, colors, strict=True):
        points = [(value, share) for value, share in one["latency_cdf_ms"] if share < 1]
        if points:
            # 1 - share on a reversed logarithmic scale: as much room for each further nine.
            latency.plot(
                [max(v, 1e-4) for v, _ in points], [1 - s for _, s in points], label=one["strategy"], color=color
            )
    latency.set_xscale("log")
    latency.set_yscale("log")
    latency.invert_yaxis()
    latency.set_yticks([1 - share for share in _SHARES], [f"p{share * 100:g}" for share in _SHARES])
    latency.minorticks_off()
    latency.set_xlabel("put to acknowledgement, ms")
    latency.set_title("Latency distribution", loc="left")
    latency.grid(alpha=0.3)
    latency.legend(frameon=False)
    names = [one["strategy"] for one in strategies]
    means = [one["rate"]["mean"] for one in strategies]
    down = [one["rate"]["mean"] - one["rate"]["low"] for one in strategies]
    up = [max(0.0, one["rate"]["high"] - one["rate"]["mean"]) for one in strategies]
    places = range(len(names))
    bars.barh(places, means, xerr=[down, up], color=colors, capsize=4, height=0.6)
    bars.set_yticks(places, names)
    bars.invert_yaxis()
    bars.set_xlim(left=0)
    bars.set_xlabel("messages/s, mean and 95 % interval")
    bars.set_title("Throughput", loc="left")
    bars.grid(alpha=0.3, axis="x")
    figure.suptitle(_caption(report), fontsize=9, x=0.01, ha="left")
    figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _caption(report: dict[str, Any]) -> str:
    plan, made = report["plan"], report["environment"]
    return (
        f"{plan['threads']} writers, {plan['batch']} × {plan['size_bytes']} bytes a put, {plan['rounds']} rounds of "
        f"{plan['seconds']:g} s · {made['disk']['filesystem']} on {made['disk']['device']} · {made['cpu']}, "
        f"{made['cores']} cores · Python {made['python']}"
    )
