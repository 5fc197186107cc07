"""Reads figures from the answers of FlintMQ's and RocketMQ's brokers to GET_BROKER_RUNTIME_INFO. The functions are pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_SPAN: Final = re.compile(r"(\d+) (day|hour|minute|second)")


def number(info: Mapping[str, str], name: str) -> int:
    """Return a whole number from a broker's runtime figures; 0 if the figure is missing or not a number."""
    text = info.get(name, "").strip()
    return int(text) if text.lstrip("-").isdecimal() else 0


def first(text: str) -> float:
    """Return the first number of a text; 0 if the text has none. In a list of rates, the first number is the rate over the
    shortest time."""
    try:
        return round(float(text.split()[0]), 2)
    except (IndexError, ValueError):
        return 0.0


def main_figures(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the broker figures that ``flintmq status``, ``flintmq top`` and the console share, keyed by their JSON names."""
    return {
        "put_per_s": first(info.get("putTps", "")),
        "get_per_s": first(info.get("getTransferedTps", "")),
        "put_today": number(info, "msgPutTotalTodayNow") - number(info, "msgPutTotalTodayMorning"),
        "got_today": number(info, "msgGetTotalTodayNow") - number(info, "msgGetTotalTodayMorning"),
        "commit_log_bytes": number(info, "commitLogMaxOffset") - number(info, "commitLogMinOffset"),
        "dispatch_behind_bytes": number(info, "dispatchBehindBytes"),
        "disk_ratio": first(info.get("commitLogDiskRatio", "")),
        "earliest_message_timestamp_ms": number(info, "earliestMessageTimeStamp"),
    }


def uptime_s(text: str) -> int:
    """Return a broker's uptime in seconds from RocketMQ's text, such as ``[ 0 days, 3 hours, 7 minutes, 5 seconds ]``."""
    seconds = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
    return sum(int(count) * seconds[unit] for count, unit in _SPAN.findall(text))


def replication_of(info: Mapping[str, str]) -> dict[str, Any]:
    """Return a broker's state of replication; empty without replication, and for RocketMQ's brokers."""
    if "haSlaves" in info:
        behind = number(info, "haBehindBytes")
        master = {"slaves": number(info, "haSlaves"), "held_offset": number(info, "haHeldOffset")}
        return {"role": "master", **master, "behind_bytes": behind if behind >= 0 else None}
    if "haFollows" in info:
        return {"role": "slave", "follows": info["haFollows"] == "true"}
    return {}


def put_latency_99_ms(info: Mapping[str, str]) -> float | None:
    """Return the 99th percentile of a broker's append times in the last whole minute; None if the broker does not report the
    percentile, or reports 0, which means that nothing was appended.
    """
    return first(info.get("putLatency99", "")) or None


def odd_groups(info: Mapping[str, str]) -> dict[str, str]:
    """Return the groups whose members conflict according to a FlintMQ broker, with the ids of the differing members."""
    entries = (entry.partition(": ") for entry in info.get("contradictorySubscriptions", "").split("; "))
    return {group: client_ids for group, _, client_ids in entries if client_ids}
