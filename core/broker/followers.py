"""The services that follow messages (:class:`flintmq.core.kernel.ports.FollowsMessages`): nearly always none."""

from __future__ import annotations

from collections.abc import Sequence

from flintmq.core.kernel.ports.follow import FollowsMessages, HandedOut, StoredMessages


class Followers:
    """Tells those that follow messages what happens to them. False while there are none. Loop thread."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: Sequence[FollowsMessages] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, follower: FollowsMessages) -> None:
        """Tell another one from now on. It must not raise."""
        self._all = (*self._all, follower)

    def stored(self, stored: StoredMessages) -> None:
        """Tell of an append."""
        for follower in self._all:
            follower.on_stored(stored)

    def answered(self) -> None:
        """Tell that senders have their answers."""
        for follower in self._all:
            follower.on_answered()

    def handed_out(self, handed_out: HandedOut) -> None:
        """Tell what a pull found."""
        for follower in self._all:
            follower.on_handed_out(handed_out)
