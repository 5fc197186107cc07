"""A request processor that answers pulls, and holds a pull that finds no message."""

from __future__ import annotations

from functools import partial

import msgspec

from flintmq.core.broker.api import BrokerApi
from flintmq.protocol import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    DeclaredProcessor,
    Empty,
    Found,
    HeldPull,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    RefusedError,
    Request,
    RequestCode,
    Response,
    Wanted,
    encode_header,
    handles,
    needs,
    places_of,
)

_pulls = partial(
    handles,
    header=PullMessageRequestHeader,
    answer=PullMessageResponseHeader,
    pool="pull",
    needs=needs.topic_and_group(),
)


class PlainPull(DeclaredProcessor):
    """Answers pulls. ``BrokerApi.outlet``, the broker's reader of queues, reads the messages of the answers. Used only on the
    event loop's thread."""

    def __init__(self, api: BrokerApi) -> None:
        self._outlet = api.outlet
        self._server = api.server

    @_pulls(RequestCode.PULL_MESSAGE)
    @_pulls(RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: Request) -> Response | None:
        """Return the answer to a pull, with messages of a queue; None if the pull is held and answered later."""
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
            header.commit_consumer_offset if flag & COMMIT_OFFSET else None,
        )
        pulled = self._outlet.pull(wanted)
        if not (flag & SUSPEND and pulled.may_wait):
            return _answer(pulled)
        again = partial(self._again, request, msgspec.structs.replace(wanted, commit_offset=None))
        self._outlet.hold(wanted, header.suspend_timeout_ms, again, places_of(request, header.subscription))
        return None

    def _again(self, request: Request, wanted: Wanted, _held: HeldPull) -> None:
        """Answer a held pull when its wait has ended, even if no message has arrived."""
        try:
            request.channel.respond(request, _answer(self._outlet.pull(wanted)))
        except RefusedError as error:
            request.channel.refuse(request, error)
        self._server.flush_soon(request.channel)


def _answer(pulled: Found | Empty) -> Response:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=pulled.suggested_broker_id,
        next_begin_queue_offset=pulled.next_queue_offset,
        min_queue_offset=pulled.min_queue_offset,
        max_queue_offset=pulled.max_queue_offset,
    )
    return Response(pulled.code, pulled.status, encode_header(header), b"".join(pulled.records))
