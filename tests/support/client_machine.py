"""A state machine whose rules begin calls of a client, let the loop run a little, cancel calls, and break the network.

A machine of one client class adds rules that begin its public calls, and invariants. In the end the network heals, and every
call must have ended. After the client is closed nothing of it may be left: no task, no connection, no error that nobody saw.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, ClassVar

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flintmq.core.errors import FlintError
from flintmq.testing.choices import Choices
from flintmq.tests.support.fake_cluster import FakeCluster

CALL_S_MAX = 60.0
"""Every call ends in this time once the network is healed: the longest timeout is shorter."""
EXPECTED = (FlintError, TimeoutError, asyncio.CancelledError)
"""What calls may raise while servers and network fail."""


@attrs.define
class Call:
    """A call that was begun."""

    name: str
    task: asyncio.Task[Any]
    begun_s: float
    is_cancelled: bool = False


class ClientMachine(RuleBasedStateMachine):
    """What the machines of all client classes have in common."""

    brokers: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.cluster: FakeCluster
        self.failures: list[str] = []
        logging.getLogger("flintmq").setLevel(logging.CRITICAL + 1)

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        """Start the servers, then the client."""
        self.cluster = FakeCluster(Choices(seed), brokers=self.brokers)
        self.loop = self.cluster.loop
        self.ends(self.cluster.start())
        self.ends(self.start_client())

    async def start_client(self) -> None:
        """Make and start the clients."""
        raise NotImplementedError

    async def close_clients(self) -> None:
        """Close them."""
        raise NotImplementedError

    # --- for rules ---

    def call(self, name: str, work: Coroutine[Any, Any, Any]) -> Call:
        """Begin a call; the loop does not run yet."""
        call = Call(name, self.loop.create_task(work, name=name), self.loop.time())
        self.calls.append(call)
        return call

    def ends(self, work: Coroutine[Any, Any, Any], within_s: float = CALL_S_MAX) -> Any:
        """Run until a call ends, and return its result."""
        task = self.loop.create_task(work)
        ends_s = self.loop.time() + within_s
        self.loop.call_later(within_s + 1, lambda: None)
        self.loop.run_while(lambda: not task.done() and self.loop.time() <= ends_s)
        assert task.done(), f"{work!r} has not ended after {within_s} s"
        return task.result()

    def running(self) -> list[Call]:
        """Return the calls that have not ended."""
        return [call for call in self.calls if not call.task.done()]

    # --- rules of every client ---

    @rule(steps=st.integers(1, 60))
    def run_steps(self, steps: int) -> None:
        """Run some callbacks."""
        ends_at = self.loop.steps + steps
        self.loop.run_while(lambda: self.loop.steps < ends_at)

    @rule(seconds=st.sampled_from([0.01, 0.2, 3.5, 21.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        """Let virtual time pass."""
        until_s = self.loop.time() + seconds
        self.loop.call_later(seconds, lambda: None)
        self.loop.run_while(lambda: self.loop.time() < until_s)

    @precondition(lambda self: self.running())
    @rule(at=st.integers(0, 10))
    def cancel(self, at: int) -> None:
        """Cancel a call wherever it is."""
        running = self.running()
        call = running[at % len(running)]
        call.is_cancelled = True
        call.task.cancel()

    @rule(at=st.integers(0, 10), fault=st.sampled_from(["cut", "silent", "refusing"]))
    def fail(self, at: int, fault: str) -> None:
        """Break the connections of a server, or have it answer nobody, or accept nobody."""
        address = self.cluster.addresses[at % len(self.cluster.addresses)]
        if fault == "cut":
            self.cluster.network.cut(address)
        else:
            getattr(self.cluster.network, fault).add(address)

    @rule(percent=st.sampled_from([0, 10, 50]))
    def refuse(self, percent: int) -> None:
        """Have brokers refuse some requests, or not answer them."""
        self.cluster.refuse_percent = percent

    @rule()
    def heal(self) -> None:
        """End every fault."""
        self.cluster.heal()

    # --- the end ---

    def teardown(self) -> None:
        """Heal, wait for every call, close, and look for what is left."""
        if not hasattr(self, "cluster"):
            return
        try:
            self.cluster.heal()
            ends_s = self.loop.time() + CALL_S_MAX
            self.loop.call_later(CALL_S_MAX, lambda: None)
            self.loop.run_while(lambda: bool(self.running()) and self.loop.time() < ends_s)
            self.check_calls()
            self.check_healed()
            self.ends(self.close_clients())
            self.pass_time(5.0)
            self.check_calls()
            left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
            assert not left, f"left after close: {left}"
            ends = [end for end in self.cluster.network.connections if end.names[0][1] > 40_000 + self.brokers + 1]
            assert not ends, f"connections are left after close: {[end.names for end in ends]}"
        finally:
            self.loop.close()
        assert not self.loop.errors, self.loop.errors
        assert not self.failures, self.failures

    def check_calls(self) -> None:
        """Look at every call: it has ended, with a result or an error of the documented kinds."""
        for call in self.calls:
            assert call.task.done(), f"{call.name}, begun at {call.begun_s} s, has not ended: {call.task!r}"
            if call.task.cancelled():
                assert call.is_cancelled, f"{call.name} was cancelled by nobody"
            elif (failure := call.task.exception()) is not None:
                assert isinstance(failure, EXPECTED), f"{call.name} raised {failure!r}"
        self.calls.clear()

    def check_healed(self) -> None:
        """Check what holds again once all faults are over."""
