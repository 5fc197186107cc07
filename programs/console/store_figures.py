"""Describes a broker's store in words, from its runtime figures. RocketMQ's brokers report only some of these figures. Pure
functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.programs.console.texts import count, size, when

_LABELS: Final = {
    "commitLogMinOffset": ("the log begins at byte", "count"),
    "commitLogMaxOffset": ("the log ends at byte", "count"),
    "dispatchBehindBytes": ("queues and index are behind the log by", "size"),
    "remainHowManyDataToCommit": ("waits to be committed", ""),
    "remainHowManyDataToFlush": ("waits to be synced", ""),
    "remainTransientStoreBufferNumbs": ("free buffers of the transient pool", "pool"),
    "earliestMessageTimeStamp": ("the oldest message is of", "when"),
    "commitLogDiskRatio": ("used of the log's disk", "ratio"),
    "consumeQueueDiskRatio": ("used of the queues' disk", "ratio"),
    "commitLogDirCapacity": ("the log's disk", ""),
    "pageCacheLockTimeMills": ("the append under way has taken (ms)", "count"),
    "putMessageEntireTimeMax": ("the longest append (ms)", "count"),
    "putLatency99": ("p99 of appends (ms)", ""),
    "putLatency999": ("999 of 1,000 appends took at most (ms)", ""),
    "putMessageFailedTimes": ("appends that failed", "count"),
    "putMessageAverageSize": ("bytes of a message on average", "mean"),
}
_NO_POOL: Final = str(2**31 - 1)


def of(figures: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the known figures of a broker's store as labels and texts, in the order of the page."""
    found = []
    for name, (label, kind) in _LABELS.items():
        text = figures.get(name, "").strip()
        if text and text not in ("null", "-1") and not (kind == "pool" and text == _NO_POOL):
            found.append((label, _shown(text, kind)))
    return found


def _shown(text: str, kind: str) -> str:
    if kind in ("ratio", "mean"):
        try:
            return f"{float(text):.0%}" if kind == "ratio" else f"{float(text):,.0f}"
        except ValueError:
            return text
    if not text.lstrip("-").isdecimal() or len(text) > 19:
        return text
    number = int(text)
    return {"count": count, "size": size, "when": when, "pool": count}.get(kind, str)(number)
