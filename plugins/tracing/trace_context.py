"""Reads the trace context from the properties ``traceparent`` and ``tracestate`` of a message.

Their formats are those of https://www.w3.org/TR/trace-context/ (Level 2).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

TRACEPARENT: Final = "traceparent"
MARK: Final = b"traceparent\x01"
"""First bytes of the property ``traceparent`` in a record: the property's name and the separator."""
SAMPLED: Final = 0x01
RANDOM: Final = 0x02
"""Bit of the trace flags that is set if the right half of the trace id is random."""
TRACEPARENT_MAX_BYTES: Final = 512
"""Maximum length of a ``traceparent`` in bytes. A ``traceparent`` of version 00 has 55 bytes, and later versions may append
bytes."""
TRACESTATE_MAX_BYTES: Final = 512
TRACESTATE_MAX_MEMBERS: Final = 32

_PARENTS: Final = re.compile(rb"(?:\A|\x02)traceparent\x01([^\x02]+)")
_STATES: Final = re.compile(rb"(?:\A|\x02)tracestate\x01([^\x02]+)")
_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_UNSAMPLED: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]")
_KEY: Final = rb"(?:[a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
_VALUE: Final = rb"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER: Final = re.compile(_KEY + b"=" + _VALUE)


class TraceContext(msgspec.Struct, frozen=True):
    """Identifies the span that a message comes from, as given by the message's property ``traceparent``."""

    trace_id: int
    """Id of the trace: 128 bits, not 0."""
    parent_id: int
    """Id of the span that the producer sent with the message: 64 bits, not 0."""
    flags: int
    """Flags of the trace in one byte: :data:`SAMPLED` and :data:`RANDOM`."""
    state: str = ""
    """Value of the property ``tracestate``, which carries data of tracing systems; empty if the property is missing or
    malformed."""

    @property
    def is_sampled(self) -> bool:
        """Return whether the span that a message comes from is sampled."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        """Return the value of the property ``traceparent``, in version 00."""
        return f"00-{self.trace_id:032x}-{self.parent_id:016x}-{self.flags:02x}"


class TraceContextError(ValueError):
    """A message's property ``traceparent`` is malformed by the rules of W3C, or occurs twice."""


def is_unsampled(value: str) -> bool:
    """Return whether a ``traceparent`` is well formed, of version 00, and its span is not sampled.

    This check is cheaper than parsing the value. It is worthwhile because a system with sampling leaves most of its spans
    unsampled.
    """
    return _UNSAMPLED.fullmatch(value) is not None


def read_context(stored: bytes) -> TraceContext | None:
    """Return the trace context of a message, or None if it has no property ``traceparent``.

    Args:
        stored: the message's properties, encoded as in its record.

    Raises:
        TraceContextError: the ``traceparent`` is malformed, or the property occurs twice.
    """
    parents = _PARENTS.findall(stored)
    if not parents:
        return None
    if len(parents) > 1:
        raise TraceContextError(f"the message has {len(parents)} properties traceparent, and may have only one")
    trace_id, parent_id, flags = parse_traceparent(parents[0])
    return TraceContext(trace_id, parent_id, flags, _state(_STATES.findall(stored)))


def sampled_context(stored: bytes) -> TraceContext | None:
    """Return the trace context of a message if the context is well formed and sampled, else None.

    Args:
        stored: the message's properties, encoded as in its record.
    """
    try:
        context = read_context(stored)
    except TraceContextError:
        return None
    return context if context is not None and context.is_sampled else None


def parse_traceparent(value: bytes) -> tuple[int, int, int]:
    """Return the trace id, the parent id and the flags of a ``traceparent``.

    If the version is later than 00, only the fields of version 00 are read, and only the flag :data:`SAMPLED` is read.

    Raises:
        TraceContextError: the value is malformed.
    """
    found = _FORM.fullmatch(value) if len(value) <= TRACEPARENT_MAX_BYTES else None
    if found is None:
        raise TraceContextError(f"expected a traceparent, found {len(value)} bytes that begin with {value[:60]!r}")
    version, trace, parent, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        raise TraceContextError(f"the traceparent does not have the form of version {version.decode()}: {value[:60]!r}")
    trace_id, parent_id = int(trace, 16), int(parent, 16)
    if not trace_id or not parent_id:
        raise TraceContextError("the trace id or the parent id in the traceparent is zero")
    return trace_id, parent_id, int(flags, 16) & (0xFF if version == b"00" else SAMPLED)


def _state(values: list[bytes]) -> str:
    """Return the joined values of the properties ``tracestate``, or the empty string if the values are malformed (a W3C
    rule)."""
    members = [member.strip(b" \t") for value in values for member in value.split(b",")]
    members = [member for member in members if member]
    joined = b",".join(members)
    if (
        len(joined) > TRACESTATE_MAX_BYTES
        or len(members) > TRACESTATE_MAX_MEMBERS
        or not all(map(_MEMBER.fullmatch, members))
        or len({member.partition(b"=")[0] for member in members}) < len(members)
    ):
        return ""
    return joined.decode("ascii")
