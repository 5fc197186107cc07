"""Checks that a request processor follows the rules of its interface,
:class:`~flintmq.core.kernel.ports.processor.RequestProcessor` or
:class:`~flintmq.core.kernel.ports.processor.BatchProcessor`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs

from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import (
    BatchProcessor,
    Handler,
    Request,
    RequestChannel,
    RequestDeclaration,
    RequestProcessor,
    Response,
)
from flintmq.testing.failure import expect

_WAIT_S = 5.0
_CODE_MAX = 2**15


class RecordingChannel:
    """A :class:`flintmq.core.kernel.ports.channel.Channel` that keeps the requests that a processor sends over the channel."""

    def __init__(self, remote_address: str = "127.0.0.1:40000") -> None:
        self.remote_address = remote_address
        self.is_open = True
        self.sent: list[tuple[int, dict[str, str], bytes]] = []
        """Code, header and body of each one-way request that was sent over the channel, in order."""

    def send_oneway(self, code: int, header: Mapping[str, str], body: bytes = b"") -> None:
        if self.is_open:
            self.sent.append((code, dict(header), body))

    def close(self, reason: str) -> None:
        self.is_open = False


class AnswerRecorder(RecordingChannel):
    """A :class:`~flintmq.core.kernel.ports.processor.RequestChannel` that keeps the answers of a request processor."""

    def __init__(self, remote_address: str = "127.0.0.1:40000") -> None:
        super().__init__(remote_address)
        self.remote_host = remote_address.rpartition(":")[0]
        self.packed_host = b"\x7f\0\0\1\0\0\x9c\x40"
        self.local_host, self.local_port = "127.0.0.1", 10911
        self.is_stalled = False
        self.read_s = 0.0
        self.answers: list[tuple[int, Response]] = []
        """The answers that the processor gave, in order, each with the opaque of the answered request."""
        self.due = 0
        """Number of requests that the processor has received and not answered yet."""

    def respond(self, to: Request, answer: Response) -> None:
        """Keep an answer of the request processor for the checks of this module."""
        self.answers.append((to.opaque, answer))

    def refuse(self, to: Request, error: RefusedError) -> None:
        """Add the error answer to a refused request to :attr:`answers`, with the code and remark that a client would get."""
        self.respond(to, Response(error.code, error.remark))

    def took(self, count: int) -> None:
        """Count requests that the processor has received and will answer later."""
        self.due += count

    def gave(self, count: int) -> None:
        """Count the processor's answers to requests that were to be answered later."""
        self.due -= count

    def flush(self) -> None:
        """Do nothing at a flush: the channel keeps the answers and sends none."""


@attrs.frozen
class Sample:
    """One sample request that a processor must answer."""

    code: int
    ext_fields: Mapping[str, str] = {}
    body: bytes = b""


def check_request_processor(
    make: Callable[[], RequestProcessor | BatchProcessor],
    declarations: Sequence[RequestDeclaration],
    samples: Sequence[Sample],
) -> list[Response]:
    """Run every check of a request processor, on a new event loop.

    Args:
        make: returns the processor; called on the loop's thread.
        declarations: the request codes that the processor is registered for; see
            :func:`flintmq.core.kernel.ports.processor.declared_by`.
        samples: at least one request for each declared code.

    Returns:
        The answer to each sample, for the caller's own assertions.

    Raises:
        KitFailure: names the broken rule.
    """

    async def check() -> list[Response]:
        return await check_in_loop(make(), declarations, samples)

    return asyncio.run(check())


async def check_in_loop(
    processor: RequestProcessor | BatchProcessor,
    declarations: Sequence[RequestDeclaration],
    samples: Sequence[Sample],
) -> list[Response]:
    """Run every check of :func:`check_request_processor` on the running loop, for example the loop of an embedded broker."""
    declared = {one.code: one for one in declarations}
    expect(len(declared) == len(declarations), "each code is declared once", sorted(one.code for one in declarations))
    asked = {sample.code for sample in samples}
    expect(asked == set(declared), "there are samples of the declared codes and of no others", sorted(asked))
    handlers: Mapping[int, Handler] | None = None
    if not hasattr(processor, "process"):
        handlers = processor.handlers()
        missing = sorted(set(declared) - set(handlers))
        expect(not missing, "there is a handler of every declared code", missing)
    answers: list[Response] = []
    for sample in samples:
        answer = await _answer(processor, handlers, sample)
        _check_answer(sample, answer)
        answers.append(answer)
    for one in declared.values():
        if one.header is not None and _has_required(one.header):
            answer = await _answer(processor, handlers, Sample(one.code))
            expect(answer.code != 0, f"a request {one.code} without its required fields is refused", answer)
    return answers


async def _answer(
    processor: RequestProcessor | BatchProcessor, handlers: Mapping[int, Handler] | None, sample: Sample
) -> Response:
    channel = AnswerRecorder()
    fields = dict(sample.ext_fields)
    request = Request(cast("RequestChannel", channel), sample.code, 7, 0, 407, "JAVA", 0, fields, sample.body)
    try:
        if handlers is None:
            process: Callable[[list[Request]], object] = cast("BatchProcessor", processor).process
            returned: Any = process([request])
            expect(returned is None, "process(batch) answers through the channel and returns None", returned)
        else:
            returned = handlers[sample.code](request)
            if inspect.isawaitable(returned):
                async with asyncio.timeout(_WAIT_S):
                    returned = await returned
            if returned is not None:
                channel.answers.append((request.opaque, returned))
    except RefusedError as error:
        channel.refuse(request, error)
    await _until_answered(channel)
    expect(len(channel.answers) == 1, f"a request {sample.code} is answered once", channel.answers)
    ((opaque, answer),) = channel.answers
    expect(opaque == request.opaque, "an answer belongs to its request", opaque)
    expect(channel.due == 0, "every took() has its gave()", channel.due)
    expect(
        fields == sample.ext_fields and request.body == sample.body, "a processor leaves its request as it is", fields
    )
    return answer


async def _until_answered(channel: AnswerRecorder) -> None:
    """Run the event loop until the processor has answered, for :data:`_WAIT_S` at most."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _WAIT_S
    while not channel.answers and loop.time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(0)


def _check_answer(sample: Sample, answer: Response) -> None:
    code = sample.code
    expect(isinstance(answer, Response), f"a handler of {code} returns a Response", type(answer).__name__)
    expect(type(answer.code) is not bool and isinstance(answer.code, int), f"the code of an answer to {code} is an int")
    expect(-_CODE_MAX <= answer.code < _CODE_MAX, f"the code of an answer to {code} has 16 bits", answer.code)
    expect(isinstance(answer.body, (bytes, bytearray, memoryview)), f"the body of an answer to {code} is bytes")
    expect(answer.remark is None or isinstance(answer.remark, str), f"the remark of an answer to {code} is text")
    texts = [text for pair in (answer.ext_fields or {}).items() for text in pair]
    expect(all(isinstance(text, str) for text in texts), f"the fields of an answer to {code} are text", texts)


def _has_required(header: type) -> bool:
    """Return whether a request header has required fields, so that a request without fields cannot be decoded."""
    try:
        header.of_fields({})  # type: ignore[attr-defined]
    except RefusedError:
        return True
    return False
