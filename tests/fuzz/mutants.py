"""Bends requests. A place in a frame, a value of its header or of its body is changed, one or several at a time.

Quick, because hundreds of thousands are wanted: seeds are taken apart once, and a mutant is joined from pieces.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Sequence
from typing import Final

from seeds import Seed

from flintmq.remoting.wire.codes import RequestCode

NUMBERS: Final = (
    "-1", "0", "1", "2", "31", "1024", "65535", "65536", "2147483647", "2147483648", "-2147483648", "4294967296",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e9", "1e999", "-0", "0x10", "00012", "٣",
    "1.5", "NaN", "Infinity", "9" * 40, "7" * 5_000, " 1", "1 ", "+1", "1_000",
)  # fmt: skip
TEXTS: Final = (
    "", " ", "T", "G", "P", "k", "*", "../../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "%2e%2e", "nul\x00byte", "a\nb\r\tc",
    "\x1b[31m", "\x01\x02", "ünïcödé", "\ud7ff", "😀", "\u2028", "a" * 127, "a" * 128, "a" * 255, "a" * 256, "a" * 30_000,
    "%RETRY%G", "%RETRY%", "%DLQ%G", "%RETRY%%RETRY%G", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT", "DefaultCluster", "broker-a", "TOOLS_CONSUMER", "true", "false", "null", "TAG",
    "SQL92", "A || B", "a > 1", "a > 1 AND (b = 'x' OR NOT c IS NULL)", "(" * 60 + "a" + ")" * 60, "NOT " * 200 + "a",
    "a IN (" + "'x'," * 500 + "'y')", "a = '" + "''" * 200, "KEYS\x01a b c\x02TAGS\x01A\x02DELAY\x0118",
    "TRAN_MSG\x01true\x02PGROUP\x01P",
    "DELAY\x01" + "9" * 30, "A\x01b\x02" * 900, "TIMER_DELIVER_MS\x01" + "9" * 18, "UNIQ_KEY\x01" + "x" * 300,
    "KEYS\x01" + "k " * 400,
    "INNER_MULTI_DISPATCH\x01a,b,c", "CORRELATION_ID\x01x\x02REPLY_TO_CLIENT\x0110.0.0.1@1#1\x02MSG_TYPE\x01reply",
    "MAX_RECONSUME_TIMES\x01x", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01-1", "traceOn=true", "T=PUB,U=DENY", "10.0.0.{1,2}", "::1",
    "1.2.3.4/0", "*.*.*.*", "10.0.0-999.1", "127.0.0.1:1", "[::1]:1", "x:99999999", "7F00000100002A9F0000000000000000",
    "Z" * 32,
)  # fmt: skip
RAW: Final = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"1e999", b"\0", b"\xff",
    b"\xc3\x28", b"[" * 40, b'{"a":' * 40, b"{}", b"[]", b'{"$ref":"$"}', b'{"$ref":"$.a"}', b"NaN", b"9" * 30, b"'", b"{0:1}",
    b"\xef\xbb\xbf", b"/*", b"\x01", b"\x02", b"=", b"\n", b"..",
)  # fmt: skip
"""Spliced in somewhere."""
INTS: Final = tuple(struct.pack(">i", number) for number in (-1, 0, 1, 4, 127, 65_536, 2**31 - 1, -(2**31)))
_VALUES: Final = tuple(json.dumps(value).encode() for value in (*NUMBERS, *TEXTS)) + tuple(
    number.encode() for number in NUMBERS
) + (b"null", b"true", b"{}", b"[]", b"[[[]]]", b'{"a":{"b":[1]}}', b'"\\ud800"')  # fmt: skip
_LONG: Final = 2_000
_COMMON: Final = tuple(value for value in _VALUES if len(value) < _LONG)
_CODES: Final = tuple(b"%d" % code for code in (*RequestCode, -1, 0, 16, 400, 9_999, 200_050, 2**31 - 1, 2**31))
_pack_prefix: Final = struct.Struct(">II").pack


class Mutants:
    """An endless source of bent requests, the same for the same seed. Not thread-safe."""

    def __init__(self, seed: int, seeds: Sequence[Seed]) -> None:
        self.chance = random.Random(seed)
        self._seeds = seeds

    def frame(self) -> bytes:
        """One request with its length in front; the length is right, unless it is what was bent."""
        random_ = self.chance.random
        seeds = self._seeds
        seed = seeds[int(random_() * len(seeds))]
        kind = random_()
        if kind < 0.20:
            return self._anywhere(seed)
        header, body = seed.header, seed.body
        if kind < 0.65 and seed.values:
            header = self._value(seed)
            if kind < 0.25:
                header = self.bend(header)
        elif kind < 0.70:
            other = seeds[int(random_() * len(seeds))]
            body = other.body
        elif kind < 0.75 and seed.codec == 0:
            header = b'{"code":%b' % _CODES[int(random_() * len(_CODES))] + header[header.find(b",") :]
        elif kind < 0.80:
            header = self.bend(header)
        if body and (kind >= 0.80 or random_() < 0.2):
            body = self.bend(body)
        return _pack_prefix(4 + len(header) + len(body), seed.codec << 24 | len(header)) + header + body

    def bend(self, data: bytes) -> bytes:
        """Bytes with one to three places changed, cut out, doubled or spliced in."""
        random_ = self.chance.random
        for _ in range(1 + int(random_() * 3)):
            at = int(random_() * (len(data) + 1))
            what = random_()
            if what < 0.25:
                data = data[:at] + RAW[int(random_() * len(RAW))] + data[at:]
            elif what < 0.45:
                data = data[:at] + bytes((int(random_() * 256),)) + data[at + 1 :]
            elif what < 0.60:
                data = data[:at] + data[at + 1 + int(random_() * 8) :]
            elif what < 0.75:
                data = data[:at] + data[at : at + 1 + int(random_() * 40)] + data[at:]
            elif what < 0.85:
                data = data[:at] + INTS[int(random_() * len(INTS))] + data[at + 4 :]
            else:
                data = data[:at] + _COMMON[int(random_() * len(_COMMON))] + data[at:]
        return data

    def _value(self, seed: Seed) -> bytes:
        """The seed's header with one to three of its values replaced."""
        random_ = self.chance.random
        header = seed.header
        places = seed.values
        chosen = sorted({int(random_() * len(places)) for _ in range(1 + int(random_() * 3))}, reverse=True)
        for number in chosen:
            start, end = places[number]
            values = _VALUES if random_() < 0.05 else _COMMON
            header = header[:start] + values[int(random_() * len(values))] + header[end:]
        return header

    def _anywhere(self, seed: Seed) -> bytes:
        whole = _pack_prefix(4 + len(seed.header) + len(seed.body), seed.codec << 24 | len(seed.header))
        whole = self.bend(whole + seed.header + seed.body)
        if self.chance.random() < 0.7:  # most changes make the length wrong; these shall get further
            whole = (len(whole) - 4).to_bytes(4, "big") + whole[4:]
        return whole
