"""What must not reach a processor does not, and a plugin's defect neither opens the gate nor closes it to others."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import ADMIN, Caller
from flintmq.core.kernel.ports.processor import Request, RequestDeclaration
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.server.request_gate import RequestGate
from flintmq.testing.clock import ManualClock
from flintmq.testing.processor_kit import RecordingChannel

REFUSAL = RefusedError(ResponseCode.NO_PERMISSION, "no", reason="test.no")


class Peer(RecordingChannel):
    """A connection that remembers whom it refused."""

    def __init__(self) -> None:
        super().__init__()
        self.remote_host = "127.0.0.1"
        self.refused: list[tuple[int, str]] = []

    def refuse(self, to: Request, error: RefusedError) -> None:
        self.refused.append((to.code, error.reason))


class Door:
    """An authenticator that does with each code what a test says."""

    def __init__(self, **does: Any) -> None:
        self.callers: list[Caller] = []
        self._does = does

    def authenticate(self, caller: Caller) -> Any:
        self.callers.append(caller)
        what = self._does.get(f"c{caller.code}")
        if isinstance(what, BaseException):
            raise what
        return what


def asked(peer: Peer, *codes: int) -> list[Request]:
    """Requests of one read."""
    return [Request(peer, code, 1, 0, 0, "JAVA", 0, {"a": "b"}, b"body") for code in codes]  # type: ignore[arg-type]


@pytest.fixture
def peer() -> Peer:
    """A connection."""
    return Peer()


def test_an_authenticator_gets_the_access_rule_of_the_request_code(peer: Peer) -> None:
    """A code that nobody declares has none, and the authenticator decides what that means."""
    door = Door()
    declared = {17: RequestDeclaration(17, needs=ADMIN)}
    gate = RequestGate(ManualClock(), declared, (door,), _unexpected)
    assert [request.code for request in gate.passing(asked(peer, 17, 18))] == [17, 18]
    assert [(caller.code, caller.rule, caller.body) for caller in door.callers] == [
        (17, ADMIN, b"body"),
        (18, None, b"body"),
    ]


@pytest.mark.parametrize("does", [ZeroDivisionError(), SystemExit(), True, "passed"], ids=str)
def test_a_failure_of_an_authenticator_refuses_only_the_request_that_it_checks(peer: Peer, does: Any) -> None:
    """The error is also reported to the counter of plugin failures."""
    failed: list[int] = []
    gate = RequestGate(
        ManualClock(), {}, (Door(c2=does),), lambda _authenticator, request, _error: failed.append(request.code)
    )
    assert [request.code for request in gate.passing(asked(peer, 1, 2, 3))] == [1, 3]
    assert (peer.refused, failed) == ([(2, "authenticator.failed")], [2])


def test_authenticators_are_called_in_order_until_one_of_them_refuses_the_request(peer: Peer) -> None:
    """All must let a request pass."""
    first, second = Door(c2=REFUSAL), Door(c1=REFUSAL)
    gate = RequestGate(ManualClock(), {}, (first, second), _unexpected)
    assert gate.passing(asked(peer, 1, 2)) == []
    assert peer.refused == [(1, "test.no"), (2, "test.no")]
    assert [caller.code for caller in second.callers] == [1]


def test_request_hooks_are_called_after_the_authenticators(peer: Peer) -> None:
    """They are not called with what nobody may send; what they raise refuses the request."""
    seen: list[int] = []
    failed: list[int] = []

    def hook(request: Request) -> None:
        seen.append(request.code)
        if request.code == 2:
            raise REFUSAL
        if request.code == 3:
            raise ZeroDivisionError

    gate = RequestGate(ManualClock(), {}, (Door(c1=REFUSAL),), _unexpected)
    gate.hook((hook,), lambda _hook, request, _error: failed.append(request.code))
    assert [request.code for request in gate.passing(asked(peer, 1, 2, 3, 4))] == [4]
    assert (seen, failed) == ([2, 3, 4], [3])


def test_request_checks_are_skipped_if_neither_authenticators_nor_request_hooks_are_registered() -> None:
    """Requests are then read and answered the short way."""
    gate = RequestGate(ManualClock(), {}, (), _unexpected)
    assert not gate.is_watched
    gate.hook((print,), _unexpected)
    assert gate.is_watched


def _unexpected(*arguments: object) -> None:
    raise AssertionError(arguments)
