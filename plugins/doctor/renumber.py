"""Where queues have lost messages their offsets close up: what the offsets that were stored before mean afterwards."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

from flintmq.core.errors import StoreError
from flintmq.core.io.config_manager import JsonFile
from flintmq.plugins.doctor.expected import QueueKey
from flintmq.plugins.doctor.verify_config import offsets_of


class Renumbering:
    """New queue offsets, consecutive from each queue's first one on; the same ones while nothing is lost."""

    def __init__(self) -> None:
        self._steps: dict[QueueKey, list[tuple[int, int]]] = {}
        """(old offset, new offset) where the difference between them changes."""
        self._next: dict[QueueKey, tuple[int, int]] = {}
        """The old and the new offset that would follow."""

    def take(self, key: QueueKey, queue_offset: int) -> int:
        """The new offset of the next message of a queue."""
        old, new = self._next.get(key, (queue_offset, queue_offset))
        steps = self._steps.setdefault(key, [(queue_offset, queue_offset)])
        if queue_offset < old:
            steps.clear()  # the topic was deleted and made again: offsets that are stored are those of the new one
            steps.append((queue_offset, new))
        elif queue_offset > old:
            steps.append((queue_offset, new))
        self._next[key] = (queue_offset + 1, new + 1)
        return new

    def changed(self) -> bool:
        """Whether any offset is another one now."""
        return any(old != new for steps in self._steps.values() for old, new in steps)

    def translate(self, key: QueueKey, queue_offset: int) -> int:
        """Return the new offset of the message at an old one, or of the first message that is left behind it."""
        steps = self._steps.get(key)
        if not steps:
            return queue_offset
        at = bisect_right(steps, (queue_offset, 2**63)) - 1
        if at < 0:
            return queue_offset if steps[0][0] == steps[0][1] else steps[0][1]
        old, new = steps[at]
        following = steps[at + 1][1] if at + 1 < len(steps) else 2**63
        return min(new + queue_offset - old, following)


def translate_offsets(config: Path, numbers: Renumbering) -> int:
    """Rewrites consumer and delay offsets in a ``config`` folder; returns how many changed.

    A file that cannot be read is left as it is: verify reports it. Raises StoreError when the disk refuses.
    """
    changed = 0
    for name in ("consumerOffset.json", "delayOffset.json"):
        file = JsonFile(config / name)
        try:
            value = file.load()
        except StoreError:
            continue
        changed += _translate(file, value, numbers)
    return changed


def _translate(file: JsonFile, value: Any, numbers: Renumbering) -> int:
    moves: list[tuple[QueueKey, int, int]] = []
    for _who, key, consumer_offset in offsets_of(file.path, value):
        if key is not None and type(consumer_offset) is int:
            moved = numbers.translate(key, consumer_offset)
            if moved != consumer_offset:
                moves.append((key, consumer_offset, moved))
    if not moves:
        return 0
    table = value["offsetTable"]
    for name, queues in table.items():
        if isinstance(queues, dict):
            topic = str(name).partition("@")[0]
            for queue_id, consumer_offset in queues.items():
                if type(consumer_offset) is int and str(queue_id).isdigit():
                    queues[queue_id] = numbers.translate((topic, int(queue_id)), consumer_offset)
        elif type(queues) is int and str(name).isdigit():
            table[name] = numbers.translate(("SCHEDULE_TOPIC_XXXX", int(name) - 1), queues)
    file.save(value)
    return len(moves)
