"""Answers questions about the broker and changes its settings at run time.

See docs/internals/protocol.md, Request codes and Runtime figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from flintmq.config.errors import ConfigError
from flintmq.config.runtime import RUNTIME_KEYS, as_properties, evolve
from flintmq.core.broker.data_version import DataVersion
from flintmq.core.broker.state import BrokerState
from flintmq.core.broker.stats_table import StatsSpan
from flintmq.core.errors import RefusedError
from flintmq.core.filter.bloom import BloomFilter
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.response_code import ResponseCode
from flintmq.remoting.processors.answers import (
    check_changeable,
    format_properties,
    read_properties,
    with_header,
)
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import RequestCode
from flintmq.remoting.wire.headers_admin import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader


class StatsView(Protocol):
    """Counters that can be looked at: :class:`flintmq.core.broker.stats_table.StatsTable`."""

    def view(self, name: str, key: str) -> tuple[StatsSpan, StatsSpan, StatsSpan] | None: ...


class AdminBrokerProcessor(DeclaredProcessor):
    """Answers about settings, runtime figures and statistics. Loop thread.

    Args:
        state: the broker's.
        runtime_info: the figures of 28, such as those of :class:`flintmq.remoting.processors.runtime_info.RuntimeInfo`.
        stats: the counters of 315.
    """

    def __init__(
        self,
        state: BrokerState,
        runtime_info: Callable[[], Mapping[str, str]],
        stats: StatsView,
    ) -> None:
        self._state = state
        self._runtime_info = runtime_info
        self._stats = stats
        self._version = DataVersion(timestamp_ms=state.clock.now_ms(), counter=0)

    @handles(RequestCode.UPDATE_BROKER_CONFIG, needs=ADMIN, audited=True)
    def update_config(self, request: Request) -> Response:
        """Change settings while the broker runs: all of them or none.

        What may be changed is an allow-list (see :mod:`flintmq.config.runtime`).
        """
        changes = read_properties(request.body)
        check_changeable(changes, RUNTIME_KEYS, frozenset(entry.key for entry in RUNTIME_KEYS.values()))
        try:
            config = evolve(self._state.config, changes)
        except ConfigError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error), reason="config.value") from error
        self._state.update_config(config)
        self._version = self._version.next(self._state.clock)
        return Response()

    @handles(RequestCode.GET_BROKER_CONFIG, answer=GetBrokerConfigResponseHeader, needs=ADMIN)
    def get_config(self, _request: Request) -> Response:
        """Return every setting under RocketMQ's name, without secrets."""
        version = msgspec.json.encode(self._version).decode()
        pull = self._state.config.pull
        told = as_properties(self._state.config)
        told["bitMapLengthConsumeQueueExt"] = str(BloomFilter(pull.max_error_rate, pull.expect_consumer_num).bit_num)
        body = format_properties(dict(sorted(told.items())))
        return with_header(GetBrokerConfigResponseHeader(version=version), body)

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO, needs=ADMIN)
    def get_runtime_info(self, _request: Request) -> Response:
        """Return the broker's runtime figures."""
        return Response(body=bodies.KVTable(dict(self._runtime_info())).encode())

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, header=ViewBrokerStatsDataRequestHeader, needs=ADMIN)
    def view_stats(self, request: Request) -> Response:
        """Return one counter for the last minute, hour and day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        found = self._stats.view(header.stats_name, header.stats_key)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
                reason="stats.missing",
            )
        minute, hour, day = (bodies.BrokerStatsItem(span.avgpt, span.sum, span.tps) for span in found)
        return Response(body=bodies.BrokerStatsData(day, hour, minute).encode())
