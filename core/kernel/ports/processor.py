"""The interfaces of request processors: requests, answers, handlers, and the declarations of request codes.

A handler declares the codes that it answers with a decorator::

    class StatusProcessor(DeclaredProcessor):
        @handles(20_001, header=StatusRequestHeader, needs=ADMIN)
        def status(self, request: Request) -> Response:
            \"\"\"Return the status of the plugin.\"\"\"
            return Response(body=b"well")

Registration, access control, the audit log and ``docs/request-codes.md`` use these declarations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, Final, Protocol, Self, TypeVar

import msgspec

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.access import AccessRule
from flintmq.core.kernel.ports.channel import Channel
from flintmq.core.response_code import ONEWAY_FLAG


class Header(Protocol):
    """The typed header of a request: a class whose fields are those of the request's ``extFields``."""

    @classmethod
    def of_fields(cls, ext_fields: dict[str, str] | None) -> Self:
        """Return the typed header that the ``extFields`` of a request contain.

        Raises:
            RefusedError: SYSTEM_ERROR, a required field is missing.
        """
        ...


H = TypeVar("H", bound=Header)


class RequestChannel(Channel, Protocol):
    """The connection on which a request arrived. Used only on the event loop's thread. Compared and hashed by identity."""

    remote_host: str
    """The peer's address without its port."""
    packed_host: bytes
    """The peer's address and port, packed as in records."""
    local_host: str
    """The address that the peer connected to."""
    local_port: int
    """The port that the peer connected to."""
    read_s: float
    """Time at which the peer's last bytes were read, in seconds of the monotonic clock."""
    is_stalled: bool
    """Whether the peer reads too slowly, so that too many answers wait. A stalled peer gets no further answers until it
    reads."""

    def respond(self, to: Request, answer: Response) -> None:
        """Answer a request, unless it is one-way. The next :meth:`flush` writes the answer to the socket.

        Raises:
            TypeError: the answer is not a :class:`Response`, or a value in the answer has a wrong type; nothing is sent.
        """
        ...

    def refuse(self, to: Request, error: RefusedError) -> None:
        """Answer a request with a refusal's code and remark."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Keep one whole encoded answer until the next :meth:`flush` writes it; drop the answer if the connection is closed."""
        ...

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Keep several whole encoded answers until the next :meth:`flush` writes them to the socket."""
        ...

    def flush(self) -> None:
        """Write all answers that the channel keeps to the socket now."""
        ...

    def took(self, count: int) -> None:
        """Count a channel's requests that will be answered later.

        If there are too many, the server stops reading the connection.
        """
        ...

    def gave(self, count: int) -> None:
        """Count answers to requests that :meth:`took` counted. If too many requests wait for answers, the server reads no bytes
        from the connection until enough answers have been counted."""
        ...


class Request(msgspec.Struct, gc=False):
    """A decoded request of a client, one for each frame. Read-only by convention."""

    channel: RequestChannel
    code: int
    opaque: int
    flag: int
    version: int
    """Version of the client, as the ordinal of RocketMQ's ``MQVersion``."""
    language: str
    codec: int
    ext_fields: dict[str, str] | None
    """Header fields of the request, keyed by name; None if the request has no fields, or if the header was decoded directly
    into ``typed``."""
    body: bytes
    typed: Header | None = None
    """Typed header of the request, if :mod:`flintmq.remoting.wire.fast_json` decoded the frame; otherwise None."""
    read_s: float = 0.0
    """Time at which the request was read, in seconds of the monotonic clock. The time is set only in a request that is answered
    later; otherwise the value is 0, and ``channel.read_s`` is the time of the read."""

    @property
    def is_oneway(self) -> bool:
        """Return whether the request is one-way, so that no answer may be sent."""
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, model: type[H]) -> H:
        """Return the typed header of the request.

        Raises:
            RefusedError: SYSTEM_ERROR, a required field is missing.
        """
        typed = self.typed
        return typed if isinstance(typed, model) else model.of_fields(self.ext_fields)


class Response(msgspec.Struct):
    """The answer to a request, as a processor returns it. The server adds opaque, codec and flag."""

    code: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""


Handler = Callable[[Request], Awaitable[Response | None] | Response | None]
"""Function that answers one request. The function returns None if no answer is due now, as for held pulls and one-way
requests."""
BatchHandler = Callable[[list[Request]], None]
"""Function that takes the requests that were received in one read of a connection, and answers each request through the
request's channel."""


class RequestProcessor(Protocol):
    """A request processor, which answers requests one by one.

    The documentation of the hook ``flintmq_request_processors`` says in which threads the handlers run.
    """

    def handlers(self) -> Mapping[int, Handler]:
        """Return the processor's handlers, keyed by request code. Called once, when the server is assembled."""
        ...


