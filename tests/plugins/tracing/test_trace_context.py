"""A traceparent is read as the rules of W3C say, and whatever else a client writes there is none."""

from __future__ import annotations

import string
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.core.record.properties import properties_to_string
from flintmq.plugins.tracing.trace_context import (
    TraceContext,
    TraceContextError,
    parse_traceparent,
    read_context,
    sampled_context,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{PARENT}-01"
HEX = "0123456789abcdef"


def by_the_rules(text: str) -> tuple[int, int, int] | None:
    """What W3C's "Versioning of traceparent" and "version-format" say, read character by character."""
    if len(text) < 55 or len(text) > 512 or any(text[at] != "-" for at in (2, 35, 52)):
        return None
    version, trace, parent, flags, rest = text[:2], text[3:35], text[36:52], text[53:55], text[55:]
    if not all(one in HEX for one in version + trace + parent + flags) or version == "ff":
        return None
    if set(trace) == {"0"} or set(parent) == {"0"}:
        return None
    if rest and (version == "00" or rest[0] != "-"):
        return None
    return int(trace, 16), int(parent, 16), int(flags, 16) if version == "00" else int(flags, 16) & 1


def hexes(length: int) -> st.SearchStrategy[str]:
    return st.one_of(st.text(HEX, min_size=length, max_size=length), st.just("0" * length), st.just("F" * length))


near = st.builds(
    "-".join,
    st.tuples(st.one_of(hexes(2), st.just("00"), st.just("ff")), hexes(32), hexes(16), hexes(2)),
)
mangled = st.builds(
    lambda text, at, more: text[:at] + more + text[at:],
    near,
    st.integers(0, 55),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=600),
)


@given(st.one_of(near, mangled, st.text(HEX + "-", max_size=60), st.text(max_size=60)))
@example(GOOD)
@example(f"{GOOD}-")
@example(f"01-{TRACE}-{PARENT}-ff-what the future brings")
@example(f"01-{TRACE}-{PARENT}-01.")
@example(f"cc-{TRACE}-{PARENT}-01-{'x' * 600}")
@example(f"00-{'0' * 32}-{PARENT}-01")
@example(GOOD.upper())
@example(f"{GOOD}\n")
@example("<script>alert(1)</script>")
def test_a_traceparent_is_parsed_as_w3c_specifies(text: str) -> None:
    """The same verdict and the same ids as those of the rules written out once more, whatever the text."""
    found = None
    with suppress(TraceContextError):
        found = parse_traceparent(text.encode("utf-8", "surrogatepass"))
    assert found == by_the_rules(text)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_a_written_trace_context_is_read_back(trace_id: int, parent_id: int, flags: int) -> None:
    """What the broker gives to a message without one is one, and among other properties it is found."""
    context = TraceContext(trace_id, parent_id, flags)
    stored = properties_to_string({"UNIQ_KEY": "1", "traceparent": context.traceparent, "TAGS": "a"}).encode()
    assert read_context(stored) == context
    assert (sampled_context(stored) is not None) == bool(flags & 1)


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"),
        ("a=1 , b=2", "a=1,b=2"),
        ("tenant@vendor=x", "tenant@vendor=x"),
        ("a=1,a=2", ""),
        ("Upper=1", ""),
        ("a=1,<b>", ""),
        ("a=" + "x" * 600, ""),
        (",".join(f"k{n}=1" for n in range(33)), ""),
        ("", ""),
    ],
)
def test_a_valid_tracestate_is_kept_and_a_malformed_tracestate_is_dropped(state: str, kept: str) -> None:
    """A tracing system finds its own entry again; what is malformed is dropped as a whole, and the trace stays."""
    context = read_context(f"traceparent\x01{GOOD}\x02tracestate\x01{state}".encode())
    assert context is not None
    assert context.state == kept


def test_a_message_with_two_traceparents_has_no_trace_context() -> None:
    """Which of two parents is meant nobody can tell."""
    with pytest.raises(TraceContextError):
        read_context(f"traceparent\x01{GOOD}\x02K\x01v\x02traceparent\x01{GOOD}".encode())
    assert sampled_context(f"traceparent\x01{GOOD}\x02traceparent\x01{GOOD}".encode()) is None


def test_only_the_exact_property_name_traceparent_is_read() -> None:
    """Other names that end alike, and values that look so, are none."""
    assert read_context(f"xtraceparent\x01{GOOD}\x02K\x01traceparent".encode()) is None
    assert read_context(b"") is None
    assert read_context(b"traceparent\x01\x02K\x01v") is None  # a property without a value is not there


def test_a_traceparent_of_4_kib_is_refused() -> None:
    """Its length alone decides: nothing of it is looked at."""
    with pytest.raises(TraceContextError):
        parse_traceparent((string.printable * 41).encode()[:4096])
