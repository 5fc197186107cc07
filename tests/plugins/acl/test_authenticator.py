"""A recorded request must not be played again, nor a request with a date of its sender's choice be kept for later."""

from __future__ import annotations

import pytest

from flintmq.plugins.acl.authenticator import ReplayWindow
from flintmq.remoting.wire.header_codec import SIGNATURE, SIGNED_AT

NOW_MS = 1_700_000_000_000


def dated(at_ms: int, signature: str = "s") -> dict[str, str]:
    return {SIGNED_AT: f"{at_ms}-nonce", SIGNATURE: signature}


def test_a_repeated_request_with_the_same_signature_is_refused() -> None:
    """The second time it is known by its signature; another one of the same moment is not."""
    window = ReplayWindow(5_000)
    assert window.problem(dated(NOW_MS), NOW_MS) is None
    assert window.problem(dated(NOW_MS), NOW_MS + 1) == "the request was made before"
    assert window.problem(dated(NOW_MS, "other"), NOW_MS + 1) is None


@pytest.mark.parametrize("at_ms", [NOW_MS - 5_001, NOW_MS + 5_001])
def test_a_request_outside_the_replay_window_is_refused(at_ms: int) -> None:
    """One that is too old may have been forgotten; one of the future would be remembered for too short a time."""
    problem = ReplayWindow(5_000).problem(dated(at_ms), NOW_MS)
    assert problem == "the request's time differs from the server's by 5001 ms, more than 5000 ms"


@pytest.mark.parametrize("text", ["", "soon-nonce", "-1-nonce", "9" * 16])
def test_a_request_without_a_date_is_refused(text: str) -> None:
    """A client that dates nothing cannot be told from one whose request was recorded."""
    problem = ReplayWindow(5_000).problem({SIGNED_AT: text, SIGNATURE: "s"}, NOW_MS)
    assert problem == f"the request is not dated ({SIGNED_AT})"


def test_recorded_signatures_are_removed_after_the_replay_window_has_passed() -> None:
    """The window does not grow for ever, and forgets nothing that its date would let in."""
    window = ReplayWindow(5_000)
    assert window.problem(dated(NOW_MS + 5_000), NOW_MS) is None
    assert window.problem(dated(NOW_MS + 5_000), NOW_MS + 10_000) == "the request was made before"
    assert window.problem(dated(NOW_MS + 10_001, "new"), NOW_MS + 10_001) is None
    assert len(window._seen) == 1
