"""The interface of a broker's server for features and request processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.core.kernel.ports.auth import Authenticator
    from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response


class RequestPool(Protocol):
    """A request pool: a bounded queue of requests that are not answered yet. Used only on the event loop's thread."""

    waiting: int
    """Number of requests that the pool has accepted and that are not answered yet."""
    capacity: int
    """Maximum number of requests that the pool accepts at the same time."""


class RequestLatency(Protocol):
    """Counts answered requests, and the times until their answers. Used only on the event loop's thread."""

    def note(self, code: int, took_s: float, count: int) -> None:
        """Count ``count`` requests with the same code that were answered with success, each after ``took_s`` seconds."""
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
        """Count ``count`` requests with the same code and response code, each answered after ``took_s`` seconds.

        Args:
            code: the code of the requests.
            response_code: the code of their answers.
            took_s: the time from the read to the answer.
            count: the number of requests.
            was_held: whether the requests waited for a message.
            is_oneway: whether the requests were one-way requests.
        """
        ...


class ServerPort(Protocol):
    """The server of a broker, as features and request processors use it. Used only on the event loop's thread."""

    @property
    def authenticators(self) -> tuple[Authenticator, ...]:
        """The server's authenticators, in the order of their calls."""
        ...

    @property
    def answers_as_bytes(self) -> bool:
        """Whether a processor may write encoded answers to a channel; False if a plugin's hook needs decoded answers."""
        ...

    @property
    def latency(self) -> RequestLatency | None:
        """Counter of the durations of requests; None if durations are not measured."""
        ...

    def measure(self, latency: RequestLatency | None) -> None:
        """Count the durations of the server's requests with the given counter; None stops the counting."""
        ...

    def pool(self, name: str) -> RequestPool:
        """Return the request pool with a name; the first call with the name creates the pool."""
        ...

    def at_turn_end(self, callback: Callable[[], None]) -> None:
        """Call a function once, when the server has read the bytes that have arrived on all connections."""
        ...

    def must_wait(self, channel: RequestChannel) -> bool:
        """Return whether the next request of a connection must be postponed, so that other connections are served."""
        ...

    def postpone(self, requests: Sequence[Request]) -> None:
        """Let the server process requests of one connection in later iterations of the loop."""
        ...

    def flush_soon(self, channel: RequestChannel) -> None:
        """Flush a channel in the next iteration of the loop; several calls in one iteration make one write."""
        ...


class ConnectionListener(Protocol):
    """Listener for connection events, RocketMQ's ``ChannelEventListener``. Each method is optional. Used only on the event
    loop's thread."""

    def on_channel_connect(self, channel: RequestChannel) -> None:
        """Process a notice of a new connection."""
        ...

    def on_channel_close(self, channel: RequestChannel) -> None:
        """Process a notice of the end of a connection. Called once, whichever side closed it."""
        ...

    def on_channel_exception(self, channel: RequestChannel, error: BaseException) -> None:
        """Process a notice of a network error or of bytes that are not a valid frame.

        A call of ``on_channel_close`` follows.
        """
        ...

    def on_channel_idle(self, channel: RequestChannel) -> None:
        """Process a notice of an idle connection, before the server closes it."""
        ...


class RpcHook(Protocol):
    """Hook before and after requests, RocketMQ's ``RPCHook`` of a server. At least one method is required. Used only on the
    event loop's thread."""

    def do_before_request(self, request: Request) -> None:
        """Check a request that the authenticators accepted, before it is processed. The hook may change ``ext_fields``.

        Raises:
            RefusedError: the request is refused, with the error's code and remark.
        """
        ...

    def do_after_response(self, request: Request, response: Response) -> None:
        """Check an answer before it is sent. The hook may change it."""
        ...
