"""Frames that no library should send and some do, by family: what fastjson takes beyond JSON, headers of any size, broken
texts, numbers of the wrong kind, lengths that lie.

Most ask who is in a group (38), because the answer to an unknown group repeats its name: what was understood can be seen.
``odd_frames_real.json`` says what the real broker 4.9.7 does with each: it closes the connection, stays silent, or answers
with a code, an opaque (null: one that it made up) and a remark that begins so. ``tests/interop/test_odd_frames.py`` asks it.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

JSON: Final = 0
BINARY: Final = 1
OPAQUE: Final = 4711
"""Opaque of every odd frame from which an opaque can be read."""
LEGAL_PROPERTIES: Final = {
    "control characters": "k\x01" + "\x03" * 10_900 + "\x02",
    "next lines": "k\x01" + "\x85" * 15_000 + "\x02",
}


@attrs.frozen
class OddFrame:
    """One frame."""

    name: str
    """``family: what is odd``."""
    data: bytes
    opaque: int | None = OPAQUE
    """That its sender would know the answer by; None when it cannot expect one."""


def framed(header: bytes, body: bytes = b"", *, codec: int = JSON, header_bytes: int | None = None) -> bytes:
    """A frame whose outer length is right."""
    word = codec << 24 | (len(header) if header_bytes is None else header_bytes)
    return struct.pack(">II", 4 + len(header) + len(body), word) + header + body


def asking(group: str = '"g"', *, more: str = "", code: str = "38", opaque: str = str(OPAQUE), flag: str = "0") -> str:
    """The header of a request for a group's members, of pieces of JSON."""
    return (
        f'{{"code":{code},"extFields":{{"consumerGroup":{group}}},"flag":{flag},"language":"JAVA","opaque":{opaque},'
        f'{more}"serializeTypeCurrentRPC":"JSON","version":407}}'
    )


def _json(name: str, text: str | bytes, opaque: int | None = OPAQUE) -> OddFrame:
    return OddFrame(name, framed(text if isinstance(text, bytes) else text.encode()), opaque)


def _sizes() -> Iterator[OddFrame]:
    for size_bytes in (65_000, 65_536, 66_000, 98_000, 200_000, 500_000, 1_000_000):
        yield _json(f"size: a value of {size_bytes} bytes", asking(f'"{"x" * size_bytes}"'))
    yield _json("size: a field nobody knows of 300,000 bytes", asking(more='"extra":"' + "y" * 300_000 + '",'))
    yield _json("size: a remark of 300,000 bytes", asking(more='"remark":"' + "y" * 300_000 + '",'))
    yield _json("size: blanks of 300,000 bytes", asking(more=" " * 300_000))
    yield _json("size: a value of 3 MiB", asking(f'"{"x" * (3 << 20)}"'))
    yield _json("size: a value of 15 MiB", asking(f'"{"x" * (15 << 20)}"'))
    for count in (200, 256, 257, 300, 1_000, 3_000, 20_000):
        fields = ",".join(f'"f{number}":"{number}"' for number in range(count))
        yield _json(f"size: {count} more fields", asking(f'"g",{fields}'))
    for name, properties in LEGAL_PROPERTIES.items():
        yield _json(f"size: a send with {name}", sending(properties))
    yield _json("size: a send with properties of 98,000 bytes", sending("k\x01" + "中" * 32_000 + "\x02"))
    text = "g" * 70_000
    yield OddFrame("size: a binary value of 70,000 bytes", framed(binary({"consumerGroup": text}), codec=BINARY))
    many = {f"f{number}": "" for number in range(400)} | {"consumerGroup": "g"}
    yield OddFrame("size: 400 binary fields", framed(binary(many), codec=BINARY))


def sending(properties: str, topic: str = "OddFrames") -> str:
    """The header of a send, with fastjson's escapes."""
    fields = {"a": "P", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
              "i": properties, "j": "0", "k": "false", "m": "false"}  # fmt: skip
    escaped = json.dumps(fields, ensure_ascii=True)
    return f'{{"code":310,"extFields":{escaped},"flag":0,"language":"JAVA","opaque":{OPAQUE},"version":407}}'


