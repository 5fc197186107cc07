"""Real requests, bent at random places: the decoder and a running server take them, or refuse them as they should.

``FLINTMQ_FUZZ_FRAMES`` sets how many (20,000 without it); the seed is printed, and ``FLINTMQ_FUZZ_SEED`` repeats a run.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from bare_wire import Wire

import flintmq
from flintmq.core.errors import FrameError
from flintmq.remoting.codes import RequestCode
from flintmq.remoting.command import RemotingCommand, encode_command, request
from flintmq.remoting.request import Request, decode_request

FRAMES = int(os.environ.get("FLINTMQ_FUZZ_FRAMES", "20000"))
SPLICES = (
    b"",
    b"\0",
    b"\xff",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b":",
    b"-1",
    b"null",
    b"1e999",
    b"9" * 40,
    b"\\u0000",
    b"../",
)


def golden() -> list[bytes]:
    """Requests as clients and brokers sent them, without their length."""
    root = Path(os.environ.get("FLINTMQ_SHARED", str(Path(flintmq.__file__).parent.parent / "shared")))
    path = root / "golden" / "frames" / "frames.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with gzip.open(path) as lines:
        found = [json.loads(line) for line in lines]
    return [bytes.fromhex(entry["request_hex"])[4:] for entry in found if entry["who"] != "broker->client"]


def bent(chance: random.Random, frame: bytes) -> bytes:
    """A frame with one to four places changed, cut out, doubled or spliced in."""
    data = bytearray(frame)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = data[at : at + chance.randrange(1, 30)]
            case 3:
                data[at:at] = chance.choice(SPLICES)
            case 4:
                data[at : at + 4] = struct.pack(">i", chance.choice((-1, 0, 2**31 - 1, -(2**31), 65_536)))
            case _:
                at = chance.randrange(len(data) + 1)
                data[at : at + 1] = bytes([data[at] ^ 1 << chance.randrange(8)]) if at < len(data) else b"}"
    if chance.randrange(2) and len(data) > 4:
        # Most changes make the header's length wrong; half of them shall get further than that.
        body = data.rfind(b"}") + 1
        header = chance.choice((body, len(data))) - 4
        data[0:4] = struct.pack(">I", (frame[0] << 24) | max(0, min(header, 0xFFFFFF)))
    return bytes(data)


def seeded() -> random.Random:
    seed = int(os.environ.get("FLINTMQ_FUZZ_SEED", str(random.SystemRandom().randrange(2**32))))
    print("FLINTMQ_FUZZ_SEED", seed)
    return random.Random(seed)


def test_bent_requests_are_decoded_or_refused() -> None:
    """The decoder is the first to see a stranger's bytes: FrameError is the only way out besides a request."""
    chance, frames = seeded(), golden()
    decoded = 0
    channel: Any = object()
    for number in range(FRAMES):
        frame = bent(chance, chance.choice(frames))
        try:
            found = decode_request(channel, frame, keep_ext_fields=number % 2 == 0)
        except FrameError:
            continue
        assert isinstance(found, Request | RemotingCommand)
        decoded += 1
    assert decoded > FRAMES // 20


def test_bent_requests_to_running_servers(configure: Any, connect: Any, unexpected: list[str]) -> None:
    """What the decoder lets pass meets the processors: every connection is answered or closed, and others live on."""
    chance, frames = seeded(), golden()
    probe = encode_command(request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=-77))
    with flintmq.Broker(configure()) as broker, flintmq.NameServer(configure()) as namesrv:
        before = broker.config
        closed = answered = 0
        for number in range(max(100, FRAMES // 5)):
            wire = Wire((namesrv if number % 5 == 0 else broker).address)
            data = b""
            for _ in range(chance.randrange(1, 6)):
                frame = bent(chance, chance.choice(frames))
                if len(frame) >= 4:
                    data += struct.pack(">i", len(frame)) + frame
            try:
                wire.socket.sendall(data + probe)
                while wire.read().opaque != -77:
                    pass
                answered += 1
            except (EOFError, ConnectionError):
                closed += 1
            wire.close()
        assert answered
        assert closed
        assert broker.config != before or connect(broker).is_served()
