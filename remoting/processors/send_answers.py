"""The answers to sends: where a message was stored, or why it was not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.sink import not_durable
from flintmq.core.errors import RefusedError
from flintmq.core.kernel.ports import AppendedBatch, AppendUnit, DispatchRequest, FlushStatus
from flintmq.core.kernel.ports.processor import Request, RequestChannel, Response
from flintmq.core.kernel.ports.server import RequestPool
from flintmq.core.record.host import batch_message_id, offset_message_id
from flintmq.core.response_code import ONEWAY_FLAG, ResponseCode
from flintmq.remoting.wire.command import JSON
from flintmq.remoting.wire.fast_json import make_batch_ok_encoder, make_send_ok_encoder

_SUCCESS: Final = int(ResponseCode.SUCCESS)
Owner = tuple[Request, int]
"""A send, and the queue id that its answer names."""


class SendAnswers:
    """Answers the sends that a pool has taken. Loop thread.

    Args:
        api: the broker.
        pool: each answer makes room in it.
    """

    def __init__(self, api: BrokerApi, pool: RequestPool) -> None:
        self._api = api
        self._server = api.server
        self._pool = pool
        self._broker = api.settings.current.broker
        self._make_encoders()

    def _make_encoders(self) -> None:
        said = self._broker.region, self._broker.trace_on, self._api.address.packed_hex
        self._encode, self._encode_batch = make_send_ok_encoder(*said), make_batch_ok_encoder(*said)

    def stored(
        self,
        owners: Sequence[Owner],
        results: Sequence[AppendUnit | RefusedError],
        status: FlushStatus,
        began_s: float = 0.0,
    ) -> None:
        """Answer sends whose append is done and whose promise of durability ended so; the answers leave with :meth:`flush`.

        Successes in JSON are written as bytes, unless a plugin's hook wants to see every answer.

        Args:
            owners: the sends.
            results: what became of each.
            status: FLUSHED where they are as durable as promised, or nothing was promised.
            began_s: when their append began, where they have waited since; 0 for those of this turn.
        """
        if self._api.settings.current.broker is not self._broker:  # changed while running
            self._broker = self._api.settings.current.broker
            self._make_encoders()
        as_bytes = status is FlushStatus.FLUSHED and self._server.answers_as_bytes
        encode, encode_batch = self._encode, self._encode_batch
        singles: dict[RequestChannel, list[bytes | memoryview]] = {}
        batches: dict[RequestChannel, list[bytes | memoryview]] = {}
        answered: list[tuple[Request, list[bytes | memoryview]]] = []
        """A connection's answers with the first of their requests. All have its code: clients choose one for single sends."""
        for (request, queue_id), result in zip(owners, results, strict=True):
            if not as_bytes or request.codec != JSON or request.flag & ONEWAY_FLAG:
                self._respond(request, queue_id, result, status, began_s)
                continue
            if type(result) is DispatchRequest:
                answer = encode(request.opaque, queue_id, result.commit_log_offset_bytes, result.queue_offset)
                of_kind = singles
            elif type(result) is AppendedBatch:
                answer = encode_batch(request.opaque, queue_id, result.positions, result.queue_offset)
                of_kind = batches
            else:
                self._respond(request, queue_id, result, status, began_s)
                continue
            channel = request.channel
            if channel in of_kind:
                of_kind[channel].append(answer)
            else:
                of_kind[channel] = [answer]
                answered.append((request, of_kind[channel]))
        latency = self._server.latency
        now_s = 0.0 if latency is None else self._api.clock.monotonic_s()
        for request, answers in answered:
            channel = request.channel
            self._pool.waiting -= len(answers)
            channel.gave(len(answers))
            channel.write_all(answers)
            if latency is not None:
                latency.note(request.code, now_s - (began_s or channel.read_s), len(answers))

    def _respond(
        self,
        request: Request,
        queue_id: int,
        unit: AppendUnit | RefusedError,
        status: FlushStatus,
        began_s: float,
    ) -> None:
        request.read_s = began_s
        if isinstance(unit, RefusedError):
            self.refuse(request, unit)
            return
        channel = request.channel
        self._pool.waiting -= 1
        channel.gave(1)
        if request.flag & ONEWAY_FLAG:
            if self._server.latency is not None:
                took_s = self._api.clock.monotonic_s() - (began_s or channel.read_s)
                self._server.latency.add(request.code, _SUCCESS, took_s, is_oneway=True)
            return
        refusal = not_durable(status)
        if status is FlushStatus.FENCED and refusal is not None:
            channel.refuse(request, refusal)
            return
        host, broker = self._api.address.packed_hex, self._broker
        if isinstance(unit, DispatchRequest):
            message_id = offset_message_id(host, unit.commit_log_offset_bytes)
        else:
            message_id = batch_message_id(host, unit.positions)
        fields = {
            "queueId": str(queue_id),
            "TRACE_ON": "true" if broker.trace_on else "false",
            "MSG_REGION": broker.region,
            "msgId": message_id,
            "queueOffset": str(unit.queue_offset),
        }
        code, remark = (0, None) if refusal is None else (refusal.code, refusal.remark)
        if refusal is not None:
            self._api.figures.counts.undurable(refusal.reason)
        channel.respond(request, Response(code, remark, fields))

    def refuse(self, request: Request, error: RefusedError) -> None:
        """Answer a send whose message is not stored."""
        self._api.figures.counts.refused()
        self._pool.waiting -= 1
        request.channel.gave(1)
        request.channel.refuse(request, error)

    @staticmethod
    def flush(requests: Iterable[Request]) -> None:
        """Hand the answers of these sends to their sockets, one write for each connection."""
        for channel in {request.channel for request in requests}:
            channel.flush()