def _texts() -> Iterator[OddFrame]:
    header = asking('"g"').encode()

    def with_group(value: bytes) -> bytes:
        return header.replace(b'"g"', b'"' + value + b'"')

    for name, value in {
        "a lone continuation byte": b"a\x80b",
        "a lead byte without its rest": b"a\xc3b",
        "two bytes of three": b"a\xe4\xb8b",
        "three bytes of four": b"a\xf0\x9f\x98b",
        "FF and FE": b"a\xff\xfeb",
        "an overlong slash": b"a\xc0\xafb",
        "an overlong NUL": b"a\xc0\x80b",
        "beyond U+10FFFF": b"a\xf4\x90\x80\x80b",
        "a five byte sequence": b"a\xf8\x88\x80\x80\x80b",
        "a surrogate in three bytes": b"a\xed\xa0\x80b",
        "a pair of surrogates in six bytes": b"a\xed\xa0\xbd\xed\xb8\x80b",
        "a lead byte at the end": b"ab\xe4",
        "Latin-1": "Grüße".encode("latin-1"),
        "GBK": "消息".encode("gbk"),
        "an emoji": "😀".encode(),
        "a byte order mark": b"\xef\xbb\xbfg",
    }.items():
        yield _json(f"UTF-8: {name}", with_group(value))
    for name, value in {
        "a lone high surrogate": b"a\\ud800b",
        "a lone low surrogate": b"a\\udc00b",
        "a reversed pair": b"\\ude00\\ud83d",
        "two high ones": b"\\ud83d\\ud83d\\ude00",
        "a pair": b"\\ud83d\\ude00",
        "a high one at the end": b"ab\\udbff",
    }.items():
        yield _json(f"surrogates: {name}", with_group(value))
    for name, value in {
        "NUL": b"a\0b",
        "SOH": b"a\x01b",
        "tab": b"a\tb",
        "newline": b"a\nb",
        "carriage return": b"a\rb",
        "escape": b"a\x1bb",
        "SUB": b"a\x1ab",
        "DEL": b"a\x7fb",
        "U+0085": "a\x85b".encode(),
        "U+2028": "a\u2028b".encode(),
    }.items():
        yield _json(f"raw characters: {name}", with_group(value))
    for name, value in {
        "\\x41": b"a\\x41b",
        "\\x4": b"a\\x4gb",
        "\\v": b"a\\vb",
        "\\0": b"a\\0b",
        "\\7": b"a\\7b",
        "\\8": b"a\\8b",
        "\\'": b"a\\'b",
        "\\/": b"a\\/b",
        "\\F": b"a\\Fb",
        "\\a": b"a\\ab",
        "\\q": b"a\\qb",
        "\\u12": b"a\\u12",
        "\\uZZZZ": b"a\\uZZZZb",
        "\\u0000": b"a\\u0000b",
        "a newline behind a backslash": b"a\\\nb",
    }.items():
        yield _json(f"escapes: {name}", with_group(value))


