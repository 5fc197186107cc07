"""A state machine whose rules begin calls of a client, let the loop run a little, cancel calls, and break the network.

A machine of one client class adds rules that begin its public calls, and invariants. In the end the network heals, and every
call must have ended. After the client is closed nothing of it may be left: no task, no connection, no error that nobody saw.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Coroutine
from typing import Any, ClassVar

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from flintmq.core.errors import FlintError
from flintmq.remoting.client.connection import ClientConnection
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SpinningError
from flintmq.tests.support.fake_cluster import FakeCluster

STEP_CPU_S = 5
"""A run that takes so much of a processor without an end is in a loop that never waits."""
CALL_S_MAX = 60.0
"""Every call ends in this time once the network is healed: the longest timeout is shorter."""
MARGIN_S = 0.1
"""How much longer than its own timeout a call may take."""
RECOVERY_S = 45.0
"""When a client has forgotten the faults that are over: it has new connections, and new routes, which get 30 s old."""
EXPECTED = (FlintError, TimeoutError, asyncio.CancelledError)
"""What calls may raise while servers and network fail."""


@attrs.define
class Call:
    """A call that was begun."""

    name: str
    task: asyncio.Task[Any]
    begun_s: float
    within_s: float = float("inf")
    """How long it may take by its own timeout."""
    is_cancelled: bool = False
    is_disturbed: bool = False
    """Whether a fault has had an effect while it was under way."""
    ended_s: float | None = None

    @property
    def result(self) -> Any:
        """Return what it returned; None if it has not ended, or has failed."""
        if not self.task.done() or self.task.cancelled() or self.task.exception() is not None:
            return None
        return self.task.result()


class ClientMachine(RuleBasedStateMachine):
    """What the machines of all client classes have in common."""

    brokers: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.cluster: FakeCluster
        self.failures: list[str] = []
        self.faulty_until_s = 0.0
        """When the faults of servers and network have no effect any more."""
        self.is_disturbed = False
        """Whether anything failed, or was cancelled, since the beginning."""
        logging.getLogger("flintmq").setLevel(logging.CRITICAL + 1)

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        """Start the servers, then the client."""
        signal.setitimer(signal.ITIMER_VIRTUAL, STEP_CPU_S)
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

    def call(self, name: str, work: Coroutine[Any, Any, Any], within_s: float = float("inf")) -> Call:
        """Begin a call, which has to end within a time; the loop does not run yet."""
        call = Call(name, self.loop.create_task(work, name=name), self.loop.time(), within_s)
        call.is_disturbed = self.loop.time() < self.faulty_until_s

        def ended(_task: asyncio.Task[Any]) -> None:
            call.ended_s = self.loop.time()

        call.task.add_done_callback(ended)
        self.calls.append(call)
        return call

    def disturb(self) -> None:
        """Take note of a fault that lasts until :meth:`heal`."""
        self.is_disturbed = True
        self.faulty_until_s = float("inf")
        self.disturb_calls()

    def disturb_calls(self) -> None:
        """Take note that what is under way may fail."""
        for call in self.running():
            call.is_disturbed = True

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
        call.is_cancelled = self.is_disturbed = True
        call.task.cancel()

    @rule(at=st.integers(0, 10), fault=st.sampled_from(["cut", "silent", "refusing"]))
    def fail(self, at: int, fault: str) -> None:
        """Break the connections of a server, or have it answer nobody, or accept nobody."""
        self.disturb()
        address = self.cluster.addresses[at % len(self.cluster.addresses)]
        if fault == "cut":
            self.cluster.network.cut(address)
        else:
            getattr(self.cluster.network, fault).add(address)

    @rule(percent=st.sampled_from([0, 10, 50]))
    def refuse(self, percent: int) -> None:
        """Have brokers refuse some requests, or not answer them."""
        self.disturb()
        self.cluster.refuse_percent = percent

    @rule(at=st.integers(0, 10))
    def lose_route(self, at: int) -> None:
        """Have routes name a broker no more, although it runs."""
        self.disturb()
        self.cluster.gone.add(list(self.cluster.brokers)[at % self.brokers])

    @rule(at=st.integers(0, 10))
    def move(self, at: int) -> None:
        """Have a broker come back at another address, of which its clients do not know."""
        self.disturb()
        self.ends(self.cluster.move(list(self.cluster.brokers)[at % self.brokers]))

    @rule()
    def heal(self) -> None:
        """End every fault."""
        self.cluster.heal()
        if self.is_disturbed:
            self.faulty_until_s = self.loop.time() + RECOVERY_S

    # --- the end ---

    def teardown(self) -> None:
        """Heal, wait for every call, close, and look for what is left."""
        if not hasattr(self, "cluster"):
            return
        try:
            self.heal()
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
            ends = [end for end in self.cluster.network.connections if isinstance(end.get_protocol(), ClientConnection)]
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
            took_s = (self.loop.time() if call.ended_s is None else call.ended_s) - call.begun_s
            assert took_s <= call.within_s + MARGIN_S, (
                f"{call.name} took {took_s:.3f} s, not {call.within_s} s: {call.task!r}"
            )
        self.calls.clear()

    def check_healed(self) -> None:
        """Check what holds again once all faults are over."""


class OneProducerMachine(ClientMachine):
    """A machine of one producer, which may be closed in any state; another one of its group takes its place."""

    producer: Any
    is_closing: bool

    def made(self) -> Any:
        """Return a producer that was not started."""
        raise NotImplementedError

    @rule()
    def close(self) -> None:
        """Close the producer while calls are under way."""
        self.is_closing = True
        self.call("close", self.producer.close())
        self.disturb_calls()

    @precondition(lambda self: self.is_closing and not self.running())
    @rule()
    def replace(self) -> None:
        """Another producer takes the place of the one that was closed, and is asked about what that one left undecided."""
        self.ends(self.producer.close())
        self.producer = self.made()
        self.ends(self.producer.start())
        self.is_closing = False


def run_machine(machine: type[ClientMachine], max_examples: int, **options: Any) -> None:
    """Try a machine with so many runs of at most 25 rules. Raises what a run raises."""

    def spins(_signal: int, _frame: object) -> None:
        raise SpinningError(f"a run has taken {STEP_CPU_S} s of a processor: something never waits")

    before = signal.signal(signal.SIGVTALRM, spins)
    gc.collect()
    gc.freeze()  # each run ends with a collection, which need not look at what was there before
    try:
        run_state_machine_as_test(
            machine, settings=settings(max_examples=max_examples, stateful_step_count=25, deadline=None, **options)
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.unfreeze()
