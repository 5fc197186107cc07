"""The kit finds what would make a request processor fail in a broker, and passes one that keeps the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, declared_by, handles
from flintmq.remoting.wire.headers_message import ConsumerGroupRequestHeader
from flintmq.testing.failure import KitFailure
from flintmq.testing.processor_kit import Sample, check_in_loop, check_request_processor

FIELDS = {"consumerGroup": "G"}


class Greeter(DeclaredProcessor):
    """Keeps every rule; one handler waits."""

    @handles(20_001, header=ConsumerGroupRequestHeader, needs=ADMIN)
    def greet(self, request: Request) -> Response:
        """Greet a group."""
        return Response(remark=request.header(ConsumerGroupRequestHeader).consumer_group)

    @handles(20_002, needs=ADMIN)
    async def wait(self, request: Request) -> Response:
        """Greet later."""
        await asyncio.sleep(0)
        return Response(body=request.body)


class LateBatches:
    """A batch processor that answers with the loop's next iteration."""

    may_wait = False

    def process(self, batch: list[Request]) -> None:
        """Take everything, answer later."""
        batch[0].channel.took(len(batch))
        asyncio.get_running_loop().call_soon(self._answer, batch)

    def _answer(self, batch: list[Request]) -> None:
        for request in batch:
            request.channel.gave(1)
            request.channel.respond(request, Response(0))


def _broken(handler: Callable[[Any, Request], Any]) -> type[DeclaredProcessor]:
    """A processor with one handler."""
    return type("Broken", (DeclaredProcessor,), {"handle": handles(20_001, header=ConsumerGroupRequestHeader)(handler)})


def test_a_correct_processor_passes_the_test_kit_for_processors() -> None:
    """The kit also returns the answers, so that a test can check them."""
    samples = [Sample(20_001, FIELDS), Sample(20_002, body=b"b")]
    first, second = check_request_processor(Greeter, declared_by(Greeter), samples)
    assert (first.remark, second.body) == ("G", b"b")


def test_a_correct_batch_processor_passes_the_test_kit_for_processors() -> None:
    """The kit must wait for its answers, which come later."""
    (answer,) = check_request_processor(LateBatches, declared_by(Greeter)[1:], [Sample(20_002)])
    assert answer.code == 0


def test_the_test_kit_creates_and_checks_a_processor_on_the_same_event_loop() -> None:
    """One that needs the loop takes it when it is made; inside a broker the loop is there already."""
    loops: list[asyncio.AbstractEventLoop] = []

    class OnLoop(Greeter):
        def __init__(self) -> None:
            loops.append(asyncio.get_running_loop())

        async def wait(self, request: Request) -> Response:
            loops.append(asyncio.get_running_loop())
            return Response(body=request.body)

    samples = [Sample(20_001, FIELDS), Sample(20_002, body=b"b")]
    check_request_processor(OnLoop, declared_by(Greeter), samples)
    assert loops[0] is loops[1]

    async def inside() -> None:
        await check_in_loop(OnLoop(), declared_by(Greeter), samples)
        assert set(loops[2:]) == {asyncio.get_running_loop()}

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("handler", "rule"),
    [
        (lambda self, request: "hello", "returns a Response"),
        (lambda self, request: Response(body="hello"), "is bytes"),  # type: ignore[arg-type]
        (lambda self, request: Response(1 << 20), "16 bits"),
        (lambda self, request: Response(ext_fields={"n": 1}), "are text"),  # type: ignore[dict-item]
        (lambda self, request: Response(), "without its required fields is refused"),
        (lambda self, request: request.ext_fields.clear() or Response(), "leaves its request"),
        (lambda self, request: request.channel.respond(request, Response()) or Response(), "answered once"),
        (lambda self, request: request.channel.took(1) or Response(), r"every took\(\) has its gave\(\)"),
    ],
)
def test_the_test_kit_for_processors_reports_the_rule_that_a_faulty_processor_breaks(
    handler: Callable[[Any, Request], Any], rule: str
) -> None:
    """Each of these would cost a client its answer, or the broker its count."""
    broken = _broken(handler)
    with pytest.raises(KitFailure, match=rule):
        check_request_processor(broken, declared_by(broken), [Sample(20_001, FIELDS)])


def test_the_test_kit_for_processors_reports_a_declared_request_code_without_a_handler() -> None:
    """It is declared, so clients would send it."""
    with pytest.raises(KitFailure, match="handler of every declared code"):
        check_request_processor(DeclaredProcessor, declared_by(Greeter)[1:], [Sample(20_002)])


def test_the_test_kit_for_processors_requires_a_sample_request_for_each_declared_request_code() -> None:
    """A kit that tries nothing finds nothing."""
    with pytest.raises(KitFailure, match="samples of the declared codes"):
        check_request_processor(Greeter, declared_by(Greeter), [Sample(20_002)])