def _lenient() -> Iterator[OddFrame]:
    plain = asking()
    for name, text in {
        "single quotes": plain.replace('"', "'"),
        "names without quotes": plain.replace('"code"', "code").replace('"opaque"', "opaque"),
        "a value without quotes": plain.replace('"g"', "g"),
        "a block comment before": "/* hello */" + plain,
        "a block comment inside": plain.replace("38", "/* who? */ 38"),
        "a block comment behind a name": plain.replace('"code"', '"code" /* x */'),
        "a line comment": plain.replace('"flag"', '// flags follow\n"flag"'),
        "a line comment at the end": plain + " // bye",
        "a block comment at the end": plain + "/* bye */",
        "a comment without an end": plain.replace("38", "/* 38"),
        "a byte order mark": "\ufeff" + plain,
        "blanks before and behind": " \r\n\t" + plain + "\n  ",
        "form feed and backspace as blanks": plain.replace(",", ",\f\b"),
        "a no-break space as blank": plain.replace(",", ",\u00a0"),
        "a trailing comma": plain[:-1] + ",}",
        "three trailing commas": plain[:-1] + ",,,}",
        "a leading comma": "{," + plain[1:],
        "two commas": plain.replace(",", ",,"),
        "no comma": plain.replace('38,"', '38 "'),
        "a trailing comma in the fields": plain.replace('"g"', '"g",'),
        "a semicolon for a comma": plain.replace('38,"', '38;"'),
        "an equals sign for a colon": plain.replace('"code":', '"code"='),
        "no colon": plain.replace('"code":', '"code" '),
        "something behind": plain + " x",
        "an object behind": plain + "{}",
        "a brace behind": plain + "}",
        "NUL behind": plain + "\0",
        "SUB behind": plain + "\x1a",
        "cut off": plain[:-1],
        "cut off in a string": plain[:-5],
        "no end of the fields": plain.replace('"g"}', '"g"'),
        "a name that is a number": plain[:-1] + ",1:2}",
        "a name that is null": plain[:-1] + ",null:2}",
        "a name that is an object": plain[:-1] + ",{}:2}",
        "an empty name": plain[:-1] + ',"":2}',
        "an array around": "[" + plain + "]",
        "text around": json.dumps(plain),
        "a number": "38",
        "null": "null",
        "true": "true",
        "nothing": "",
        "blanks only": "   ",
        "an empty object": "{}",
        "an empty array": "[]",
        "a lone brace": "{",
        "no JSON at all": "code=38&opaque=4711",
        "XML": "<request><code>38</code></request>",
        "a type name": '{"@type":"java.lang.Object",' + plain[1:],
        "the type's own name": '{"@type":"org.apache.rocketmq.remoting.protocol.RemotingCommand",' + plain[1:],
        "a reference": plain[:-1] + ',"remark":{"$ref":"$"}}',
        "an unknown object": plain[:-1] + ',"z":{"a":[1,{"b":null}]}}',
        "an unknown array": plain[:-1] + ',"z":[1,2,[3]]}',
        "an unknown word": plain[:-1] + ',"z":nonsense}',
        "undefined": plain[:-1] + ',"z":undefined}',
        "NaN": plain[:-1] + ',"z":NaN}',
        "Infinity": plain[:-1] + ',"z":Infinity}',
        "a date": plain[:-1] + ',"z":new Date(1)}',
        "a set": plain[:-1] + ',"z":Set[1,2]}',
        "hex bytes": plain[:-1] + ",\"z\":x'41'}",
        "100 levels": plain[:-1] + ',"z":' + "[" * 100 + "]" * 100 + "}",
        "100 objects deep": plain[:-1] + ',"z":' + '{"a":' * 100 + "1" + "}" * 101,
        "50,000 levels": plain[:-1] + ',"z":' + "[" * 50_000 + "]" * 50_000 + "}",
        "keys twice": plain[:-1] + ',"code":38,"opaque":4711}',
        "another code behind": plain.replace('"code":38', '"code":99').replace("407}", '407,"code":38}'),
        "fields twice": plain[:-1] + ',"extFields":{"consumerGroup":"h"}}',
        "a field twice": plain.replace('"g"', '"g","consumerGroup":"h"'),
        "upper case names": plain.replace('"code"', '"CODE"').replace('"opaque"', '"OPAQUE"'),
        "names with an underscore": plain.replace('"code"', '"_code"').replace('"opaque"', '"o_paque"'),
        "names with a hyphen": plain.replace('"extFields"', '"ext-fields"'),
        "snake case": plain.replace('"extFields"', '"ext_fields"'),
        "an escaped name": plain.replace('"code"', '"\\u0063ode"'),
        "the body in the header": plain[:-1] + ',"body":"AAAA"}',
    }.items():
        opaque = OPAQUE if re.search("""(?i)o_?paque["']?:""", text) else None
        yield _json(f"lenient: {name}", text, opaque)


