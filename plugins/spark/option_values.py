"""How the values of options are read: always from text, and an error names the option, the value and what would do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from flintmq.plugins.spark.errors import OptionError

_SIZE = re.compile(r"(\d{1,18})\s*(b|k|m|g|t|kb|mb|gb|tb|kib|mib|gib|tib)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_POWERS: Final = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_INT64_MAX: Final = 2**63 - 1

EARLIEST_QUEUE_OFFSET: Final = -2
LATEST_QUEUE_OFFSET: Final = -1


def text(option: str, value: str) -> str:
    """Any text but none at all."""
    stripped = value.strip()
    if not stripped:
        raise OptionError(f"option {option} is empty")
    return stripped


def names(option: str, value: str) -> tuple[str, ...]:
    """Names separated by commas; each once."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise OptionError(f"option {option} names nothing: give one name or several separated by commas")
    return found


def boolean(option: str, value: str) -> bool:
    """``true`` or ``false``."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"option {option} must be true or false, not {value[:80]!r}")
    return word == "true"


def count(option: str, value: str) -> int:
    """A whole number from 1 on."""
    number = milliseconds_since_1970(option, value)
    if number < 1:
        raise OptionError(f"option {option} must be at least 1, not {value[:80]!r}")
    return number


def milliseconds_since_1970(option: str, value: str) -> int:
    """A whole number from 0 on."""
    stripped = value.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 19) or int(stripped) > _INT64_MAX:
        raise OptionError(f"option {option} must be a whole number, not {value[:80]!r}")
    return int(stripped)


def size_bytes(option: str, value: str) -> int:
    """Bytes, with Spark's units: ``64m``, ``64mb`` and ``64MiB`` are the same; a bare number is bytes."""
    found = _SIZE.fullmatch(value.strip())
    number = int(found[1]) * 1024 ** _POWERS[(found[2] or "b")[0].lower()] if found else 0
    if not 0 < number <= _INT64_MAX:
        raise OptionError(f"option {option} must be a size such as 67108864, 64m or 1g, not {value[:80]!r}")
    return number


def duration_ms(option: str, value: str) -> int:
    """Milliseconds: ``500ms``, ``10s``, ``15m``, ``1h``; a bare number is milliseconds."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise OptionError(f"option {option} must be a duration such as 500ms, 10s or 15m, not {value[:80]!r}")
    return int(found[1]) * _UNITS_MS[(found[2] or "ms").lower()]


def pattern(option: str, value: str) -> re.Pattern[str]:
    """A regular expression of Python's, which must fit a whole name."""
    try:
        return re.compile(text(option, value))
    except re.error as error:
        raise OptionError(f"option {option} is not a regular expression: {error}") from error


def one_of(*choices: str) -> Callable[[str, str], str]:
    """A reader that takes one of some words, whatever their case."""

    def read(option: str, value: str) -> str:
        word = value.strip().lower()
        if word not in choices:
            raise OptionError(f"option {option} must be {' or '.join(choices)}, not {value[:80]!r}")
        return word

    return read


def tags(option: str, value: str) -> tuple[str, ...]:
    """``a || b``; empty for ``*``, which is every message."""
    if value.strip() in ("", "*"):
        return ()
    found = tuple(dict.fromkeys(part.strip() for part in value.split("||") if part.strip()))
    if not found or "*" in found:
        raise OptionError(f"option {option} must be * or tags separated by ||, not {value[:80]!r}")
    return found


def queues(option: str, value: str) -> Mapping[str, frozenset[int]]:
    """``{"topic": [0, 1]}``."""
    parsed = _json(option, value)
    if not isinstance(parsed, dict) or not parsed:
        raise OptionError(f'option {option} must be JSON such as {{"orders": [0, 1]}}, not {value[:80]!r}')
    found = {}
    for topic, numbers in parsed.items():
        if (
            not isinstance(numbers, list)
            or not numbers
            or not all(_is_int(one) and 0 <= one < 2**31 for one in numbers)
        ):
            raise OptionError(f"option {option}: {topic!r} needs a list of queue numbers, not {str(numbers)[:80]}")
        found[topic] = frozenset(numbers)
    return found


@attrs.frozen
class Place:
    """Where reading begins or ends: earliest, latest, a place for each queue, or one in the commit log."""

    kind: Literal["earliest", "latest", "queues", "physical"]
    queue_offsets: Mapping[tuple[str, str, int], int] = attrs.field(factory=dict)
    """Topic, broker and queue id to a queue offset, or -2 for its earliest and -1 for its latest; of kind ``queues``."""
    physical_offsets: Mapping[str, int] = attrs.field(factory=dict)
    """Broker to a physical offset in bytes; of kind ``physical``."""


EARLIEST: Final = Place("earliest")
LATEST: Final = Place("latest")


def place(option: str, value: str) -> Place:
    """``earliest``, ``latest``, ``{"topic": {"broker": {"0": 23}}}`` or ``{"broker": {"phys": 1048576}}``."""
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    parsed = _json(option, value)
    if not isinstance(parsed, dict) or not parsed or not all(isinstance(one, dict) and one for one in parsed.values()):
        raise OptionError(
            f'option {option} must be earliest, latest, {{"topic": {{"broker": {{"0": 23}}}}}} or '
            f'{{"broker": {{"phys": 1048576}}}}, not {value[:80]!r}'
        )
    if all("phys" in one for one in parsed.values()):
        return _physical(option, parsed)
    return _queue_offsets(option, parsed)


def _physical(option: str, parsed: dict[str, Any]) -> Place:
    offsets = {broker: one["phys"] for broker, one in parsed.items()}
    for broker, offset in offsets.items():
        if not _is_int(offset) or not 0 <= offset <= _INT64_MAX:
            raise OptionError(
                f"option {option}: phys of {broker!r} must be a position in bytes, not {str(offset)[:80]}"
            )
    return Place("physical", physical_offsets=offsets)


def _queue_offsets(option: str, parsed: dict[str, Any]) -> Place:
    found = {}
    for topic, brokers in parsed.items():
        for broker, numbers in brokers.items():
            if not isinstance(numbers, dict) or not numbers:
                raise OptionError(f'option {option}: {topic!r} of {broker!r} needs queues such as {{"0": 23, "1": -2}}')
            for queue_id, offset in numbers.items():
                if (
                    not (queue_id.isascii() and queue_id.isdigit())
                    or not _is_int(offset)
                    or not -2 <= offset <= _INT64_MAX
                ):
                    raise OptionError(
                        f"option {option}: queue {queue_id[:20]!r} of {topic!r} needs a queue offset, "
                        f"-2 (earliest) or -1 (latest), not {str(offset)[:80]}"
                    )
                found[topic, broker, int(queue_id)] = offset
    return Place("queues", queue_offsets=found)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _json(option: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"option {option} is neither a known word nor JSON: {error}") from error
