"""What features and request processors may use of the server of a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.core.kernel.ports.auth import Authenticator
    from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response


class RequestPool(Protocol):
    """A bounded queue of requests that are under way. Loop thread."""

    waiting: int
    """Requests that are taken and not answered yet."""
    capacity: int
    """How many there may be."""


class RequestLatency(Protocol):
    """Counts how long requests took. Loop thread."""

    def note(self, code: int, took_s: float, count: int) -> None:
        """Count answered requests of one code that succeeded and took the same time."""
        ...

    def add(
        self,
        code: int,
        response_code: int,
        took_s: float,
        count: int = 1,
        was_held: bool = False,
        is_oneway: bool = False,
    ) -> None:
        """Count answered requests that took the same time.

        Args:
            code: of the requests.
            response_code: of their answers.
            took_s: from the read to the answer.
            count: how many.
            was_held: whether they waited for a message.
            is_oneway: whether no answer was asked for.
        """
        ...


class ServerPort(Protocol):
    """The server of a broker, as features and request processors see it. Loop thread."""

    @property
    def authenticators(self) -> tuple[Authenticator, ...]:
        """The authenticators in force, in the order in which they are asked."""
        ...

    @property
    def answers_as_bytes(self) -> bool:
        """Whether a processor may write encoded answers to a channel: no plugin's hook reads them."""
        ...

    @property
    def latency(self) -> RequestLatency | None:
        """What counts how long requests take; None if nothing measures."""
        ...

    def measure(self, latency: RequestLatency | None) -> None:
        """Have the server and its processors count how long requests take; None ends that."""
        ...

    def pool(self, name: str) -> RequestPool:
        """Return the pool of a name, which is made at the first call."""
        ...

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Call back when all that has arrived on all connections is read."""
        ...

    def must_wait(self, channel: RequestChannel) -> bool:
        """Return whether the next request of a connection has to be postponed, so that others are answered."""
        ...

    def postpone(self, requests: Sequence[Request]) -> None:
        """Have requests of one connection processed in later iterations of the loop."""
        ...

    def flush_soon(self, channel: RequestChannel) -> None:
        """Flush a channel in the next iteration of the loop; several calls make one write."""
        ...


class ConnectionListener(Protocol):
    """Learns what happens to connections; a listener has some of these. RocketMQ's ``ChannelEventListener``. Loop thread."""

    def on_channel_connect(self, channel: RequestChannel) -> None:
        """Note a connection that is taken."""
        ...

    def on_channel_close(self, channel: RequestChannel) -> None:
        """Note the end of a connection; called once, whichever side ended it."""
        ...

    def on_channel_exception(self, channel: RequestChannel, error: BaseException) -> None:
        """Note an error of the network, or bytes that are no frame; ``on_channel_close`` follows."""
        ...

    def on_channel_idle(self, channel: RequestChannel) -> None:
        """Note a connection that is about to be closed because nothing happens on it."""
        ...


class RpcHook(Protocol):
    """Stands around requests; a hook has one or both of these. The server's side of RocketMQ's ``RPCHook``. Loop thread."""

    def do_before_request(self, request: Request) -> None:
        """Look at a request that the authenticators let pass, before its processor; ``ext_fields`` may be changed.

        Raises:
            RefusedError: the request is refused, with the error's code and remark.
        """
        ...

    def do_after_response(self, request: Request, response: Response) -> None:
        """Look at an answer before it is sent, and perhaps change it."""
        ...
