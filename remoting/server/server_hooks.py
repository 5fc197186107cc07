"""The functions of plugins that are called with a server's connections and requests: plain tuples, empty for most servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from flintmq.core.kernel.ports.processor import Request, Response
from flintmq.remoting.server.channel import ServerChannel
from flintmq.remoting.server.processor_shape import wrong_response

if TYPE_CHECKING:
    from flintmq.remoting.server.server import RemotingServer

ChannelHook = Callable[[ServerChannel], None]
BeforeHook = Callable[[Request], object]
AfterHook = Callable[[Request, Response], None]


class ServerHooks(msgspec.Struct, frozen=True):
    """RocketMQ's ``ChannelEventListener`` and the two sides of its ``RPCHook``. Loop thread.

    Only those of :attr:`before` may raise; the maker of the tuples catches what the others raise.
    """

    connected: tuple[ChannelHook, ...] = ()
    """Called with each connection that is accepted; not with one that is closed because there are too many."""
    closed: tuple[ChannelHook, ...] = ()
    """Called once with each of those when it has ended, for whatever reason."""
    failed: tuple[Callable[[ServerChannel, Exception], None], ...] = ()
    """Called with a connection that ends because of an error of the network or of its bytes. ``closed`` follows."""
    idle: tuple[ChannelHook, ...] = ()
    """Called with a connection that has been silent for too long, before it is closed."""
    before: tuple[BeforeHook, ...] = ()
    """Called with each request that the authenticators let pass; what one raises refuses the request."""
    after: tuple[AfterHook, ...] = ()
    """Called with each answer before it is sent, refusals included; may change it, but leaves one that can be sent."""

    @property
    def are_of_connections(self) -> bool:
        """Return whether any of them is called with connections."""
        return bool(self.connected or self.closed or self.failed or self.idle)


class HookedChannel(ServerChannel):
    """A connection whose answers pass :attr:`ServerHooks.after`. Made only where there are such hooks."""

    def __init__(self, server: RemotingServer) -> None:
        super().__init__(server)
        self._after = server.hooks.after

    def respond(self, to: Request, answer: Response) -> None:
        """Answer a request after the hooks have seen, and perhaps changed, the answer."""
        wrong = wrong_response(answer)
        if wrong:
            raise TypeError(wrong)
        for hook in self._after:
            hook(to, answer)
        super().respond(to, answer)
