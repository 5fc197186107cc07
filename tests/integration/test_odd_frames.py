"""Odd frames end no connection: each is answered as the real broker does, or told what is wrong with it where that one closes.

The frames and what the real broker does with them are in ``odd_frames.py``; ``tests/interop/test_odd_frames.py`` asks it again.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from bare_wire import Wire, settings
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from odd_frames import LEGAL_PROPERTIES, OPAQUE, REAL, OddFrame, asking, binary, framed, odd_frames, sending, try_frame

import flintmq
from flintmq.core.errors import FrameError
from flintmq.remoting.server.request import decode_request
from flintmq.remoting.wire.lenient_header import what_is_known
from flintmq.tests.support.effort import examples

FRAMES: Final = {one.name: one for one in odd_frames()}
FAMILIES: Final = sorted({name.partition(":")[0] for name in FRAMES})
REASON: Final = re.compile(r" \[[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+(; [^\[\]]+)*\]$")
SLOW_S: Final = 0.05
DIFFERENT: Final = {
    "size: a value of 3 MiB": "refused, as HEADER_MAX_BYTES says",
    "size: a value of 15 MiB": "refused, as HEADER_MAX_BYTES says",
    "lenient: a semicolon for a comma": "an accident of fastjson's; no library writes it",
    "lenient: a date": "an expression of JavaScript's; no library writes it",
    "lenient: a set": "a word of fastjson's own for Java's classes; no library writes it",
    "lenient: hex bytes": "a word of fastjson's own; no library writes it",
    'known codes: a queue id of "0.0"': "taken as 0",
    "known codes: 34 with nothing at all": "a heartbeat that says nothing is one",
    "body: a heartbeat that is empty": "a heartbeat that says nothing is one",
    "known codes: 35 with nothing at all": "whoever leaves says who it is",
}
"""Answered otherwise than by the real broker, and why."""
UNFRAMED: Final = frozenset(
    name
    for name in FRAMES
    if name.startswith("lengths: ")
    and name
    not in (
        "lengths: a header of nought",
        "lengths: a header that is too short",
        "lengths: nothing but a header word",
    )
)
"""Where the next frame would begin is not known, or the header's length is a lie: these end the connection."""


