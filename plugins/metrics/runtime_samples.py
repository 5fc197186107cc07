"""Computes figures from the texts that GET_BROKER_RUNTIME_INFO (request 28) returns. The computation runs outside the event
loop."""

from __future__ import annotations

import re
from typing import Final

from flintmq.core.broker.alarm_figures import alarms_of
from flintmq.plugins.metrics.families import CAPACITIES, PUT_TIMES, RUNTIME
from flintmq.plugins.metrics.samples import Samples

_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE: Final = re.compile(r"([\d.]+) ([KMGT]?i?B)\b")
_COUNT: Final = re.compile(r"\[[^\]]*\]:(\d+)")


def add_runtime_samples(samples: Samples) -> None:
    """Add the figures that are computed from ``samples.info``, the texts of GET_BROKER_RUNTIME_INFO (request 28).

    These are the figures of rocketmq-exporter, the alarms, the state of replication, and how often and how long the event loop
    was blocked.
    """
    info = samples.info
    for name, (key, place) in RUNTIME.items():
        words = info.get(key, "").split()
        size = _SIZE.fullmatch(info.get(key, ""))
        if size is not None:
            samples.add(f"rocketmq_brokeruntime_{name}", float(size[1]) * _UNITS[size[2]])
        elif place < len(words):
            samples.add(f"rocketmq_brokeruntime_{name}", float(words[place]))
    counts = _COUNT.findall(info.get("putMessageDistributeTime", "")) or ["0"] * len(PUT_TIMES)
    for name, count in zip(PUT_TIMES, counts, strict=True):
        samples.add(f"rocketmq_brokeruntime_pmdt_{name}", int(count))
    for name, (number, unit) in zip(CAPACITIES, _SIZE.findall(info.get("commitLogDirCapacity", "")), strict=False):
        samples.add(f"rocketmq_brokeruntime_{name}", float(number) * _UNITS[unit])
    for alarm in alarms_of(info):
        samples.add("flintmq_alarm", 1, alarm.id, alarm.level, alarm.subject)
    if "loopBlockedTimes" in info:
        samples.add("flintmq_loop_blocked_total", int(info["loopBlockedTimes"]))
        samples.add("flintmq_loop_blocked_max_seconds", int(info["loopBlockedMaxMillis"]) / 1000)
    if "haSlaves" in info:
        samples.add("flintmq_slaves", int(info["haSlaves"]))
        if int(info["haBehindBytes"]) >= 0:
            samples.add("flintmq_slave_behind_bytes", int(info["haBehindBytes"]))
    if "haFollows" in info:
        samples.add("flintmq_follows_master", int(info["haFollows"] == "true"))
    if "timerOffsetBehind" in info:
        samples.add("rocketmq_timer_enqueue_lag", int(info["timerOffsetBehind"]))
