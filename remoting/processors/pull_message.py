"""Answers pull requests at once, or holds them until messages arrive: PULL_MESSAGE (11), and LITE_PULL_MESSAGE (361) of
RocketMQ 5's clients.

See docs/internals/protocol.md, Pull.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.hold import HeldPull, places_of
from flintmq.core.broker.outlet import Empty, Found, Wanted
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports.processor import Request, Response, handles
from flintmq.core.response_code import ONEWAY_FLAG
from flintmq.remoting.processors import needs
from flintmq.remoting.server.rpc_latency import QUICK_S
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.command import JSON
from flintmq.remoting.wire.fast_json import encode_pull_response_json
from flintmq.remoting.wire.headers_message import PullMessageRequestHeader, PullMessageResponseHeader

COMMIT_OFFSET: Final = 0x1
"""Bit of a pull's ``sys_flag``: the pull contains the consumer offset to commit."""
SUSPEND: Final = 0x2
"""Bit of a pull's ``sys_flag``: the broker may hold the pull until a message arrives."""
SUBSCRIPTION: Final = 0x4
"""Bit of a pull's ``sys_flag``: the pull contains its subscription."""

_FOUND: Final = Found.status.encode("ascii")
_FLUSH_BYTES: Final = 1024 * 1024
"""Size in bytes at which the collected answers to pulls are written to the connection. Without this limit, much memory could be
needed, because one read of 256 KB from a socket may contain pulls whose answers are a thousand times as large."""

_handles_pulls: Final = partial(
    handles,
    header=PullMessageRequestHeader,
    answer=PullMessageResponseHeader,
    pool="pull",
    needs=needs.topic_and_group(),
)


class PullMessageProcessor:
    """Answers pull requests. A pull request that finds no message is held until messages arrive. Used only on the event loop's
    thread.

    The class corresponds to RocketMQ's ``PullMessageProcessor``.
    """

    may_wait: ClassVar = True
    """Whether the server may postpone pulls to later iterations of the loop, so that one peer does not delay the others."""

    def __init__(self, api: BrokerApi) -> None:
        self._clock = api.clock
        self._outlet = api.outlet
        self._server = api.server

    @_handles_pulls(RequestCode.PULL_MESSAGE)
    @_handles_pulls(RequestCode.LITE_PULL_MESSAGE)
    def process(self, batch: list[Request]) -> None:
        """Answer the pull requests that one read of a connection contained. Pull requests that find no message may be held.

        The answers are written after each megabyte, so that few bytes are buffered for a peer that does not read.
        """
        gathered_bytes = 0
        for number, request in enumerate(batch):
            if number and self._server.must_wait(request.channel):
                self._server.postpone(batch[number:])
                return
            gathered_bytes += self._process(request, was_held=False)
            if gathered_bytes >= _FLUSH_BYTES:
                request.channel.flush()
                if not request.channel.is_open:
                    return
                gathered_bytes = 0

    def _process(self, request: Request, *, was_held: bool) -> int:
        """Answer or hold one pull request, and return the size of the messages in the answer, in bytes. The result is 0 if the
        request is held or refused."""
        try:
            header = request.header(PullMessageRequestHeader)
            flag = header.sys_flag
            wanted = Wanted(
                header.topic,
                header.queue_id,
                header.queue_offset,
                header.consumer_group,
                request.channel,
                header.max_msg_nums,
                header.subscription or "" if flag & SUBSCRIPTION else None,
                header.expression_type,
                header.sub_version,
                header.commit_consumer_offset if flag & COMMIT_OFFSET and not was_held else None,
            )
            pulled = self._outlet.pull(wanted)
            if flag & SUSPEND and pulled.may_wait and not was_held:
                self._hold(request, header, wanted)
                return 0
        except RefusedError as error:
            request.channel.refuse(request, error)
            return 0
        self._answer(request, pulled, was_held=was_held)
        return pulled.size_bytes

    def _hold(self, request: Request, header: PullMessageRequestHeader, wanted: Wanted) -> None:
        request.read_s = request.channel.read_s
        wake = partial(self._resume, request)
        self._outlet.hold(wanted, header.suspend_timeout_ms, wake, places_of(request, header.subscription))

    def _resume(self, request: Request, _held: HeldPull) -> None:
        self._process(request, was_held=True)
        self._server.flush_soon(request.channel)

    def _answer(self, request: Request, pulled: Found | Empty, *, was_held: bool) -> None:
        channel, is_oneway = request.channel, request.flag & ONEWAY_FLAG
        as_bytes = request.codec == JSON and self._server.answers_as_bytes
        latency = self._server.latency
        if latency is not None and (as_bytes or is_oneway):
            took_s = self._clock.monotonic_s() - (request.read_s or channel.read_s)
            if pulled.code or was_held or is_oneway or took_s > QUICK_S:
                latency.add(request.code, pulled.code, took_s, was_held=was_held, is_oneway=bool(is_oneway))
        if is_oneway:
            return
        if as_bytes:
            channel.write(
                encode_pull_response_json(
                    request.opaque,
                    pulled.code,
                    pulled.suggested_broker_id,
                    pulled.next_queue_offset,
                    pulled.min_queue_offset,
                    pulled.max_queue_offset,
                    pulled.status.encode("ascii") if pulled.code else _FOUND,
                    pulled.size_bytes,
                )
            )
            channel.write_all(pulled.records)
            return
        fields = {
            "suggestWhichBrokerId": str(pulled.suggested_broker_id),
            "nextBeginOffset": str(pulled.next_queue_offset),
            "maxOffset": str(pulled.max_queue_offset),
            "minOffset": str(pulled.min_queue_offset),
        }
        channel.respond(request, Response(pulled.code, pulled.status, fields, b"".join(pulled.records)))
