"""Calls services that follow messages through a broker (:class:`flintmq.core.kernel.ports.FollowsMessages`).

Most brokers have no such service.
"""

from __future__ import annotations

from flintmq.core.kernel.ports.follow import FollowsMessages, HandedOut, StoredMessages


class Followers:
    """Calls all services that follow messages (``FollowsMessages``) for each append, each answer to a send and each pull. Loop
    thread."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: tuple[FollowsMessages, ...] = ()
        """Services that the broker calls for each append of messages, each answer to a send and each pull. If this tuple is
        empty, the broker need not call the methods of :class:`Followers`, which would call no service."""

    def add(self, follower: FollowsMessages) -> None:
        """Add a service that follows messages (``FollowsMessages``).

        The service is called for each later append, answer to a send and pull. It must not raise exceptions.
        """
        self.all = (*self.all, follower)

    def stored(self, stored: StoredMessages) -> None:
        """Notify the services that follow messages (``FollowsMessages``) of an append."""
        for follower in self.all:
            follower.on_stored(stored)

    def answered(self) -> None:
        """Notify the services that follow messages (``FollowsMessages``) that senders have received their answers."""
        for follower in self.all:
            follower.on_answered()

    def handed_out(self, handed_out: HandedOut) -> None:
        """Notify the services that follow messages (``FollowsMessages``) of a pull that returned messages."""
        for follower in self.all:
            follower.on_handed_out(handed_out)
