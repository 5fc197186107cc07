"""Gathers the figures of a broker, step by step so that clients need not wait. Used only on the event loop's thread."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.stats import BROKER_GET_NUMS, BROKER_PUT_NUMS
from flintmq.core.broker.topic_name import SYSTEM_GROUP_PREFIX
from flintmq.core.errors import StoreError
from flintmq.core.io.clock import stopwatch_of, thread_time_of
from flintmq.plugins.metrics.families import FAMILIES
from flintmq.plugins.metrics.gather_groups import GroupGatherer
from flintmq.plugins.metrics.gather_topics import gather_topics
from flintmq.plugins.metrics.samples import Samples
from flintmq.remoting.server.rpc_latency import OTHER, RpcLatency
from flintmq.remoting.wire.codes import RequestCode, ResponseCode, version_name

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.exposition import Commons

_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}
_REMOTING: Final = "remoting"
SHARE: Final = 0.002
"""Maximum share of a processor core that gathering the figures of topics and groups may use. To keep this limit, scrapes reuse
figures that took long to gather."""


class Gatherer:
    """Gathers every figure that docs/metric-names.md names.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.latency = RpcLatency(api.figures.counts.found_pulls)
        """Histograms of the durations of remoting requests, keyed by request code and response code."""
        self._groups = GroupGatherer(api)
        self._many: Samples | None = None
        """Figures of topics and consumer groups, which several scrapes may share; None before the first scrape."""

    def commons(self, info: Mapping[str, str]) -> Commons:
        """Return the values of the labels that several metrics share, such as the names of the cluster and the broker. A key of
        the result is a tuple of labels' names; its value has the labels' values in the same order. Can be called from any
        thread.

        Args:
            info: the figures in the answer to GET_BROKER_RUNTIME_INFO (code 28), which contain the version and the boot time.
        """
        api, told = self._api, info
        cluster, name = api.settings.current.broker.cluster, api.settings.current.broker.name
        node, ip = (cluster, "broker", name), api.address.host_port
        version = told.get("brokerVersion", ""), told.get("brokerVersionDesc", "")
        return {
            ("cluster", "node_type", "node_id"): node,
            ("cluster", "node_type", "node_id", "storage_type", "storage_medium"): (*node, "local", "disk"),
            ("cluster", "brokerIP", "broker"): (cluster, ip, name),
            ("cluster", "broker"): (cluster, name),
            (): (),
            ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"): (
                *(cluster, ip, "", version[1], told.get("bootTimestamp", ""), version[0]),
            ),
        }

    def steps(self, samples: Samples) -> Iterator[None]:
        """Add the broker's figures to ``samples``, a part with each step of the returned iterator. The event loop may do other
        work between two steps."""
        self._store(samples)
        self._traffic(samples)
        self._requests(samples)
        yield
        # If the usage of the disk cannot be read, all other metrics are still served.
        with contextlib.suppress(StoreError):
            samples.info = self._api.figures.texts()
        yield
        self._published(samples)
        yield
        self._connections(samples)
        yield
        many = self._many
        now_s = stopwatch_of(self._api.clock)
        if many is None or many.spent_s < SHARE or now_s() - many.begun_s >= many.spent_s / SHARE:
            many = yield from self._gather_many(samples.room)
        samples.share(many)
        samples.add("flintmq_topics_age_seconds", now_s() - many.begun_s)

    def _gather_many(self, series_max: int) -> Generator[None, None, Samples]:
        """Gather the figures of topics and groups step by step, and return these figures."""
        many = Samples(series_max)
        worked_s = thread_time_of(self._api.clock)
        many.begun_s, begun_s = stopwatch_of(self._api.clock)(), worked_s()
        for _ in chain(gather_topics(self._api, many), self._groups.steps(many)):
            many.spent_s += worked_s() - begun_s
            yield
            begun_s = worked_s()
        many.spent_s += worked_s() - begun_s
        self._many = many
        return many

    def _store(self, samples: Samples) -> None:
        log, folder, now_ms = self._api.log, self._api.folder, self._api.clock.now_ms()
        marks, health = log.marks, log.health
        for name, position in (
            ("first", log.min_offset_bytes),
            ("wrote", marks.wrote),
            ("committed", marks.committed),
            ("flushed", marks.flushed),
            ("readable", marks.readable),
            ("dispatched", marks.dispatched),
        ):
            samples.add("flintmq_watermark_bytes", position, name)
        samples.add_all(
            (
                ("flintmq_fenced", int(marks.fence_reason is not None)),
                ("rocketmq_storage_flush_behind_bytes", marks.wrote - marks.flushed),
                ("rocketmq_storage_dispatch_behind_bytes", health.behind_bytes),
                ("flintmq_started_clean", int(health.started_clean)),
                ("flintmq_recovery_seconds", health.recovery_s),
            )
        )
        with contextlib.suppress(StoreError):
            samples.add("rocketmq_storage_size", folder.disk.usage(folder.path)[1])
        if marks.wrote > log.min_offset_bytes:
            age_ms = now_ms - log.store_timestamp_ms(log.min_offset_bytes)
            samples.add("rocketmq_storage_message_reserve_time", age_ms)
        samples.add_histogram("flintmq_sync_seconds", health.sync_s)
        samples.add_histogram("flintmq_commit_seconds", health.commit_s)
        recovered = health.recovered
        if recovered is not None:
            samples.add("flintmq_recovered_records", recovered.records)
            samples.add("flintmq_recovery_holes", len(recovered.holes))
            samples.add("flintmq_recovery_cuts", int(recovered.cut is not None))

    def _traffic(self, samples: Samples) -> None:
        api, stats = self._api, self._api.figures.counts
        samples.add_all(
            (
                ("flintmq_put_messages_total", stats.put_messages),
                ("flintmq_put_bytes_total", stats.put_bytes),
                ("flintmq_refused_messages_total", stats.put_failed),
                ("flintmq_dropped_messages_total", stats.dropped),
                ("flintmq_get_messages_total", stats.get_messages),
                ("flintmq_get_bytes_total", stats.get_bytes),
                ("rocketmq_broker_permission", api.settings.current.broker.permission),
                ("rocketmq_topic_number", len(api.topics)),
                ("rocketmq_consumer_group_number", len(api.groups)),
            )
        )
        samples.add("rocketmq_broker_tps", stats.table.tps(BROKER_PUT_NUMS, api.settings.current.broker.cluster))
        samples.add("rocketmq_broker_qps", stats.table.tps(BROKER_GET_NUMS, api.settings.current.broker.cluster))
        samples.add("flintmq_pulls_total", stats.get_found, "true")
        samples.add("flintmq_pulls_total", stats.get_missed, "false")
        figures = stats.figures
        if figures is not None:
            samples.add_histogram("flintmq_append_seconds", figures.append_s)
            samples.add_histogram("flintmq_append_messages", figures.messages)
            samples.add_histogram("flintmq_durable_seconds", figures.durable_s)

    def _requests(self, samples: Samples) -> None:
        for (code, answer, was_held, is_oneway), histogram in self.latency.by_kind().items():
            labels = _code_name(RequestCode, code), _code_name(ResponseCode, answer), str(was_held).lower()
            result = "oneway" if is_oneway else "success"
            samples.add_histogram("rocketmq_rpc_latency", histogram, _REMOTING, *labels, result)

    def _published(self, samples: Samples) -> None:
        for one in self._api.figures.measurements():
            family = FAMILIES.get(one.name)
            if family is None:
                samples.of_services.append(one)
            else:
                samples.add(one.name, one.value, *(one.labels[label] for label in family.labels))

    def _connections(self, samples: Samples) -> None:
        producers: Counter[tuple[str, ...]] = Counter()
        for group, members in self._api.clients.producers.groups():
            samples.add("rocketmq_producer_count", len(members), group)
            producers.update((one.language.lower(), version_name(one.version).lower()) for one in members)
        for labels, count in producers.items():
            samples.add("rocketmq_producer_connections", count, *labels, _REMOTING)
        for info in self._api.clients.consumers:
            name, mode = info.group_name, _MODES.get(info.consume_type, info.consume_type.lower())
            samples.add("rocketmq_group_count", len(info.members), name)
            is_system = "true" if name.upper().startswith(SYSTEM_GROUP_PREFIX) else "false"
            consumers = Counter((m.language.lower(), version_name(m.version).lower()) for m in info.members.values())
            for labels, count in consumers.items():
                samples.add("rocketmq_consumer_connections", count, name, *labels, mode, _REMOTING, is_system)


@lru_cache(1_000)
def _code_name(codes: type[IntEnum], code: int) -> str:
    """Return RocketMQ's name for a request or response code in lower case, or the number of a code without a name."""
    if code == OTHER:
        return "other"
    return codes(code).name.lower() if code in codes.__members__.values() else str(code)