_NUMBERS: Final = {
    "text": '"{}"', "text with a plus": '"+{}"', "text with blanks": '" {} "', "a plus": "+{}", "zeros before": "00{}",
    "a fraction": "{}.0", "a half": "{}.5", "text with a fraction": '"{}.0"', "an exponent": "{}e0", "a capital L": "{}L",
    "a small s": "{}s", "a small d": "{}d", "text with thousands": '"{},"', "hex": "0x10", "empty text": '""',
    "text null": '"null"', "words": '"many"',
    "null": "null", "true": "true", "false": "false", "an array": "[{}]", "an object": '{{"a":{}}}', "NaN": "NaN",
    "2^31": "2147483648", "2^40": "1099511627776", "2^70": "1180591620717411303424", "text of 2^70": '"1180591620717411303424"',
    "1e999": "1e999", "an exponent of 20 digits": "1e99999999999999999999",
    "5,000 digits": "9" * 5_000, "minus": "-{}", "two minus": "--{}", "a word": "abc",
}  # fmt: skip


def _numbers() -> Iterator[OddFrame]:
    for name, form in _NUMBERS.items():
        yield _json(f"code: {name}", asking(code=form.replace("{}", "38").replace("{{", "{").replace("}}", "}")))
    for name, form in _NUMBERS.items():
        text = form.replace("{}", str(OPAQUE)).replace("{{", "{").replace("}}", "}")
        yield _json(f"opaque: {name}", asking(opaque=text), None)
    for name in ("text", "null", "true", "a fraction", "2^40", "words", "an array"):
        text = _NUMBERS[name].replace("{}", "0").replace("{{", "{").replace("}}", "}")
        yield _json(f"flag: {name}", asking(flag=text))
    for name in ("text", "null", "true", "a fraction", "2^40", "words", "minus", "an array"):
        text = _NUMBERS[name].replace("{}", "407").replace("{{", "{").replace("}}", "}")
        yield _json(f"version: {name}", asking().replace("407", text))
    yield _json("code: missing", asking().replace('"code":38,', ""))
    yield _json("opaque: missing", asking().replace(f'"opaque":{OPAQUE},', ""), None)
    yield _json("flag: missing", asking().replace('"flag":0,', ""))
    yield _json("version: missing", asking().replace(',"version":407', ""))
    yield _json("fields: missing", asking().replace('"extFields":{"consumerGroup":"g"},', ""))
    for flag in (4, 8, 1024, -2147483648, 2147483644):
        yield _json(f"flag: {flag}", asking(flag=str(flag)))
    for flag in (1, 3, -1):
        yield _json(f"flag: an answer, {flag}", asking(flag=str(flag)), None)
    yield _json("flag: one-way", asking(flag="2"), None)
    yield _json("flag: one-way of an unknown code", asking(flag="2", code="9999"), None)
    yield _json("flag: one-way without its fields", '{"code":38,"flag":2,"opaque":4711}', None)
    for code in (0, -1, 9_999, 32_768, 200_050, 2**31 - 1, -(2**31)):
        yield _json(f"code: {code}", asking(code=str(code)))
    for opaque in (-1, -(2**31), 2**31 - 1, 0):
        yield _json(f"opaque: {opaque}", asking(opaque=str(opaque)), opaque)


