"""GET_ALL_DELAY_OFFSET (45): how far waiting messages were delivered (docs/replication.md)."""

from __future__ import annotations

from flintmq.core.broker.api import BrokerApi
from flintmq.core.kernel.ports import SupportsFollowing
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.remoting.processors.answers import wants_standard_json, with_json
from flintmq.remoting.wire.codes import RequestCode


class DelayOffsetProcessor(DeclaredProcessor):
    """Answers a slave that asks for the positions from which it delivers once it is the master. Loop thread."""

    def __init__(self, api: BrokerApi) -> None:
        self._api = api

    @handles(RequestCode.GET_ALL_DELAY_OFFSET, needs=ADMIN)
    def get_all_delay_offset(self, request: Request) -> Response:
        """Return the offsets of the delay levels, and the timers' positions where there are timers."""
        answer: dict[str, object] = {}
        for service in self._api.services_with(SupportsFollowing):  # type: ignore[type-abstract]
            answer |= service.positions_for_slaves()
        return with_json(answer, standard=wants_standard_json(request))
