"""Whatever reads a stranger's bytes, alone: each takes them or raises the error it says it raises, and no other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final

import pytest
from faults import watched_log
from mutants import NUMBERS, TEXTS, Mutants
from seeds import BODIES, Seed, golden_frames, seed_of, seeds

from flintmq.config.errors import ConfigError
from flintmq.config.rocketmq.java_properties import parse_properties
from flintmq.core.errors import FlintError, FrameError, JsonSyntaxError, RefusedError
from flintmq.core.io import fastjson
from flintmq.core.record.batch import BatchError, BatchItem, decode_batch, encode_batch
from flintmq.core.record.host import decode_message_id
from flintmq.core.record.properties import string_to_properties
from flintmq.core.record.record import RecordError, decode_records, encode_record, record_size
from flintmq.plugins.acl.account import parse_addresses, parse_permissions
from flintmq.plugins.filters.plugin import tag_filter
from flintmq.plugins.filters.sql92 import sql92_filter
from flintmq.remoting.client.compression import CompressionError, compress, decompress
from flintmq.remoting.client.message import decode_messages
from flintmq.remoting.server.request import decode_request
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.command import decode_command
from flintmq.remoting.wire.frame import FrameDecoder
from flintmq.remoting.wire.header_codec import decode_header
from flintmq.remoting.wire.headers_route import decode_register_broker_body
from flintmq.remoting.wire.json_body import Body
from flintmq.testing.store import message
from flintmq.tests.support.request_headers import REQUEST_HEADERS, RESPONSE_HEADERS

SLOW_S: Final = 0.050
RETRIES: Final = 5

Decoder = tuple[str, Callable[[Any], object], tuple[type[Exception], ...], Sequence[Any]]
"""Name, function, the errors it may raise, and what is bent."""


def records() -> list[bytes]:
    found = []
    for number in range(4):
        inner = message("T", number, b"x" * number * 50, keys="a b", tags="A")
        found.append(b"".join(encode_record(inner, record_size(inner), number, number * 200, 1_700_000_000_000)))
    return [*found, b"".join(found)]


def packed_records() -> list[bytes]:
    """Of compressed bodies, and of one that says so and is not."""
    made = []
    for body, sys_flag in ((compress(b"hello" * 50)[0], 0x301), (b"hello", 0x1), (b"hello", 0x101), (b"hello", 0x201)):
        inner = message("T", 0, body, keys="a b", tags="A")
        inner.sys_flag = sys_flag
        made.append(b"".join(encode_record(inner, record_size(inner), 0, 0, 1_700_000_000_000)))
    return [*made, b"".join(made)]


def other_methods() -> list[Decoder]:
    """Ways to compress that need packages, where these are installed."""
    found: list[Decoder] = []
    body = b"hello " * 400 + bytes(range(256))
    if find_spec("lz4") is not None:
        packed = import_module("lz4.frame").compress(body)
        found.append(("lz4", lambda data: decompress(data, 0x101), (CompressionError,), [packed]))
    if find_spec("zstandard") is not None:
        packed = import_module("zstandard").ZstdCompressor().compress(body)
        found.append(("zstandard", lambda data: decompress(data, 0x201), (CompressionError,), [packed]))
    return found


def bodies_by_model() -> list[Decoder]:
    models = [model for model in vars(bodies).values() if isinstance(model, type) and issubclass(model, Body)]
    given = [body for body in BODIES.values() if body[:1] in (b"{", b"[")]
    for entry in golden_frames():
        body = seed_of(bytes.fromhex(entry["response_hex"])[4:]).body if entry["response_hex"] else b""
        if body[:1] == b"{" and len(body) < 4_096:
            given.append(body)
    return [(model.__name__, model.decode, (JsonSyntaxError,), given) for model in models if model is not Body]


def decoders() -> list[Decoder]:
    zipped = [compress(b"hello " * 400)[0], compress(b"")[0]]
    registrations = [seed.body for seed in seeds() if b"bodyCrc32" in seed.header and seed.body]
    expressions = [text.encode() for text in TEXTS if len(text) < 3_000] + [
        b"a > 1 AND b IN ('x','y') OR NOT (c BETWEEN 1 AND 9) AND d IS NOT NULL AND e <> 1.5e3 -- remark",
        b"TAGS = 'A' /* remark */ OR x = TRUE",
    ]
    texts = [text.encode() for text in (*TEXTS, *NUMBERS)]
    return [
        *bodies_by_model(),
        ("fastjson", fastjson.loads, (JsonSyntaxError,), [body for body in BODIES.values() if body]),
        ("registration", partial(_registration, False), (JsonSyntaxError, RefusedError), registrations),
        ("registration, compressed", partial(_registration, True), (JsonSyntaxError, RefusedError), registrations),
        ("batch", decode_batch, (BatchError,), [encode_batch([BatchItem(0, b"abc", b"K\x01v")] * 3)]),
        ("records", decode_records, (RecordError,), records()),
        ("messages", _messages, (), [*records(), *packed_records()]),
        ("zlib", lambda data: decompress(data, 0x301), (CompressionError,), zipped),
        *other_methods(),
        ("properties", _text(string_to_properties), (), texts),
        ("java properties", _text(parse_properties), (ConfigError,), [b"a=b\nc : d\\\n e\n# x\n\\u0041=1\n", *texts]),
        ("sql92", _text(_sql92), (RefusedError,), expressions),
        ("tags", _text(lambda text: tag_filter(text, frozenset())), (RefusedError,), expressions),
        ("addresses", _text(parse_addresses), (ConfigError,), [b"10.0.0.*,1.2.3.4-9", b"2001:db8::{1,a-f}:*", b"10.0.{1,2}.3"]),
        ("permissions", _text(_permissions), (ConfigError,), [b"T=PUB|SUB,U=DENY", b"a=ANY"]),
        ("message id", _text(decode_message_id), (ValueError,), [b"7F00000100002A9F0000000000000000", b"0" * 56]),
    ]  # fmt: skip


def _messages(data: bytes) -> object:
    """Decode messages, and look at all of each."""
    return [
        (one.properties, one.msg_id, one.keys, one.tags, one.born_host, one.store_host, one.queue, one.body_error)
        for one in decode_messages(data)
    ]


def _text(function: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: function(data.decode("utf-8", "replace"))


def _sql92(text: str) -> object:
    return sql92_filter(text, frozenset()).matches_properties({"a": "1", "TAGS": "A"})


def _permissions(text: str) -> object:
    return parse_permissions(text.split(","))


def _registration(compressed: bool, data: bytes) -> object:
    return decode_register_broker_body(data, compressed=compressed, version=407)


def timed(function: Callable[[Any], object], data: Any, allowed: tuple[type[Exception], ...]) -> tuple[bool, float]:
    """Whether the bytes were taken, and how long that took on the processor."""
    begin_s = time.thread_time()
    try:
        function(data)
    except allowed:
        return False, time.thread_time() - begin_s
    return True, time.thread_time() - begin_s


def judge(name: str, function: Callable[[Any], object], data: Any, allowed: tuple[type[Exception], ...]) -> bool:
    """Raises what the function should not have raised; asserts that it was quick, the machine's own hiccups apart."""
    try:
        taken, seconds = timed(function, data, allowed)
    except Exception as error:
        raise AssertionError(f"{name} raised {type(error).__name__}: {error} for {data[:2000]!r}") from error
    if seconds > SLOW_S:
        seconds = min(timed(function, data, allowed)[1] for _ in range(RETRIES))
        assert seconds < SLOW_S, f"{name} took {seconds * 1000:.0f} ms for {data[:2000]!r}"
    return taken


