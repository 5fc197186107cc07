"""How the values of options are read: always from text, and an error names the option, the value and what would do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
from msgspec import Meta

from flintmq.config.errors import ConfigError
from flintmq.config.timestamps import parse_timestamp
from flintmq.plugins.spark.errors import OptionError

_SIZE = re.compile(r"(\d{1,18})\s*(b|k|m|g|t|kb|mb|gb|tb|kib|mib|gib|tib)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_POWERS: Final = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_INT64_MAX: Final = 2**63 - 1
_SOME: Final = Meta(min_length=1)
_QueueId = Annotated[int, Meta(ge=0, lt=2**31)]
_QueueOffset = Annotated[int, Meta(ge=-2, le=_INT64_MAX)]
_Queues = Annotated[dict[str, Annotated[frozenset[_QueueId], _SOME]], _SOME]
_Brokers = dict[str, dict[Literal["phys"], Annotated[int, Meta(ge=0, le=_INT64_MAX)]]]
_Topics = dict[str, Annotated[dict[str, Annotated[dict[_QueueId, _QueueOffset], _SOME]], _SOME]]
"""Topic to broker to queue id to queue offset."""

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
    """Read ``true`` or ``false``."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"option {option} must be true or false, not {value[:80]!r}")
    return word == "true"


def count(option: str, value: str) -> int:
    """Return a whole number from 1 on."""
    number = _whole_number(option, value)
    if number < 1:
        raise OptionError(f"option {option} must be at least 1, not {value[:80]!r}")
    return number


def time_ms(option: str, value: str) -> int:
    """Return a time in ms since 1970; one without an offset is the driver's local time."""
    try:
        found_ms, told = parse_timestamp(value)
    except ConfigError as error:
        raise OptionError(f"option {option} {error.message}") from error
    if told:
        warnings.warn(f"option {option} {told}", stacklevel=2)
    return found_ms


def _whole_number(option: str, value: str) -> int:
    """Return a whole number from 0 on."""
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
    """Return a regular expression of Python's, which must fit a whole name."""
    try:
        return re.compile(text(option, value))
    except re.error as error:
        raise OptionError(f"option {option} is not a regular expression: {error}") from error


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Return a reader that takes one of some words, whatever their case."""

    def read(option: str, value: str) -> str:
        word = value.strip().lower()
        if word not in choices:
            raise OptionError(f"option {option} must be {' or '.join(choices)}, not {value[:80]!r}")
        return word

    return read


def tags(option: str, value: str) -> tuple[str, ...]:
    """Read ``a || b``; empty for ``*``, which is every message."""
    if value.strip() in ("", "*"):
        return ()
    found = tuple(dict.fromkeys(part.strip() for part in value.split("||") if part.strip()))
    if not found or "*" in found:
        raise OptionError(f"option {option} must be * or tags separated by ||, not {value[:80]!r}")
    return found


def queues(option: str, value: str) -> Mapping[str, frozenset[int]]:
    """``{"topic": [0, 1]}``."""
    found: dict[str, frozenset[int]] = _json(option, value, _Queues, 'JSON such as {"orders": [0, 1]}')
    return found


@attrs.frozen
class Place:
    """Where reading begins or ends: earliest, latest, a place for each queue, one in the commit log, or, for a beginning, so
    many messages or so much time before the latest."""

    kind: Literal["earliest", "latest", "queues", "physical", "rows", "age"]
    queue_offsets: Mapping[tuple[str, str, int], int] = attrs.field(factory=dict)
    """Topic, broker and queue id to a queue offset, or -2 for its earliest and -1 for its latest; of kind ``queues``."""
    physical_offsets: Mapping[str, int] = attrs.field(factory=dict)
    """Broker to a physical offset in bytes; of kind ``physical``."""
    rows: int = 0
    """The last messages of each queue; of kind ``rows``."""
    age_ms: int = 0
    """What was stored since so long ago; of kind ``age``. Counted when the place is looked up, once for a query."""


EARLIEST: Final = Place("earliest")
LATEST: Final = Place("latest")


def _relative(option: str, value: str) -> Place | None:
    """Return ``-100``, the last messages of each queue, or ``-10m``, what was stored since; None for anything else."""
    text = value.strip()
    if not text.startswith("-"):
        return None
    if text[1:].strip().isdigit():
        return Place("rows", rows=count(option, text[1:]))
    if _DURATION.fullmatch(text[1:].strip()) is None:
        raise OptionError(
            f"option {option}: {value[:80]!r} is neither a number of messages (-100) nor a time before now (-10m, -2h, -1d)"
        )
    return Place("age", age_ms=duration_ms(option, text[1:]))


def start(option: str, value: str) -> Place:
    """Return a :func:`place`, or one before the latest: ``-100`` or ``-10m``."""
    return _relative(option, value) or place(option, value)


def start_time(option: str, value: str) -> int | Place:
    """Return a :func:`time_ms`, or the place ``-10m``: a time that moves must be looked up once, and not filter for ever."""
    found = _relative(option, value)
    if found is not None and found.kind == "rows":
        raise OptionError(
            f"option {option}: {value[:80]!r} needs a unit: -10m, -2h, -1d; messages go into startingOffsets"
        )
    return found or time_ms(option, value)


def place(option: str, value: str) -> Place:
    """``earliest``, ``latest``, ``{"topic": {"broker": {"0": 23}}}`` or ``{"broker": {"phys": 1048576}}``."""
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    expected = (
        'earliest, latest, {"topic": {"broker": {"0": 23}}} (-2 earliest, -1 latest) or {"broker": {"phys": 1048576}}'
    )
    parsed = _json(option, value, Annotated[dict[str, dict[str, Any]], _SOME], expected)
    if all("phys" in one for one in parsed.values()):
        brokers = _json(option, value, _Brokers, expected)
        return Place("physical", physical_offsets={broker: one["phys"] for broker, one in brokers.items()})
    topics = _json(option, value, _Topics, expected)
    return Place(
        "queues",
        queue_offsets={
            (topic, broker, queue_id): queue_offset
            for topic, brokers in topics.items()
            for broker, queues in brokers.items()
            for queue_id, queue_offset in queues.items()
        },
    )


def _json(option: str, value: str, kind: Any, expected: str) -> Any:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise OptionError(f"option {option} must be {expected}, not {value[:80]!r}: {error}") from error
