"""Any call of a transaction producer while brokers ask: committed is visible, rolled back never is, and all is decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from flintmq.remoting.client.message import Message, MessageExt, decode_messages
from flintmq.remoting.client.send_result import SendResult
from flintmq.remoting.client.transaction_producer import TransactionProducer, TransactionResult, TransactionState
from flintmq.tests.support.client_machine import Call, OneProducerMachine, run_machine
from flintmq.tests.support.effort import examples
from flintmq.tests.support.fake_cluster import CHECK_S

HEARTBEAT_S = 3.0
"""How long telling brokers of the producer may take before the first half message."""
FAILURES: tuple[type[BaseException], ...] = (
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    StopIteration,
    asyncio.CancelledError,
)
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class LocalFailure(Exception):
    """What the local part raises."""


class TransactionMachine(OneProducerMachine):
    """One group, one or two producers of it. In the end every half message has been decided, as its local part says."""

    has_plain_check: ClassVar[bool] = False

    async def start_client(self) -> None:
        self.decided: dict[bytes, TransactionState] = {}
        """By the body of the message: what its local part did. A local part that was not done is no commit."""
        self.sent: dict[bytes, SendResult] = {}
        self.answers: list[type[BaseException] | TransactionState] = []
        """What the next checks do."""
        self.checks: Counter[bytes] = Counter()
        self.numbers = 0
        self.is_closing = False
        self.producer = self.made()
        await self.producer.start()

    def made(self) -> TransactionProducer:
        def check(message: MessageExt) -> TransactionState:
            self.checks[bytes(message.body)] += 1
            if self.answers:
                answer = self.answers.pop()
                if not isinstance(answer, TransactionState):
                    raise answer
                return answer
            state = self.decided.get(bytes(message.body), ROLLBACK)
            return COMMIT if state is UNKNOWN else state

        async def check_async(message: MessageExt) -> TransactionState:
            await asyncio.sleep(self.cluster.choices.below(20) / 10)
            return check(message)

        return TransactionProducer(
            "p", self.cluster.address, check=check if self.has_plain_check else check_async, clock=self.cluster.clock
        )

    async def close_clients(self) -> None:
        await self.producer.close()

    def call(self, name: str, work: Coroutine[Any, Any, Any], within_s: float = float("inf")) -> Call:
        call = super().call(name, work, within_s)
        call.is_disturbed |= self.is_closing
        return call

    # --- rules ---

    @rule(
        state=st.sampled_from([COMMIT, COMMIT, ROLLBACK, UNKNOWN]),
        raises=st.sampled_from([None, None, LocalFailure]),
        plain=st.booleans(),
        timeout_ms=st.sampled_from([300, 3_000]),
    )
    def send_in_transaction(
        self, state: TransactionState, raises: type[Exception] | None, plain: bool, timeout_ms: int
    ) -> None:
        self.numbers += 1
        message = Message("T", b"%d" % self.numbers)
        work = self._send_in_transaction(message, state, raises, plain, timeout_ms)
        # The timeout is that of the send; the local part takes a second, telling its end another request's time.
        self.call("send_in_transaction", work, timeout_ms / 1000 + HEARTBEAT_S + 1.0 + 3.0)

    async def _send_in_transaction(
        self, message: Message, state: TransactionState, raises: type[Exception] | None, plain: bool, timeout_ms: int
    ) -> None:
        def local(given: Message, transaction_id: str) -> TransactionState:
            self.decided[given.body] = state if raises is None else UNKNOWN
            if raises is not None:
                raise raises
            return state

        async def local_async(given: Message, transaction_id: str) -> TransactionState:
            await asyncio.sleep(self.cluster.choices.below(10) / 10)
            return local(given, transaction_id)

        try:
            result = await self.producer.send_in_transaction(
                message, local if plain else local_async, timeout_ms=timeout_ms
            )
        except LocalFailure:
            if raises is None:
                self.failures.append("a local part raised that was not to")
            return
        except BaseException:
            if message.body not in self.decided and raises is None:
                self.decided[message.body] = ROLLBACK
            raise
        self.check_sent(message, result)

    def check_sent(self, message: Message, result: TransactionResult) -> None:
        """What was sent lies where its result says, as a half message or a visible one."""
        self.sent[message.body] = result.sent
        if result.state is not self.decided[message.body]:
            self.failures.append(f"{message.body!r} was {self.decided[message.body]}, its result says {result.state}")

    @rule(state=st.sampled_from([COMMIT, ROLLBACK, UNKNOWN]), pause_s=st.sampled_from([0.0, 0.5, 2 * CHECK_S]))
    def send_half_and_end(self, state: TransactionState, pause_s: float) -> None:
        """Do the local part by oneself; the broker may ask meanwhile."""
        self.numbers += 1
        message = Message("T", b"%d" % self.numbers)

        async def work() -> None:
            self.decided[message.body] = ROLLBACK
            sent = await self.producer.send_half(message)
            self.decided[message.body] = state
            await asyncio.sleep(pause_s)
            self.check_sent(message, await self.producer.end(sent, state))

        self.call("send_half, end", work(), 3.0 + HEARTBEAT_S + pause_s + 3.0)

    @rule()
    def send(self) -> None:
        """A message without a transaction, by the same producer."""
        self.numbers += 1
        self.decided[b"%d" % self.numbers] = COMMIT
        self.call("send", self._send(Message("T", b"%d" % self.numbers)), 3.0)

    async def _send(self, message: Message) -> None:
        self.sent[message.body] = await self.producer.send(message)

    @rule(answer=st.sampled_from([*FAILURES, UNKNOWN]))
    def fail_next_check(self, answer: Any) -> None:
        """Have the next check raise something, or know nothing."""
        self.answers.append(answer)

    # --- what must be so ---

    def check_calls(self) -> None:
        for call in self.calls:
            if call.task.done() and not call.task.cancelled() and call.task.exception() is not None:
                assert call.is_disturbed, f"{call} failed without a cause: {call.task.exception()!r}"
        super().check_calls()

    def check_healed(self) -> None:
        """The brokers ask about what is left, and have an answer."""
        self.answers.clear()
        if self.is_closing:
            self.ends(self.producer.close())
            self.producer = self.made()
            self.ends(self.producer.start())
        self.pass_time(max(0.0, self.faulty_until_s - self.loop.time()))
        self.is_closing = False
        message = Message("T", b"last")
        self.decided[message.body] = COMMIT
        self.ends(self._send(message), 3.0)  # the producer knows the brokers: their questions find it
        self.send_in_transaction(COMMIT, None, True, 3_000)
        self.pass_time(70.0 + 3 * CHECK_S)
        left = [half for broker in self.cluster.brokers.values() for half in broker.half.values()]
        assert not left, f"these were never decided: {[body for _, body in left]}"
        stored: Counter[bytes] = Counter()
        for broker in self.cluster.brokers.values():
            for queue in broker.records.values():
                stored.update(bytes(message.body) for message in decode_messages(b"".join(queue)))
        for body, state in self.decided.items():
            if state is ROLLBACK:
                assert not stored[body], f"{body!r} was rolled back and is visible"
            elif body in self.sent:
                assert stored[body], f"{body!r} was committed and is not visible"
                assert stored[body] == 1 or self.is_disturbed, f"{body!r} is visible {stored[body]} times"


class PlainCheckMachine(TransactionMachine):
    """The check is a plain function."""

    has_plain_check = True


@pytest.mark.parametrize("machine", [TransactionMachine, PlainCheckMachine])
def test_faults_do_not_change_whether_a_half_message_is_committed_or_rolled_back(
    machine: type[TransactionMachine],
) -> None:
    """Every half message is decided as its local part says, whatever checks raise and whatever servers do meanwhile."""
    run_machine(machine, examples(60))