def _members() -> Iterator[OddFrame]:
    plain = asking()
    for name, value in {
        "an unknown name": '"KLINGON"', "a small name": '"java"', "an ordinal": "9", "an ordinal that is none": "99",
        "an ordinal as text": '"9"', "a negative ordinal": "-1", "null": "null", "true": "true", "a fraction": "1.5",
        "empty": '""', "an array": "[]", "an object": "{}",
    }.items():  # fmt: skip
        yield _json(f"language: {name}", plain.replace('"JAVA"', value))
    for name, value in {
        "unknown": '"XML"', "ROCKETMQ": '"ROCKETMQ"', "null": "null", "an ordinal": "1", "an ordinal that is none": "7",
        "an object": "{}",
    }.items():  # fmt: skip
        yield _json(f"serializeType: {name}", plain.replace('RPC":"JSON"', f'RPC":{value}'))
    for name, value in {
        "null": "null", "an array": "[]", "an array with something": '["a"]', "text": '"x"', "empty text": '""',
        "a number": "5", "true": "true", "empty": "{}", "text of an object": '"{\\"consumerGroup\\":\\"g\\"}"',
    }.items():  # fmt: skip
        yield _json(f"fields: {name}", plain.replace('{"consumerGroup":"g"}', value))
    for name, value in {
        "a number": "5", "a long": "9223372036854775807", "2^70": "1180591620717411303424", "a fraction": "1.50", "1e5": "1e5",
        "1e999": "1e999", "true": "true", "null": "null", "an object": '{"b":1, "a":[1,null]}', "an array": '[1, "x"]',
        "an empty object": "{}", "empty": '""', "minus nought": "-0", "28 with a plus": "+28", "300 digits": "7" * 300,
        "12L": "12L", "1.0": "1.0", "NaN": "NaN", "undefined": "undefined",
    }.items():  # fmt: skip
        yield _json(f"value: {name}", asking(value))
    for name, value in {
        "a number": "7",
        "null": "null",
        "an object": '{"a":1}',
        "an array": "[1]",
        "true": "true",
    }.items():
        yield _json(f"remark: {name}", asking(more=f'"remark":{value},'))
    yield _json("fields: a name that is a number", plain.replace('"g"', '"g",5:"x"'))
    yield _json("fields: an empty name", plain.replace('"g"', '"g","":"x"'))
    yield _json("fields: null as name", plain.replace('"g"', '"g",null:"x"'))
    for code, fields in {
        30: '{"topic":"TBW102","queueId":"0"}', 310: "{}", 11: '{"topic":"TBW102"}', 15: '{"commitOffset":"x"}', 36: "{}",
    }.items():  # fmt: skip
        header = f'{{"code":{code},"extFields":{fields},"flag":0,"opaque":{OPAQUE},"version":407}}'
        yield _json(f"known codes: {code} with {fields}", header)
    for value in ('"x"', "0", '" 0"', '"0.0"', '"2147483648"', '""', "null", "-1", '"+0"'):
        header = f'{{"code":30,"extFields":{{"topic":"TBW102","queueId":{value}}},"flag":0,"opaque":{OPAQUE}}}'
        yield _json(f"known codes: a queue id of {value}", header)
    for code in (34, 36, 41, 17, 200, 310, 320, 11, 12, 33, 35, 37):
        header = f'{{"code":{code},"flag":0,"opaque":{OPAQUE},"version":407}}'
        yield _json(f"known codes: {code} with nothing at all", header)


def binary(
    fields: dict[str, str] | None = None, *, code: int = 38, language: int = 0, version: int = 407, flag: int = 0,
    remark: bytes | None = None, remark_bytes: int | None = None, ext: bytes | None = None, ext_bytes: int | None = None,
) -> bytes:  # fmt: skip
    """A header of the binary codec whose lengths may lie."""
    remark = remark or b""
    if ext is None:
        given = {"consumerGroup": "g"} if fields is None else fields
        ext = b"".join(field(key.encode(), value.encode()) for key, value in given.items())
    start = struct.pack(">hBhii", code, language, version, OPAQUE, flag)
    said_remark = len(remark) if remark_bytes is None else remark_bytes
    said_ext = len(ext) if ext_bytes is None else ext_bytes
    return start + struct.pack(">i", said_remark) + remark + struct.pack(">i", said_ext) + ext


def field(key: bytes, value: bytes, *, key_bytes: int | None = None, value_bytes: int | None = None) -> bytes:
    """One of the fields, with lengths that may lie."""
    said_key = len(key) if key_bytes is None else key_bytes
    said_value = len(value) if value_bytes is None else value_bytes
    return struct.pack(">h", said_key) + key + struct.pack(">i", said_value) + value