@pytest.mark.timeout(300)
def test_every_decoder_accepts_mutated_bytes_or_raises_only_the_expected_kind_of_error(
    fuzz_frames: int, fuzz_seed: int
) -> None:
    """Bodies, batches, records, properties, expressions, addresses: each a two-hundredth as often as frames."""
    mutants = Mutants(fuzz_seed, [])
    found = decoders()
    with watched_log():
        for name, function, allowed, given in found:
            assert any(judge(name, function, data, allowed) for data in given), f"{name} takes none of its seeds"
            for number in range(max(100, fuzz_frames // 200)):
                data = mutants.bend(given[number % len(given)])
                judge(name, function, data, allowed)


@pytest.mark.timeout(300)
def test_every_header_decoder_accepts_mutated_bytes_or_raises_only_the_expected_kind_of_error(
    fuzz_frames: int, fuzz_seed: int
) -> None:
    """Both ways to decode a request, answers, and every typed header of requests and answers, from fields of any kind."""
    answers = [bytes.fromhex(entry["response_hex"])[4:] for entry in golden_frames() if entry["response_hex"]]
    mutants = Mutants(fuzz_seed, [*seeds(), *(seed_of(frame) for frame in answers if len(frame) < 4_096)])
    models = [*{*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}]
    ways = [partial(decode_request, object(), keep_ext_fields=keep) for keep in (False, True)]
    outcomes: Counter[str] = Counter()
    for number in range(max(1_000, fuzz_frames // 4)):
        frame = mutants.frame()[4:]
        judge("decode_request, typed", ways[0], frame, (FrameError,))
        if judge("decode_request", ways[1], frame, (FrameError,)):
            outcomes["requests"] += 1
            fields = decode_command(frame).ext_fields or {}
            model = models[number % len(models)]
            outcomes["headers"] += judge(model.__name__, partial(decode_header, model), fields, (RefusedError,))
    assert outcomes["requests"] > fuzz_frames // 20
    assert outcomes["headers"], outcomes


def test_byte_streams_split_at_random_places_decode_to_the_same_frames(fuzz_frames: int, fuzz_seed: int) -> None:
    """However a stream is cut into reads, the same frames come out, and the same fault at the same place."""
    mutants = Mutants(fuzz_seed, seeds())
    chance = mutants.chance
    for _ in range(max(50, fuzz_frames // 400)):
        stream = b"".join(mutants.frame() for _ in range(chance.randrange(1, 6)))
        whole = cut(stream, [*range(len(stream))])
        for _ in range(5):
            places = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.randrange(1, 8)))
            found, faulty = cut(stream, places)
            assert faulty == whole[1]
            assert found == whole[0][: len(found)]
            assert faulty or len(found) == len(whole[0]), "frames of the read in which the fault is are lost, no others"


def cut(stream: bytes, places: list[int]) -> tuple[list[bytes], bool]:
    """The frames of a stream that is read in pieces, and whether it ended in a fault."""
    decoder = FrameDecoder(100_000)
    found: list[bytes] = []
    edges = [0, *places, len(stream)]
    for start, end in pairwise(edges):
        try:
            found += decoder.feed(stream[start:end])
        except FrameError:
            return found, True
    return found, False


def test_the_fuzz_check_reports_unexpected_errors_and_slow_decoders() -> None:
    """The judge itself: a decoder that raises something else, and one that takes long, are found out."""

    def slow(data: bytes) -> None:
        until_s = time.thread_time() + 2 * SLOW_S
        while time.thread_time() < until_s:
            pass

    with pytest.raises(AssertionError, match="wrong raised KeyError"):
        judge("wrong", lambda data: {}[data], b"x", (FlintError,))
    with pytest.raises(AssertionError, match="slow took"):
        judge("slow", slow, b"x", ())


def test_equal_seeds_give_equal_mutated_requests() -> None:
    """Otherwise a fault that was found could not be found again."""
    found: list[Seed] = seeds()
    first, second, other = Mutants(1, found), Mutants(1, found), Mutants(2, found)
    frames = [first.frame() for _ in range(200)]
    assert frames == [second.frame() for _ in range(200)]
    assert frames != [other.frame() for _ in range(200)]
