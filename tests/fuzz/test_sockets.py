"""Bent requests over real connections: every one is answered or closed, and others live on."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import pytest
from faults import watched_log
from mutants import Mutants
from seeds import seeds

import flintmq
from flintmq.config import load_config
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import decode_command, encode_command, request
from flintmq.remoting.wire.frame import FrameDecoder

PROBE = -77
TIMEOUT_S = 20.0


def outcome(address: str, data: bytes) -> str:
    """What becomes of a connection that sends this and a harmless request after it."""
    host, _, port = address.rpartition(":")
    probe = encode_command(request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=PROBE))
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as wire:
        try:
            wire.sendall(data + probe)
            wire.shutdown(socket.SHUT_WR)
            while read := wire.recv(1 << 16):
                if any(decode_command(frame).opaque == PROBE for frame in decoder.feed(read)):
                    return "answered"
        except ConnectionError:
            pass
    return "closed"


@pytest.mark.timeout(300)
def test_a_server_that_received_mutated_requests_still_answers_valid_requests(
    fuzz_frames: int, fuzz_seed: int, tmp_path: Path
) -> None:
    """A broker and a name server in threads of their own, reading what really comes in one read."""
    mutants = Mutants(fuzz_seed, seeds())
    config = load_config(
        None,
        ["listen.port=0", "listen.vip=false", "nameserver.port=0", "store.commit_log_file_bytes=16MiB",
         "store.consume_queue_file_bytes=20000", f"store.path={tmp_path / 'store'}"],
        {},
    )  # fmt: skip
    outcomes: Counter[str] = Counter()
    with watched_log(), flintmq.Broker(config) as broker, flintmq.NameServer(config) as names:
        for number in range(max(50, fuzz_frames // 200)):
            data = b"".join(mutants.frame() for _ in range(mutants.chance.randrange(1, 6)))
            outcomes[outcome((names if number % 5 == 0 else broker).address, data)] += 1
        for server in (broker, names):
            assert outcome(server.address, b"") == "answered"
    assert outcomes["answered"] > 5
    assert outcomes["closed"] > 5
