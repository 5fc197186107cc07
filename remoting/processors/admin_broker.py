"""Returns a broker's settings, runtime figures and statistics to tools, and changes settings at run time.

See docs/internals/protocol.md, Request codes and Runtime figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs
import msgspec

from flintmq.config.runtime import RUNTIME_KEYS, as_properties, evolve
from flintmq.config.units import size_text
from flintmq.core.broker.api import BrokerApi
from flintmq.core.broker.stats_table import SAMPLE_INTERVAL_S
from flintmq.core.io.config_manager import DataVersion
from flintmq.core.kernel.ports.access import ADMIN
from flintmq.core.kernel.ports.processor import DeclaredProcessor, Request, Response, handles
from flintmq.core.record.bloom import BloomFilter
from flintmq.core.retention.retention import DiskUsage
from flintmq.core.store.opened_store import commit_log_folders
from flintmq.remoting.processors.answers import (
    changed,
    format_properties,
    read_properties,
    with_header,
)
from flintmq.remoting.wire import bodies
from flintmq.remoting.wire.codes import MQ_VERSION, RequestCode, version_name
from flintmq.remoting.wire.headers_admin import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from flintmq.remoting.wire.refusal import system_error


class AdminBrokerProcessor(DeclaredProcessor):
    """Answers tools' requests about a broker's settings, runtime figures and statistics. Used only on the event loop's thread.

    The runtime figures come from several parts of the broker. The constructor adds the figures that :class:`RuntimeInfo`
    collects, and starts a timer that samples them.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._version = DataVersion(timestamp_ms=api.clock.now_ms(), counter=0)
        own = RuntimeInfo(api)
        api.figures.add(own.texts, first=True)
        api.work.every(SAMPLE_INTERVAL_S, own.sample, "runtime figures")

    @handles(RequestCode.UPDATE_BROKER_CONFIG, needs=ADMIN, audited=True)
    def update_config(self, request: Request) -> Response:
        """Change the broker's settings that a request names in its body, while the broker runs.

        If one setting is refused, none is changed. Only settings that :mod:`flintmq.config.runtime` lists may be changed.
        """
        changes = read_properties(request.body)
        self._api.settings.update(changed(self._api.settings.current, changes, RUNTIME_KEYS, evolve))
        self._version = self._version.next(self._api.clock)
        return Response()

    @handles(RequestCode.GET_BROKER_CONFIG, answer=GetBrokerConfigResponseHeader, needs=ADMIN)
    def get_config(self, _request: Request) -> Response:
        """Return every setting of the broker under RocketMQ's name, without secrets."""
        version = msgspec.json.encode(self._version).decode()
        settings, role = self._api.settings.current, self._api.role
        pull = settings.pull
        told = as_properties(settings)
        told["brokerRole"], told["brokerId"] = role.kind.upper(), str(role.broker_id)
        told["bitMapLengthConsumeQueueExt"] = str(BloomFilter(pull.max_error_rate, pull.expect_consumer_num).bit_num)
        body = format_properties(dict(sorted(told.items())))
        return with_header(GetBrokerConfigResponseHeader(version=version), body)

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO, needs=ADMIN)
    def get_runtime_info(self, _request: Request) -> Response:
        """Return the broker's runtime figures as a ``KVTable``, which ``mqadmin brokerStatus`` shows."""
        return Response(body=bodies.KVTable(self._api.figures.texts()).encode())

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, header=ViewBrokerStatsDataRequestHeader, needs=ADMIN)
    def view_stats(self, request: Request) -> Response:
        """Return the sum and the rates of a statistics counter over the last minute, the last hour and the last day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        found = self._api.figures.counts.table.view(header.stats_name, header.stats_key)
        if found is None:
            raise system_error(
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist", reason="stats.missing"
            )
        minute, hour, day = (bodies.BrokerStatsItem(span.avgpt, span.sum, span.tps) for span in found)
        return Response(body=bodies.BrokerStatsData(day, hour, minute).encode())


_SPANS_S: Final = (10, 60, 600)
_SAMPLE_S: Final = 10
_NO_POOL_BUFFERS: Final = 2**31 - 1
"""Number of free buffers that RocketMQ reports if it has no transient store pool."""


ALARM: Final = "flintAlarm"
"""Name of an entry in the broker's runtime info that exists only while the store has a fault. The entry's value is the text
with which the broker refuses sends."""


@attrs.frozen
class _Totals:
    at_s: float
    put: int
    found: int
    missed: int
    handed_out: int


class RuntimeInfo:
    """Collects the broker's runtime figures. Used only on the event loop's thread.

    A timer of the object's owner calls :meth:`sample` every 10 s.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self._samples: deque[_Totals] = deque(maxlen=_SPANS_S[-1] // _SAMPLE_S + 1)
        self._day = self._today()
        self._put_mornings = (0, 0)
        self._get_mornings = (0, 0)
        self.sample()

    def _today(self) -> int:
        return datetime.fromtimestamp(self._api.clock.now_ms() // 1000).toordinal()

    def _totals(self) -> _Totals:
        stats = self._api.figures.counts
        now_s = self._api.clock.monotonic_s()
        return _Totals(now_s, stats.put_messages, stats.get_found, stats.get_missed, stats.get_messages)

    def sample(self) -> None:
        """Record the current values of the message counters, from which rates per second are computed later.

        The first call of a day also records the values as the start of the day's totals.
        """
        now = self._totals()
        self._samples.append(now)
        today = self._today()
        if today != self._day:
            self._day = today
            self._put_mornings = (self._put_mornings[1], now.put)
            self._get_mornings = (self._get_mornings[1], now.handed_out)

    def texts(self) -> dict[str, str]:
        """Return the broker's runtime figures as text, keyed by RocketMQ's names."""
        own = self._identity() | self._rates() | self._days() | self._store() | self._disk()
        return {name: str(value) for name, value in own.items()} | self._api.clients.consumers.runtime_info()

    def _identity(self) -> dict[str, object]:
        boot_ms = self._api.figures.counts.boot_timestamp_ms
        minutes, seconds = divmod(max(0, self._api.clock.now_ms() - boot_ms) // 1000, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return {
            "brokerVersion": MQ_VERSION,
            "brokerVersionDesc": version_name(MQ_VERSION),
            "bootTimestamp": boot_ms,
            "startAcceptSendRequestTimeStamp": 0,
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
        }

    def _rates(self) -> dict[str, object]:
        now = self._totals()
        starts = []
        for span_s in _SPANS_S:
            old = [sample for sample in self._samples if now.at_s - sample.at_s >= span_s]
            if old:
                starts.append(old[-1])
        starts = starts or [self._samples[0]]
        return {
            "putTps": _tps((now.put - s.put, now.at_s - s.at_s) for s in starts),
            "getFoundTps": _tps((now.found - s.found, now.at_s - s.at_s) for s in starts),
            "getMissTps": _tps((now.missed - s.missed, now.at_s - s.at_s) for s in starts),
            "getTotalTps": _tps((now.found + now.missed - s.found - s.missed, now.at_s - s.at_s) for s in starts),
            "getTransferedTps": _tps((now.handed_out - s.handed_out, now.at_s - s.at_s) for s in starts),
        }

    def _days(self) -> dict[str, object]:
        stats = self._api.figures.counts
        return {
            "msgPutTotalYesterdayMorning": self._put_mornings[0],
            "msgPutTotalTodayMorning": self._put_mornings[1],
            "msgPutTotalTodayNow": stats.put_messages,
            "msgGetTotalYesterdayMorning": self._get_mornings[0],
            "msgGetTotalTodayMorning": self._get_mornings[1],
            "msgGetTotalTodayNow": stats.get_messages,
        }

    def _store(self) -> dict[str, object]:
        log, stats = self._api.log, self._api.figures.counts
        marks, trouble, buffers = log.marks, log.health.trouble, log.health.free_pool_buffers
        is_empty = marks.wrote <= log.min_offset_bytes
        return {
            "commitLogMinOffset": log.min_offset_bytes,
            "commitLogMaxOffset": marks.wrote,
            "earliestMessageTimeStamp": -1 if is_empty else log.store_timestamp_ms(log.min_offset_bytes),
            "dispatchBehindBytes": log.health.behind_bytes,
            "dispatchMaxBuffer": 0,
            **({ALARM: trouble.remark} if trouble is not None else {}),
            "remainHowManyDataToCommit": size_text(max(0, marks.wrote - marks.committed)),
            "remainHowManyDataToFlush": size_text(max(0, marks.wrote - marks.flushed)),
            "remainTransientStoreBufferNumbs": _NO_POOL_BUFFERS if buffers is None else buffers,
            "pageCacheLockTimeMills": 0,
            "putMessageTimesTotal": stats.put_messages,
            "putMessageFailedTimes": stats.put_failed,
            "droppedMessages": stats.dropped,
            "putMessageSizeTotal": stats.put_bytes,
            "putMessageAverageSize": stats.put_bytes / stats.put_messages if stats.put_messages else 0.0,
            "putMessageDistributeTime": stats.put_times_text(),
            "putLatency99": f"{stats.put_latency_ms(0.99):.2f}",
            "putLatency999": f"{stats.put_latency_ms(0.999):.2f}",
            "putMessageEntireTimeMax": round(stats.put_time_max_s * 1000),
            "getMessageEntireTimeMax": round(stats.get_time_max_s * 1000),
        }

    def _disk(self) -> dict[str, object]:
        folder = self._api.folder.path
        root = self._usage(folder)
        logs = [self._usage(path) for path in commit_log_folders(self._api.settings.current.store)]
        return {
            "commitLogDiskRatio": f"{min(usage.used_ratio for usage in logs):.2f}",
            **{f"commitLogDiskRatio_{usage.folder}": f"{usage.used_ratio:.2f}" for usage in logs},
            "consumeQueueDiskRatio": f"{self._usage(folder / 'consumequeue').used_ratio:.2f}",
            "commitLogDirCapacity": f"Total : {size_text(root.total_bytes)}, Free : {size_text(root.free_bytes)}.",
        }

    def _usage(self, folder: Path) -> DiskUsage:
        return DiskUsage(folder, *self._api.folder.disk.usage(folder))


def _tps(pairs: Iterable[tuple[int, float]]) -> str:
    return " ".join(str(count / max(span_s, 0.001)) for count, span_s in pairs)
