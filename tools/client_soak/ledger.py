"""A record of the acknowledgements and deliveries that clients received in a round of the soak test. The acknowledgements are
compared with the deliveries at the end of the round."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable

from flintmq.client import Message, MessageExt, TransactionState


class Ledger:
    """Records the acknowledgements, the deliveries and the decisions about transactions in a round of the soak test.
    Thread-safe: each change is one operation of a set or a dictionary.

    Args:
        name: the round's name, which is the end of the names of the round's topics and groups.
    """

    def __init__(self, name: str) -> None:
        self.topic = f"Soak-{name}"
        self.transaction_topic = f"SoakTransactions-{name}"
        self.name = name
        self.acknowledged: set[bytes] = set()
        """Messages that a broker has acknowledged. Each message is represented by the first word of its body."""
        self.delivered: dict[str, set[bytes]] = defaultdict(set)
        """Messages that members of a group received, keyed by group. Each message is represented by the first word of its
        body."""
        self.decided: dict[bytes, TransactionState] = {}
        """Outcome of each transaction, keyed by the first word of its message's body."""
        self.ended: set[bytes] = set()
        """Transactions whose half message a broker has acknowledged. If such a transaction is committed, consumers must receive
        the transaction's message."""
        self.is_over = False
        """Whether all calls of the clients have ended, so that no more transactions are decided."""
        self._numbers = itertools.count()

    def message(self, chance: random.Random, topic: str = "") -> Message:
        """Return a new message, whose body has a few bytes or a few thousand bytes. The client compresses some of the long
        bodies."""
        body = b"%s/%d " % (self.name.encode(), next(self._numbers)) + bytes(chance.choice((0, 20, 200, 5_000)))
        key = body.split(b" ", 1)[0].decode()
        return Message(topic or self.topic, body, tags=chance.choice(("a", "b", "")), keys=key)

    def stored(self, messages: Iterable[Message]) -> None:
        """Record that the broker has acknowledged the given messages."""
        self.acknowledged.update(word_of(message) for message in messages)

    def heard(self, group: str, messages: Iterable[MessageExt]) -> None:
        """Record that a member of a consumer group has received the given messages."""
        self.delivered[group].update(word_of(message) for message in messages)

    def check(self, message: MessageExt) -> TransactionState:
        """Return the decision about a transaction that a broker checks; UNKNOWN while the transaction is undecided.

        A transaction that is still undecided after all calls have ended is rolled back, because the broker would ask about it
        in all later rounds.
        """
        if self.is_over:
            return self.decided.setdefault(word_of(message), TransactionState.ROLLBACK)
        return self.decided.get(word_of(message), TransactionState.UNKNOWN)

    async def check_later(self, message: MessageExt) -> TransactionState:
        """Return the decision about a transaction as :meth:`check` does, for asynchronous clients."""
        return self.check(message)

    def committed(self) -> set[bytes]:
        """Return the transactions whose messages consumers must receive, each as the first word of its message's body."""
        return {word for word in self.ended if self.decided[word] is TransactionState.COMMIT}

    def rolled_back(self) -> set[bytes]:
        """Return the transactions whose messages no consumer may receive, each as the first word of its message's body."""
        return {word for word, state in list(self.decided.items()) if state is TransactionState.ROLLBACK}


def word_of(message: Message | MessageExt) -> bytes:
    """Return the word in a message's body that identifies the message."""
    return message.body.split(b" ", 1)[0]