def _binary() -> Iterator[OddFrame]:
    good = field(b"consumerGroup", b"g")
    for name, header in {
        "as it should be": binary(),
        "no fields": binary({}),
        "a remark": binary(remark=b"hello"),
        "a remark of -1": binary(remark_bytes=-1),
        "a remark of the least": binary(remark_bytes=-(2**31)),
        "a remark that is too long": binary(remark_bytes=5_000),
        "a remark of 2 GB": binary(remark_bytes=2**31 - 1),
        "a remark that is no UTF-8": binary(remark=b"\xff\xfe"),
        "fields of -1": binary(ext_bytes=-1),
        "fields of the least": binary(ext_bytes=-(2**31)),
        "fields that are too long": binary(ext_bytes=5_000),
        "fields of 2 GB": binary(ext_bytes=2**31 - 1),
        "fields that are too short": binary(ext_bytes=3),
        "fields of nought that are there": binary(ext_bytes=0),
        "something behind the fields": binary() + b"xyz",
        "a key of -1": binary(ext=field(b"", b"g", key_bytes=-1)),
        "a key of -32768": binary(ext=field(b"", b"g", key_bytes=-32_768)),
        "a key of nought": binary(ext=good + field(b"", b"g")),
        "a key that is too long": binary(ext=field(b"consumerGroup", b"g", key_bytes=99)),
        "a key of 32767": binary(ext=field(b"consumerGroup", b"g", key_bytes=32_767)),
        "a value of -1": binary(ext=field(b"consumerGroup", b"", value_bytes=-1)),
        "a value of -1 behind a good one": binary(ext=good + field(b"x", b"", value_bytes=-1)),
        "a value of the least": binary(ext=field(b"consumerGroup", b"", value_bytes=-(2**31))),
        "a value that is too long": binary(ext=field(b"consumerGroup", b"g", value_bytes=99)),
        "a value of 2 GB": binary(ext=field(b"consumerGroup", b"g", value_bytes=2**31 - 1)),
        "an empty value": binary({"consumerGroup": ""}),
        "an empty value of another": binary({"consumerGroup": "g", "x": ""}),
        "a value that is no UTF-8": binary(ext=field(b"consumerGroup", b"a\xff\xfeb")),
        "a key that is no UTF-8": binary(ext=good + field(b"\xff", b"1")),
        "a key twice": binary(ext=good + field(b"consumerGroup", b"h")),
        "half a field": binary(ext=good + b"\0\x01"),
        "half a value length": binary(ext=good + b"\0\x01x\0\0"),
        "language 99": binary(language=99),
        "language 255": binary(language=255),
        "version -1": binary(version=-1),
        "code -1": binary(code=-1),
        "code 32767": binary(code=32_767),
        "flag 64": binary(flag=64),
        "cut off in the remark's length": binary()[:15],
        "cut off in the fields' length": binary()[:19],
        "cut off in the opaque": binary()[:7],
        "cut off in the flag": binary()[:11],
        "no header": b"",
        "one byte": b"\0",
        "JSON": asking().encode(),
    }.items():
        knows = len(header) >= 9 and header[:1] != b"{"
        yield OddFrame(f"binary: {name}", framed(header, codec=BINARY), OPAQUE if knows else None)
    yield OddFrame("binary: one-way with a bad length", framed(binary(flag=2, ext_bytes=-5), codec=BINARY), None)
    yield OddFrame("binary: an answer with a bad length", framed(binary(flag=1, ext_bytes=9_999), codec=BINARY), None)


