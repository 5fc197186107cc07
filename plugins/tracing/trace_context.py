"""The trace context that a message brings in its properties.

See https://www.w3.org/TR/trace-context/ (Level 2), traceparent and tracestate.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

TRACEPARENT: Final = "traceparent"
MARK: Final = b"traceparent\x01"
"""How the property begins, as it is stored."""
SAMPLED: Final = 0x01
RANDOM: Final = 0x02
"""Of a trace id whose right half is random."""
TRACEPARENT_MAX_BYTES: Final = 512
"""Version 00 has 55; later ones may append to that."""
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
    """Which span a message comes from."""

    trace_id: int
    """128 bits, not 0."""
    parent_id: int
    """The span: 64 bits, not 0."""
    flags: int
    """One byte."""
    state: str = ""
    """``tracestate``, what tracing systems tell each other; empty where there is none, or none that is well formed."""

    @property
    def is_sampled(self) -> bool:
        """Whether the producer's span is recorded."""
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        """The property's value, in version 00."""
        return f"00-{self.trace_id:032x}-{self.parent_id:016x}-{self.flags:02x}"


class TraceContextError(ValueError):
    """A property ``traceparent`` that is none by the rules of W3C."""


def is_unsampled(value: str) -> bool:
    """Return whether a traceparent is plainly one whose span is not sampled, as most are where some are."""
    return _UNSAMPLED.fullmatch(value) is not None


def read_context(stored: bytes) -> TraceContext | None:
    """Return the trace context in the properties of a message, as they are stored; None where there is none.

    Raises:
        TraceContextError: there is a traceparent, and it is malformed, or there is more than one.
    """
    parents = _PARENTS.findall(stored)
    if not parents:
        return None
    if len(parents) > 1:
        raise TraceContextError(f"there are {len(parents)} properties traceparent")
    trace_id, parent_id, flags = parse_traceparent(parents[0])
    return TraceContext(trace_id, parent_id, flags, _state(_STATES.findall(stored)))


def sampled_context(stored: bytes) -> TraceContext | None:
    """Return the trace context of a message that is to be traced; None for every other."""
    try:
        context = read_context(stored)
    except TraceContextError:
        return None
    return context if context is not None and context.is_sampled else None


def parse_traceparent(value: bytes) -> tuple[int, int, int]:
    """Return trace id, parent id and flags of a traceparent.

    Raises:
        TraceContextError: it is malformed. One of a later version is read as far as version 00 goes, but of its flags only
            that of sampling counts.
    """
    found = _FORM.fullmatch(value) if len(value) <= TRACEPARENT_MAX_BYTES else None
    if found is None:
        raise TraceContextError(f"a traceparent is expected: {len(value)} bytes that begin with {value[:60]!r}")
    version, trace, parent, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        raise TraceContextError(f"no traceparent of version {version.decode()} looks so: {value[:60]!r}")
    trace_id, parent_id = int(trace, 16), int(parent, 16)
    if not trace_id or not parent_id:
        raise TraceContextError("its trace id or its parent id is zero")
    return trace_id, parent_id, int(flags, 16) & (0xFF if version == b"00" else SAMPLED)


def _state(values: list[bytes]) -> str:
    """Return a tracestate that is well formed; one that is not counts as none, as W3C has it."""
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