GARBAGE: Final = frozenset(
    f"lenient: {what}"
    for what in ("text around", "a number", "null", "true", "an empty array", "no JSON at all", "XML")
) | {"codec: binary bytes as JSON"}
"""Headers that begin no object, and name nobody who waits: these end the connection without a word, as the real broker does."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flintmq.Broker]:
    with flintmq.Broker(settings(tmp_path_factory.mktemp("odd") / "store")) as one:
        yield one


@pytest.fixture
def port(running: flintmq.Broker, unexpected: list[str]) -> int:
    """Return the port of a broker; the test fails if the broker has an unexpected error."""
    return running.port


def test_the_behavior_of_a_real_rocketmq_broker_is_recorded_for_every_test_frame() -> None:
    """The comparison with the real broker would prove little if its recording were cut."""
    assert FRAMES.keys() == REAL.keys()
    assert len(FRAMES) > 350
    assert sum(outcome == "closed" for outcome in REAL.values()) > 100
    assert sum(isinstance(outcome, list) for outcome in REAL.values()) > 200
    assert DIFFERENT.keys() | UNFRAMED | GARBAGE <= FRAMES.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_unusual_frames_are_answered_as_by_rocketmq(port: int, family: str) -> None:
    """Whatever the real broker answers is answered with the same code and meaning; whatever it closes for is told why, unless
    it cannot be framed; and the next request on the same connection is answered."""
    for name, odd in FRAMES.items():
        if name.partition(":")[0] == family:
            judge(odd, REAL[name], port)


def judge(odd: OddFrame, real: Any, port: int) -> None:
    is_silent = real == "silent" or "an answer" in odd.name
    outcome = try_frame("127.0.0.1", port, odd.data, quiet_s=0 if is_silent else 5.0)
    for answer in outcome.answers:
        assert answer.flag & 1
        assert answer.code == 0 or REASON.search(answer.remark), (odd.name, answer)
    if odd.name in GARBAGE:
        assert real == "closed"
        assert (outcome.stays, outcome.answers) == (False, ()), odd.name
        return
    if is_silent:
        assert outcome.answers == (), odd.name
    elif odd.name in UNFRAMED:
        assert not outcome.stays, odd.name
        assert [answer.opaque for answer in outcome.answers] == ([] if odd.opaque is None else [odd.opaque]), odd.name
        return
    else:
        (answer,) = outcome.answers
        if real == "closed":
            assert answer.code != 0, odd.name
            assert odd.opaque is None or answer.opaque == odd.opaque, odd.name
        elif odd.name in DIFFERENT:
            assert answer.opaque == odd.opaque, odd.name
        else:
            code, opaque, remark = real
            assert answer.code == code, (odd.name, answer)
            assert answer.opaque == (opaque or 0), odd.name
            assert answer.remark.startswith(remark), (odd.name, answer)
    assert outcome.stays, odd.name


@pytest.mark.parametrize("name", LEGAL_PROPERTIES)
def test_valid_sends_with_escaped_control_characters_are_stored_unchanged(
    running: flintmq.Broker, connect: Any, name: str
) -> None:
    """Control characters are six bytes each in a header; the record has room for them, and they come out as they went in."""
    assert try_frame("127.0.0.1", running.port, framed(sending(LEGAL_PROPERTIES[name], "Swollen").encode(), b"x")).stays
    wire: Wire = connect(running)
    record = wire.pull_all("Swollen")[-1]
    assert LEGAL_PROPERTIES[name].encode() in record.properties_bytes


def test_the_refusal_of_an_invalid_frame_contains_the_offending_size_or_value(port: int) -> None:
    """Whoever wrote the odd library finds its mistake in the answer."""
    for name, remark in {
        "size: a value of 3 MiB": "header.too_long; measured 3145860 bytes",
        "codec: 7": "header.unknown_codec; measured codec 7",
        "code: words": "header.malformed; measured 'many'",
        "binary: a value of -1": "header.malformed; measured -1 bytes",
        "fields: an array": "header.malformed; measured",
        "lengths: a frame of 16 MiB and a byte": "frame.length; measured 16777217 bytes; see listen.max_frame_bytes",
        "lengths: the header is longer than its frame": "frame.malformed; measured 134 bytes",
    }.items():
        (answer,) = try_frame("127.0.0.1", port, FRAMES[name].data).answers
        assert remark in answer.remark


@pytest.mark.parametrize("codec", [0, 1])
def test_frames_with_too_many_header_fields_are_refused(port: int, codec: int) -> None:
    """Where they are all looked at, in either codec."""
    fields = {f"f{number}": "" for number in range(5_000)}
    text = asking(code="200").replace('"g"', '"g",' + ",".join(f'"{name}":""' for name in fields))
    header = binary(fields, code=200) if codec else text.encode()
    outcome = try_frame("127.0.0.1", port, framed(header, codec=codec))
    (answer,) = outcome.answers
    assert "header.too_many_fields; measured" in answer.remark
    assert outcome.stays


def test_a_client_still_sending_a_too_long_frame_receives_the_error_answer(port: int) -> None:
    """Its sender is still writing when it is refused: the answer must not be lost with a connection that is reset."""
    header = framed(asking(f'"{"x" * 40_000}"').encode())[4:]
    data = struct.pack(">i", 40 << 20) + header + bytes((40 << 20) - len(header))
    outcome = try_frame("127.0.0.1", port, data)
    assert [answer.opaque for answer in outcome.answers] == [OPAQUE]
    assert not outcome.stays


def test_decoding_any_header_takes_less_than_50_ms() -> None:
    """A frame that costs more processor time would let a single client block the broker."""
    for name, odd in FRAMES.items():
        if name not in UNFRAMED:
            assert min(_decoding_s(odd.data) for _ in range(3)) < SLOW_S, name
    room = 262_144 - 200
    for text in (*LONG, "中", "{", "[],", "'a',", "1,", "1.5e3,", "/**/", " ", '"a":1,', "opaque:"):
        for before, after in (('"', '"'), ('"z":[', "]"), ("[", "]"), ("", "")):
            for size in (40_000, room):
                filling = text * (size // len(text))
                header = f'{{\'code\':38,"opaque":1,"extFields":{{"consumerGroup":{before}{filling}{after}}}}}'
                best_s = min(_decoding_s(framed(header.encode())) for _ in range(3))
                assert best_s < SLOW_S, (text, before, size)


def _decoding_s(data: bytes) -> float:
    frame = data[4:]
    begin_s = time.thread_time()
    try:
        decode_request(object(), frame, keep_ext_fields=True)  # type: ignore[arg-type]
    except FrameError:
        what_is_known(frame)
    return time.thread_time() - begin_s


LONG: Final = ("\\ud800", "\\u0001", "\\\\", "\x01", "\x85")
PIECES: Final = st.sampled_from(
    [b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"\\", b"\\ud800", b"\\u00", b"\xff", b"\xed\xa0\x80", b"\0", b"\n", b"/*",
     b"*/", b"//", b"code", b"opaque", b"flag", b'"extFields"', b"null", b"true", b"NaN", b"38", b"-", b"+",
     b".", b"e9", b"9" * 30, b"1e" + b"9" * 20]
)  # fmt: skip
GOOD_HEADERS: Final = [one.data[8:][:400] for one in FRAMES.values() if len(one.data) < 400]


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Anything; or nearly what is right, with some pieces put in or taken out."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300))
    header = draw(st.sampled_from(GOOD_HEADERS))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(header)))
        header = header[:at] + draw(st.one_of(PIECES, st.binary(max_size=3))) + header[at + draw(st.integers(0, 3)) :]
    return header


@pytest.fixture(scope="module")
def served(running: flintmq.Broker) -> int:
    """For Hypothesis, which wants fixtures that stay."""
    return running.port


@given(headers(), st.sampled_from([0, 0, 0, 1, 1, 2, 255]), st.binary(max_size=20))
@example(b"", 0, b"")
@hypothesis_settings(max_examples=examples(300))
def test_a_frame_with_a_random_header_gets_at_most_one_answer(
    served: int, header: bytes, codec: int, body: bytes
) -> None:
    """Well framed bytes of any kind: at most one answer, and the next request on the connection is answered."""
    outcome = try_frame("127.0.0.1", served, framed(header, body, codec=codec))
    if not outcome.stays:
        assert codec == 0
        assert not re.match(rb"\s*($|[{/])|\xef", header)
        assert b"opaque" not in header or outcome.answers == ()
        return
    assert len(outcome.answers) <= 1
    for answer in outcome.answers:
        assert answer.flag & 1
        assert answer.code == 0 or REASON.search(answer.remark) or answer.code in (19, 20, 21), answer
