"""The services that follow messages (:class:`flintmq.core.kernel.ports.FollowsMessages`): nearly always none."""

from __future__ import annotations

from flintmq.core.kernel.ports.follow import FollowsMessages, HandedOut, StoredMessages


class Followers:
    """Tells those that follow messages what happens to them. Loop thread."""

    __slots__ = ("all",)

    def __init__(self) -> None:
        self.all: tuple[FollowsMessages, ...] = ()
        """While there are none, nobody needs to tell anything."""

    def add(self, follower: FollowsMessages) -> None:
        """Tell another one from now on. It must not raise."""
        self.all = (*self.all, follower)

    def stored(self, stored: StoredMessages) -> None:
        """Tell of an append."""
        for follower in self.all:
            follower.on_stored(stored)

    def answered(self) -> None:
        """Tell that senders have their answers."""
        for follower in self.all:
            follower.on_answered()

    def handed_out(self, handed_out: HandedOut) -> None:
        """Tell what a pull found."""
        for follower in self.all:
            follower.on_handed_out(handed_out)
