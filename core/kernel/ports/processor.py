"""The port of request processors: a request, its answer, what handles it, and the one declaration of a request code.

A handler declares the codes that it answers where it is defined::

    class StatusProcessor(DeclaredProcessor):
        @handles(20_001, header=StatusRequestHeader, needs=ADMIN)
        def status(self, request: Request) -> Response:
            \"\"\"Tell how the plugin is.\"\"\"
            return Response(body=b"well")

Registration, access control, the audit log and ``docs/request-codes.md`` follow from these declarations.
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
        """Return the typed header in a command's ``extFields``.

        Raises:
            RefusedError: SYSTEM_ERROR, a required field is missing.
        """
        ...


H = TypeVar("H", bound=Header)


class RequestChannel(Channel, Protocol):
    """The connection that a request came by. Loop thread. Compared and hashed by identity."""

    remote_host: str
    """The peer's address without its port."""
    packed_host: bytes
    """The peer's address and port as records hold them."""
    local_host: str
    """The address that the peer connected to."""
    local_port: int
    """The port that the peer connected to."""
    read_s: float
    """When the peer's last bytes were read, on the monotonic clock."""
    is_stalled: bool
    """Whether so much waits for the peer to read that it is answered no more until it does."""

    def respond(self, to: Request, answer: Response) -> None:
        """Answer a request, unless it is one-way. The answer leaves with the next :meth:`flush`.

        Raises:
            TypeError: the answer is not a :class:`Response`, or something in it has a wrong type; nothing is sent.
        """
        ...

    def refuse(self, to: Request, error: RefusedError) -> None:
        """Answer a request with a refusal's code and remark."""
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Gather one whole encoded answer for the next :meth:`flush`; drop it when the connection is closed."""
        ...

    def write_all(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Gather several whole encoded answers at once."""
        ...

    def flush(self) -> None:
        """Hand all gathered answers to the socket in one write."""
        ...

    def took(self, count: int) -> None:
        """Count requests whose answers are due later; too many of them stop the reading of the connection."""
        ...

    def gave(self, count: int) -> None:
        """Count answers to requests that :meth:`took` counted; reading continues when enough of them are answered."""
        ...


class Request(msgspec.Struct, gc=False):
    """One decoded request of a client. Read-only by convention; made per frame."""

    channel: RequestChannel
    code: int
    opaque: int
    flag: int
    version: int
    """Ordinal of the client's version."""
    language: str
    codec: int
    ext_fields: dict[str, str] | None
    """None also when the header was decoded straight into ``typed``."""
    body: bytes
    typed: Header | None = None
    """The typed header, when the frame was decoded by :mod:`flintmq.remoting.wire.fast_json`."""
    read_s: float = 0.0
    """When it was read, on the monotonic clock, where its answer comes later; 0 where its channel's last read brought it."""

    @property
    def is_oneway(self) -> bool:
        """Return True when no answer may be sent."""
        return bool(self.flag & ONEWAY_FLAG)

    def header(self, model: type[H]) -> H:
        """Return the typed header.

        Raises:
            RefusedError: SYSTEM_ERROR, a required field is missing.
        """
        typed = self.typed
        return typed if isinstance(typed, model) else model.of_fields(self.ext_fields)


class Response(msgspec.Struct):
    """What is answered. The server adds opaque, codec and flag."""

    code: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""


Handler = Callable[[Request], Awaitable[Response | None] | Response | None]
"""Answers one request; None means that no answer is due now (held pulls, one-way requests)."""
BatchHandler = Callable[[list[Request]], None]
"""Takes all requests of one read that it is registered for, and answers each through its channel."""


class RequestProcessor(Protocol):
    """Answers requests one by one. See ``flintmq_request_processors`` for the thread that calls the handlers."""

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each request code; asked once, when the server is put together."""
        ...


class BatchProcessor(Protocol):
    """Answers all requests of one read together. Loop thread."""

    may_wait: ClassVar[bool]
    """True when requests may be put off to a later iteration of the loop because this one takes long."""

    def process(self, batch: list[Request]) -> None:
        """Take the requests of one read, all of one code, and answer each through its channel, now or later.

        A request whose answer comes later is counted with ``channel.took`` and, when it is answered, ``channel.gave``.
        """
        ...


class DefaultProcessor(Protocol):
    """Answers the codes that no request processor answers."""

    def handle(self, request: Request) -> Awaitable[Response | None] | Response | None:
        """Answer one request, or return None when no answer is due; plain or ``async def``."""
        ...


DefaultProcessorFactory = Callable[..., DefaultProcessor]
"""A factory that returns a default processor. It is called with a :class:`~flintmq.core.kernel.hookspecs.ApiContext`."""

ProcessorFactory = Callable[..., RequestProcessor | BatchProcessor]
"""A factory that returns a processor. It is called with a :class:`~flintmq.core.kernel.hookspecs.ApiContext`."""


LOOP_POOLS: Final = frozenset(
    ("send", "pull", "reply", "end_transaction", "query", "heartbeat", "client", "consumer", "admin")
)
"""The broker's own pools: bounded queues of requests that the loop handles. A pool of any other name has threads."""
THREADS_DEFAULT: Final = 4
THREADS_MAX: Final = 256


class RequestDeclaration(msgspec.Struct, frozen=True):
    """The facts of one request code at one server: everything that is said about it is derived from here."""

    code: int
    header: type[Header] | None = None
    """The typed header of the request; None for one without fields."""
    answer: type[Header] | None = None
    """The typed header of the answer; None for one without fields."""
    pool: str = "admin"
    """The bounded queue its requests wait in."""
    needs: AccessRule | None = None
    """What access control asks of the sender; None refuses everybody, unless ``acl.extra_codes`` names the code."""
    audited: bool = False
    """True for an administrative act, which leaves a line in the audit log."""
    summary: str = ""
    """One line of documentation: the first sentence of the handler's docstring."""

    def under(self, other: RequestDeclaration) -> RequestDeclaration:
        """Return this declaration with the rule and the audit of a built-in one whose code it takes over without own facts."""
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
    """Declare that the decorated method answers a request code; one method may declare several.

    Args:
        code: the request code.
        header: the typed header of the request.
        answer: the typed header of the answer.
        pool: the bounded queue its requests wait in (see ``flintmq_request_processors``).
        needs: what access control asks of the sender.
        audited: whether each request leaves a line in the audit log.
    """

    def declare(method: F) -> F:
        summary = (method.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        one = RequestDeclaration(int(code), header, answer, pool, needs, audited, " ".join(summary.split()))
        setattr(method, _DECLARED, (one, *getattr(method, _DECLARED, ())))
        return method

    return declare


def _declaring(processor: type) -> dict[str, tuple[RequestDeclaration, ...]]:
    """Return the declarations of a class's methods, by the method's name."""
    found: dict[str, tuple[RequestDeclaration, ...]] = {}
    for parent in reversed(processor.__mro__):
        for name, member in vars(parent).items():
            declared = getattr(member, _DECLARED, None)
            if declared is not None:
                found[name] = declared
    return found


def declared_by(processor: type) -> tuple[RequestDeclaration, ...]:
    """Return what the methods of a processor's class declare with :func:`handles`, in the order of definition."""
    return tuple(one for declared in _declaring(processor).values() for one in declared)


class DeclaredProcessor:
    """The base of processors whose methods declare the codes they answer with :func:`handles`."""

    def handlers(self) -> dict[int, Handler]:
        """Return the declaring method of each code."""
        return {one.code: getattr(self, name) for name, declared in _declaring(type(self)).items() for one in declared}
