"""A record of what the clients of a round were told and of what they have seen: the two must fit."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable

from flintmq.client import Message, MessageExt, TransactionState


class Ledger:
    """Notes what was acknowledged, delivered and decided in a round. Thread-safe: a change is one operation of a set.

    Args:
        name: of the round; topics and groups have it as their end.
    """

    def __init__(self, name: str) -> None:
        self.topic = f"Soak-{name}"
        self.transaction_topic = f"SoakTransactions-{name}"
        self.name = name
        self.acknowledged: set[bytes] = set()
        """Messages that a broker has said are stored, by the word that their body begins with."""
        self.delivered: dict[str, set[bytes]] = defaultdict(set)
        """Those that members of a group were given, by group."""
        self.decided: dict[bytes, TransactionState] = {}
        """The outcome of each transaction, by its message."""
        self.ended: set[bytes] = set()
        """Transactions that were told to be stored; their decision counts from then on."""
        self.is_over = False
        """Whether all calls have ended: nothing is decided any more."""
        self._numbers = itertools.count()

    def message(self, chance: random.Random, topic: str = "") -> Message:
        """Return a new message: a few bytes or a few thousand, some of them compressed on their way."""
        body = b"%s/%d " % (self.name.encode(), next(self._numbers)) + bytes(chance.choice((0, 20, 200, 5_000)))
        key = body.split(b" ", 1)[0].decode()
        return Message(topic or self.topic, body, tags=chance.choice(("a", "b", "")), keys=key)

    def stored(self, messages: Iterable[Message]) -> None:
        """Note that these were acknowledged."""
        self.acknowledged.update(word_of(message) for message in messages)

    def heard(self, group: str, messages: Iterable[MessageExt]) -> None:
        """Note that a member of the group was given these."""
        self.delivered[group].update(word_of(message) for message in messages)

    def check(self, message: MessageExt) -> TransactionState:
        """Answer a broker that asks what became of a transaction: what was decided, or nothing yet.

        One whose local part was never called is rolled back at the end: the broker would ask about it in all later rounds.
        """
        if self.is_over:
            return self.decided.setdefault(word_of(message), TransactionState.ROLLBACK)
        return self.decided.get(word_of(message), TransactionState.UNKNOWN)

    async def check_later(self, message: MessageExt) -> TransactionState:
        """Answer as :meth:`check`, for clients on a loop."""
        return self.check(message)

    def committed(self) -> set[bytes]:
        """Return the transactions that must become messages."""
        return {word for word in self.ended if self.decided[word] is TransactionState.COMMIT}

    def rolled_back(self) -> set[bytes]:
        """Return those that must never become messages."""
        return {word for word, state in list(self.decided.items()) if state is TransactionState.ROLLBACK}


def word_of(message: Message | MessageExt) -> bytes:
    """Return the word that names a message."""
    return message.body.split(b" ", 1)[0]
