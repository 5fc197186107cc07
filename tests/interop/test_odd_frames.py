"""What the real broker does with odd frames is what ``tests/integration/odd_frames_real.json`` says: ours is judged by that."""

from __future__ import annotations

import pytest

from .conftest import Peer

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_a_java_broker_gives_the_expected_reaction_to_each_unusual_frame(peer: Peer) -> None:
    """Each on a connection of its own, then a good request: closed, silent, or an answer of this code, opaque and meaning."""
    from odd_frames import REAL, odd_frames, try_frame

    wrong = []
    with peer.name_server(), peer.broker(peer.work / "store"):
        for odd in odd_frames():
            expected = REAL[odd.name]
            outcome = try_frame("127.0.0.1", peer.port, odd.data, quiet_s=0.3 if expected == "silent" else 5.0)
            if isinstance(expected, str):
                found: object = "closed" if not outcome.stays else "silent" if not outcome.answers else outcome
            else:
                code, opaque, remark = expected
                found = [(one.code, one.opaque, one.remark[: len(remark)]) for one in outcome.answers]
                invented = [one.opaque for one in outcome.answers][:1]
                expected = [(code, *(invented if opaque is None else [opaque]), remark)]
            if found != expected:
                wrong.append((odd.name, expected, found))
    assert wrong == []