def _frames() -> Iterator[OddFrame]:
    header = asking().encode()
    for codec in (2, 3, 7, 127, 255):
        yield OddFrame(f"codec: {codec}", framed(header, codec=codec))
    yield OddFrame("codec: binary bytes as JSON", framed(binary(), codec=JSON), None)
    yield OddFrame("lengths: the header is longer than its frame", framed(header, header_bytes=len(header) + 1))
    yield OddFrame("lengths: a header of 16 MiB in a short frame", framed(header, header_bytes=0xFFFFFF))
    yield OddFrame("lengths: a header of nought", framed(header, header_bytes=0), None)
    yield OddFrame("lengths: a header that is too short", framed(header, header_bytes=len(header) - 3))
    yield OddFrame("lengths: nothing but a header word", struct.pack(">II", 4, 0), None)
    yield OddFrame("lengths: an empty frame", struct.pack(">I", 0), None)
    yield OddFrame("lengths: a frame of three bytes", struct.pack(">I", 3) + b"abc", None)
    yield OddFrame("lengths: a negative frame", struct.pack(">i", -1) + framed(header)[4:])
    yield OddFrame("lengths: a frame of 16 MiB and a byte", struct.pack(">i", (16 << 20) + 1) + framed(header)[4:])
    yield OddFrame("lengths: a frame of 2 GB", struct.pack(">i", 2**31 - 1) + framed(header)[4:])
    yield OddFrame("body: one that is not asked for", framed(header, b"x" * 100_000))
    heart = f'{{"code":34,"flag":0,"opaque":{OPAQUE},"version":407}}'.encode()
    for name, body in {
        "empty": b"",
        "no JSON": b"{",
        "an array": b"[]",
        "null": b"null",
        "no UTF-8": b"\xff\xfe\xff",
    }.items():
        yield OddFrame(f"body: a heartbeat that is {name}", framed(heart, body))


def odd_frames() -> list[OddFrame]:
    """All of them."""
    return [
        *_sizes(), *_texts(), *_lenient(), *_numbers(), *_members(), *_binary(), *_frames(),
    ]  # fmt: skip


REAL: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("odd_frames_real.json").read_text("utf-8"))
GOOD_OPAQUE: Final = 777_777
GOOD: Final = framed(asking(opaque=str(GOOD_OPAQUE)).encode())


@attrs.frozen
class Answered:
    """An answer, of either codec."""

    code: int
    opaque: int
    flag: int
    remark: str


@attrs.frozen
class Outcome:
    """What became of a frame and of its connection."""

    answers: tuple[Answered, ...]
    """To the odd frame."""
    stays: bool
    """Whether the connection then answered a good request."""


def try_frame(host: str, port: int, data: bytes, *, quiet_s: float = 0.0, limit_s: float = 20.0) -> Outcome:
    """Sends bytes on a connection of their own, then a good request.

    Args:
        quiet_s: how long to wait for an answer before the good request, for a server that answers in any order.
        limit_s: for the answer to the good one.
    """
    answers: list[Answered] = []
    with socket.create_connection((host, port)) as peer:
        pending = bytearray()
        try:
            with contextlib.suppress(ConnectionError):  # what the server said before it closed can still be read
                peer.sendall(data)
            if quiet_s:
                peer.settimeout(quiet_s)
                with contextlib.suppress(TimeoutError):
                    answers.append(_next_answer(peer, pending))
            peer.settimeout(limit_s)
            with contextlib.suppress(ConnectionError):
                peer.sendall(GOOD)
            while True:
                answer = _next_answer(peer, pending)
                if answer.opaque == GOOD_OPAQUE:
                    return Outcome(tuple(answers), stays=True)
                answers.append(answer)
        except (EOFError, ConnectionError):
            return Outcome(tuple(answers), stays=False)


def _next_answer(peer: socket.socket, pending: bytearray) -> Answered:
    while len(pending) < 4 or len(pending) < 4 + int.from_bytes(pending[:4], "big"):
        data = peer.recv(1 << 20)
        if not data:
            raise EOFError
        pending += data
    end = 4 + int.from_bytes(pending[:4], "big")
    frame = bytes(pending[4:end])
    del pending[:end]
    (word,) = struct.unpack_from(">I", frame)
    header = frame[4 : 4 + (word & 0xFFFFFF)]
    if word >> 24 == JSON:
        members = json.loads(header)
        return Answered(members["code"], members["opaque"], members["flag"], members.get("remark") or "")
    code, _, _, opaque, flag, remark_bytes = struct.unpack_from(">hBhiii", header)
    return Answered(code, opaque, flag, header[17 : 17 + remark_bytes].decode())
