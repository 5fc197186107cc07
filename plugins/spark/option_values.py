"""Functions that read the values of a Spark source's options. Each function takes the name and the text of an option. For a
text that cannot be used, the function raises OptionError, which names the accepted forms."""

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
"""Queue offsets, keyed by topic, broker name and queue id."""

EARLIEST_QUEUE_OFFSET: Final = -2
LATEST_QUEUE_OFFSET: Final = -1


def text(option: str, value: str) -> str:
    """Read an option as text without surrounding blanks. The text must not be empty."""
    stripped = value.strip()
    if not stripped:
        raise OptionError(f"option {option} is empty")
    return stripped


def names(option: str, value: str) -> tuple[str, ...]:
    """Read an option as names that are separated by commas. Duplicates are removed."""
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise OptionError(f"option {option} has no name in it: give one name, or several separated by commas")
    return found


def boolean(option: str, value: str) -> bool:
    """Read an option whose text is ``true`` or ``false``."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"option {option} must be true or false, not {value[:80]!r}")
    return word == "true"


def count(option: str, value: str) -> int:
    """Read an option as a whole number of at least 1."""
    number = _whole_number(option, value)
    if number < 1:
        raise OptionError(f"option {option} must be at least 1, not {value[:80]!r}")
    return number


def time_ms(option: str, value: str) -> int:
    """Read an option as a time in ms since 1970. A time without a UTC offset is in the driver's time zone."""
    try:
        found_ms, told = parse_timestamp(value)
    except ConfigError as error:
        raise OptionError(f"option {option} {error.message}") from error
    if told:
        warnings.warn(f"option {option} {told}", stacklevel=2)
    return found_ms


def _whole_number(option: str, value: str) -> int:
    """Read an option as a whole number of at least 0."""
    stripped = value.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) <= 19) or int(stripped) > _INT64_MAX:
        raise OptionError(f"option {option} must be a whole number, not {value[:80]!r}")
    return int(stripped)


def size_bytes(option: str, value: str) -> int:
    """Read an option as a size in bytes. The text may have one of Spark's units: ``64m``, ``64mb`` and ``64MiB`` are equal."""
    found = _SIZE.fullmatch(value.strip())
    number = int(found[1]) * 1024 ** _POWERS[(found[2] or "b")[0].lower()] if found else 0
    if not 0 < number <= _INT64_MAX:
        raise OptionError(f"option {option} must be a size such as 67108864, 64m or 1g, not {value[:80]!r}")
    return number


def duration_ms(option: str, value: str) -> int:
    """Read an option as a duration in ms. The text may have a unit: ``500ms``, ``10s``, ``15m``, ``1h``, ``1d``."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise OptionError(f"option {option} must be a duration such as 500ms, 10s or 15m, not {value[:80]!r}")
    return int(found[1]) * _UNITS_MS[(found[2] or "ms").lower()]


def pattern(option: str, value: str) -> re.Pattern[str]:
    """Read an option as a Python regular expression, and return the compiled expression."""
    try:
        return re.compile(text(option, value))
    except re.error as error:
        raise OptionError(f"option {option} is not a regular expression: {error}") from error


def one_of(*choices: str) -> Callable[[str, str], str]:
    """Return a function that reads an option whose text must be one of the given words, in upper or lower case."""

    def read(option: str, value: str) -> str:
        word = value.strip().lower()
        if word not in choices:
            raise OptionError(f"option {option} must be {' or '.join(choices)}, not {value[:80]!r}")
        return word

    return read


def tags(option: str, value: str) -> tuple[str, ...]:
    """Read an option as tags, written as ``a || b``. The result is an empty tuple for ``*``, which selects every message."""
    if value.strip() in ("", "*"):
        return ()
    found = tuple(dict.fromkeys(part.strip() for part in value.split("||") if part.strip()))
    if not found or "*" in found:
        raise OptionError(f"option {option} must be * or tags separated by ||, not {value[:80]!r}")
    return found


def queues(option: str, value: str) -> Mapping[str, frozenset[int]]:
    """Read an option as queue ids, written as ``{"topic": [0, 1]}``. The result is keyed by topic."""
    found: dict[str, frozenset[int]] = _json(option, value, _Queues, 'JSON such as {"orders": [0, 1]}')
    return found


@attrs.frozen
class Place:
    """The beginning or end of a read: the earliest or latest message, an offset per queue, or an offset in the commit log.

    A beginning may also be relative to the latest message: a number of messages, or a time.
    """

    kind: Literal["earliest", "latest", "queues", "physical", "rows", "age"]
    queue_offsets: Mapping[tuple[str, str, int], int] = attrs.field(factory=dict)
    """For a position of the kind ``queues``: queue offsets, keyed by topic, broker name and queue id. The queue offset -2
    stands for ``earliest``, and -1 for ``latest``."""
    physical_offsets: Mapping[str, int] = attrs.field(factory=dict)
    """For a position of the kind ``physical``: physical offsets in bytes, keyed by broker name."""
    rows: int = 0
    """For a position of the kind ``rows``: number of messages between the position and the end of each queue."""
    age_ms: int = 0
    """For a position of the kind ``age``: age in ms of the oldest message to read, measured when the query starts."""


EARLIEST: Final = Place("earliest")
LATEST: Final = Place("latest")


def _relative(option: str, value: str) -> Place | None:
    """Return the beginning of a read that is relative to the latest message: ``-100`` (the last 100 messages of each queue) or
    ``-10m`` (the last 10 minutes). The result is None for other texts."""
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
    """Read the option for the beginning of a read: a value that :func:`place` accepts, or a value relative to the latest
    message, such as ``-100`` (messages) or ``-10m``."""
    return _relative(option, value) or place(option, value)


def start_time(option: str, value: str) -> int | Place:
    """Read an option as a time in ms since 1970 (see :func:`time_ms`), or as a time before the start of the query, such as
    ``-10m``.
    """
    found = _relative(option, value)
    if found is not None and found.kind == "rows":
        raise OptionError(
            f"option {option}: {value[:80]!r} needs a unit, such as -10m, -2h or -1d; for a number of messages use "
            "startingOffsets"
        )
    return found or time_ms(option, value)


def place(option: str, value: str) -> Place:
    """Read the option for the beginning or end of a read: ``earliest``, ``latest``, ``{"topic": {"broker": {"0": 23}}}`` or
    ``{"broker": {"phys": 1048576}}``."""
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
