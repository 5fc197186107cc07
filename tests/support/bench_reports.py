"""Reports of ``bench flush`` as small as they may be."""

from __future__ import annotations

from typing import Any


def estimate(mean: float, half: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def a_report(rate: float) -> dict[str, Any]:
    figures = ("p50_ms", "p99_ms", "p999_ms", "cpu_us", "written_bytes_per_message", "syncs_per_s")
    one = {"strategy": "group_commit", "rate": estimate(rate, 1.0)} | {name: estimate(2.0, 0.5) for name in figures}
    return {
        "report": "flintmq bench flush",
        "format": 1,
        "environment": {
            "cpu": "x",
            "cores": 2,
            "system": "L",
            "disk": {"filesystem": "ext4", "device": "d", "folder": "/a"},
        },
        "plan": {"threads": 4},
        "config": {"group_commit": {"flush.strategy": "group_commit"}},
        "strategies": [one],
    }