class BatchProcessor(Protocol):
    """A request processor that processes all requests of one read from a socket together. Used only on the event loop's
    thread."""

    may_wait: ClassVar[bool]
    """Whether requests may be postponed to a later iteration of the event loop if the current iteration takes long."""

    def process(self, batch: list[Request]) -> None:
        """Answer the requests of one read, all of which have one code. Each answer goes to the request's channel, now or later.

        For a request that is answered later, the processor calls ``channel.took``, and calls ``channel.gave`` when it answers.
        """
        ...


class DefaultProcessor(Protocol):
    """The default processor, which answers the request codes that no request processor answers."""

    def handle(self, request: Request) -> Awaitable[Response | None] | Response | None:
        """Return the answer to one request, or None if no answer is due; a plain method or ``async def``."""
        ...


DefaultProcessorFactory = Callable[..., DefaultProcessor]
"""A factory that returns a default processor. The factory is called with a
:class:`~flintmq.core.kernel.hookspecs.ApiContext`."""

ProcessorFactory = Callable[..., RequestProcessor | BatchProcessor]
"""A factory that returns a processor. The factory is called with a :class:`~flintmq.core.kernel.hookspecs.ApiContext`."""


LOOP_POOLS: Final = frozenset(
    ("send", "pull", "reply", "end_transaction", "query", "heartbeat", "client", "consumer", "admin")
)
"""Names of the broker's own pools, which are bounded queues of requests that the event loop handles. A pool with any other name
has threads."""
THREADS_DEFAULT: Final = 4
THREADS_MAX: Final = 256


class RequestDeclaration(msgspec.Struct, frozen=True):
    """The declaration of one request code at one server. Registration, access control and documentation use it."""

    code: int
    header: type[Header] | None = None
    """Typed header of the request; None for a request without header fields."""
    answer: type[Header] | None = None
    """Typed header of the answer; None for an answer without header fields."""
    pool: str = "admin"
    """Name of the pool, a bounded queue, in which requests with this code wait."""
    needs: AccessRule | None = None
    """Access rule for senders of the request code; None refuses all senders, unless ``acl.extra_codes`` names the code."""
    audited: bool = False
    """Whether each request with this code is written to the audit log; True for administrative actions."""
    summary: str = ""
    """One line of documentation of the request code: the first sentence of the handler's docstring."""

    def under(self, other: RequestDeclaration) -> RequestDeclaration:
        """Return this declaration if it has an access rule. Otherwise, return a copy that is completed from the built-in
        declaration of the same request code.

        The copy has the access rule and the audit flag of the built-in declaration. If this declaration has no request header,
        the copy also has the header of the built-in declaration.

        Args:
            other: the built-in declaration of the same request code.
        """
        if self.needs is not None:
            return self
        return msgspec.structs.replace(
            self, needs=other.needs, audited=other.audited, header=self.header or other.header
        )


_DECLARED: Final = "__flintmq_declared__"
F = TypeVar("F", bound=Callable[..., object])


def handles(
    code: int,
    *,
    header: type[Header] | None = None,
    answer: type[Header] | None = None,
    pool: str = "admin",
    needs: AccessRule | None = None,
    audited: bool = False,
) -> Callable[[F], F]:
    """Declare that the decorated method answers a request code; one method may declare several codes.

    Args:
        code: the request code.
        header: the typed header of the request.
        answer: the typed header of the answer.
        pool: the bounded queue its requests wait in (see ``flintmq_request_processors``).
        needs: the access rule for the sender; None refuses all senders, unless ``acl.extra_codes`` names the code.
        audited: whether each request is written to the audit log.
    """

    def declare(method: F) -> F:
        summary = (method.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        one = RequestDeclaration(int(code), header, answer, pool, needs, audited, " ".join(summary.split()))
        setattr(method, _DECLARED, (one, *getattr(method, _DECLARED, ())))
        return method

    return declare


def _declaring(processor: type) -> dict[str, tuple[RequestDeclaration, ...]]:
    """Return the request codes that the methods of a class answer, as declared with the decorator :func:`handles`. The result
    has a tuple for each such method, keyed by the method's name. The tuple has one declaration for each request code. Methods
    of base classes are included."""
    found: dict[str, tuple[RequestDeclaration, ...]] = {}
    for parent in reversed(processor.__mro__):
        for name, member in vars(parent).items():
            declared = getattr(member, _DECLARED, None)
            if declared is not None:
                found[name] = declared
    return found


def declared_by(processor: type) -> tuple[RequestDeclaration, ...]:
    """Return the declarations that :func:`handles` made of a class's methods, in the order of definition."""
    return tuple(one for declared in _declaring(processor).values() for one in declared)


class DeclaredProcessor:
    """Base class of processors whose methods declare their request codes with :func:`handles`."""

    def handlers(self) -> dict[int, Handler]:
        """Return the processor's methods that declare a request code, keyed by that code."""
        return {one.code: getattr(self, name) for name, declared in _declaring(type(self)).items() for one in declared}
