"""Reads the figures of a broker. Loop thread; a little at a time."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final

from flintmq.core.broker.stats import BROKER_GET_NUMS, BROKER_PUT_NUMS
from flintmq.core.broker.topic_name import SYSTEM_GROUP_PREFIX
from flintmq.core.errors import StoreError
from flintmq.plugins.metrics.families import FAMILIES
from flintmq.plugins.metrics.gather_groups import GroupGatherer
from flintmq.plugins.metrics.gather_topics import gather_topics
from flintmq.plugins.metrics.samples import Samples
from flintmq.remoting.server.rpc_latency import OTHER
from flintmq.remoting.wire.codes import RequestCode, ResponseCode, version_name

if TYPE_CHECKING:
    from flintmq.core.broker.api import BrokerApi
    from flintmq.plugins.metrics.exposition import Commons
    from flintmq.programs.broker.broker import Broker

_PROCESSORS: Final = {
    "query": "query_message",
    "client": "client_manager",
    "end_transaction": "transaction",
    "consumer": "consumer_manager",
}
"""What RocketMQ calls some of the queues that requests wait in."""
_MODES: Final = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}
_REMOTING: Final = "remoting"
SHARE: Final = 0.002
"""Of a core, for the figures of topics and groups where there are many: those that took long are told for longer."""


class ProduceAccumulator:
    """Gathers every figure that docs/metric-names.md names.

    Args:
        api: the broker.
    """

    def __init__(self, api: BrokerApi) -> None:
        self._api = api
        self.broker: Broker | None = None
        """Known once the services have started."""
        self._groups = GroupGatherer(api)
        self._many: Samples | None = None
        """The figures of topics and groups, which several answers may share."""

    def commons(self, info: Mapping[str, str]) -> Commons:
        """Return the values of the labels that groups of metrics have in common. Any thread."""
        api, told = self._api, info
        cluster, name = api.config.broker.cluster, api.config.broker.name
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
        """Fill in the figures, by the names of the metrics; other work of the loop may come at each step."""
        self._store(samples)
        self._traffic(samples)
        if self.broker is not None:
            self._server(samples, self.broker)
            yield
            with contextlib.suppress(
                StoreError
            ):  # a disk that does not say how full it is hides that, and nothing else
                samples.info = self.broker.runtime_info()
            yield
            self._plugins(samples, self.broker)
        yield
        self._connections(samples)
        yield
        many = self._many
        if many is None or many.spent_s < SHARE or monotonic() - many.begun_s >= many.spent_s / SHARE:
            many = yield from self._gather_many(samples.room)
        samples.share(many)
        samples.add("flintmq_topics_age_seconds", monotonic() - many.begun_s)

    def _gather_many(self, series_max: int) -> Generator[None, None, Samples]:
        """Gather the figures of topics and groups, and return them."""
        many = Samples(series_max)
        many.begun_s, begun_s = monotonic(), thread_time()
        for _ in chain(gather_topics(self._api, many), self._groups.steps(many)):
            many.spent_s += thread_time() - begun_s
            yield
            begun_s = thread_time()
        many.spent_s += thread_time() - begun_s
        self._many = many
        return many

    def _store(self, samples: Samples) -> None:
        store, now_ms = self._api.store, self._api.clock.now_ms()
        marks, log = store.watermarks, store.commit_log
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
                ("rocketmq_storage_dispatch_behind_bytes", store.reput.behind_bytes),
                ("flintmq_started_clean", int(store.started_clean)),
                ("flintmq_recovery_seconds", store.recovery_s),
            )
        )
        with contextlib.suppress(StoreError):
            samples.add("rocketmq_storage_size", store.disk.usage(store.root)[1])
        if log.max_offset_bytes > log.min_offset_bytes:
            age_ms = now_ms - log.store_timestamp_ms(log.min_offset_bytes)
            samples.add("rocketmq_storage_message_reserve_time", age_ms)
        samples.add_histogram("flintmq_sync_seconds", log.durability.sync_s)
        samples.add_histogram("flintmq_commit_seconds", log.durability.commit_s)
        recovered = store.recovered
        if recovered is not None:
            samples.add("flintmq_recovered_records", recovered.records)
            samples.add("flintmq_recovery_holes", len(recovered.holes))
            samples.add("flintmq_recovery_cuts", int(recovered.cut is not None))

    def _traffic(self, samples: Samples) -> None:
        api, stats = self._api, self._api.stats
        samples.add_all(
            (
                ("flintmq_put_messages_total", stats.put_messages),
                ("flintmq_put_bytes_total", stats.put_bytes),
                ("flintmq_refused_messages_total", stats.put_failed),
                ("flintmq_dropped_messages_total", stats.dropped),
                ("flintmq_get_messages_total", stats.get_messages),
                ("flintmq_get_bytes_total", stats.get_bytes),
                ("flintmq_held_pulls", len(api.outlet.held)),
                ("rocketmq_broker_permission", api.config.broker.permission),
                ("rocketmq_topic_number", len(api.topics)),
                ("rocketmq_consumer_group_number", len(api.groups)),
            )
        )
        samples.add("rocketmq_broker_tps", stats.table.tps(BROKER_PUT_NUMS, api.config.broker.cluster))
        samples.add("rocketmq_broker_qps", stats.table.tps(BROKER_GET_NUMS, api.config.broker.cluster))
        samples.add("flintmq_pulls_total", stats.get_found, "true")
        samples.add("flintmq_pulls_total", stats.get_missed, "false")
        figures = stats.figures
        if figures is not None:
            samples.add_histogram("flintmq_append_seconds", figures.append_s)
            samples.add_histogram("flintmq_append_messages", figures.messages)
            samples.add_histogram("flintmq_durable_seconds", figures.durable_s)

    def _server(self, samples: Samples, broker: Broker) -> None:
        server = broker.server
        samples.add("flintmq_requests_total", server.processed)
        samples.add("flintmq_connections", len(server.connections.channels))
        if server.latency is not None:
            for (code, answer, was_held, is_oneway), histogram in server.latency.by_kind().items():
                labels = _code_name(RequestCode, code), _code_name(ResponseCode, answer), str(was_held).lower()
                result = "oneway" if is_oneway else "success"
                samples.add_histogram("rocketmq_rpc_latency", histogram, _REMOTING, *labels, result)
        refusals = Counter(server.refusals) + Counter(self._api.stats.not_durable)
        for reason, count in refusals.items():
            samples.add("flintmq_refusals_total", count, reason)
        for name, pool in broker.pools.by_name.items():
            samples.add("rocketmq_processor_watermark", pool.waiting, _PROCESSORS.get(name, name))

    def _plugins(self, samples: Samples, broker: Broker) -> None:
        busy_s: defaultdict[tuple[str, str], float] = defaultdict(float)
        calls: Counter[tuple[str, str]] = Counter()
        errors: Counter[tuple[str, str]] = Counter()
        for account in broker.kernel.ledger.all():
            key = account.owner.name, account.hook
            if account.errors:
                errors[key] += account.errors
            if not account.owner.built_in:
                calls[key] += account.calls
                busy_s[key] += account.busy_s
        told: tuple[tuple[str, Mapping[tuple[str, str], float]], ...]
        told = (("busy_seconds", busy_s), ("calls", calls), ("errors", errors))
        for name, counted in told:
            for (plugin, hook), figure in counted.items():
                samples.add(f"flintmq_plugin_{name}_total", figure, plugin, hook)
        for one in broker.metrics():
            family = FAMILIES.get(one.name)
            if family is None:
                samples.of_services.append(one)
            else:
                samples.add(one.name, one.value, *(one.labels[label] for label in family.labels))

    def _connections(self, samples: Samples) -> None:
        producers: Counter[tuple[str, ...]] = Counter()
        for group, members in self._api.producers.groups():
            samples.add("rocketmq_producer_count", len(members), group)
            producers.update((one.language.lower(), version_name(one.version).lower()) for one in members)
        for labels, count in producers.items():
            samples.add("rocketmq_producer_connections", count, *labels, _REMOTING)
        for info in self._api.consumers:
            name, mode = info.group_name, _MODES.get(info.consume_type, info.consume_type.lower())
            samples.add("rocketmq_group_count", len(info.members), name)
            is_system = "true" if name.upper().startswith(SYSTEM_GROUP_PREFIX) else "false"
            consumers = Counter((m.language.lower(), version_name(m.version).lower()) for m in info.members.values())
            for labels, count in consumers.items():
                samples.add("rocketmq_consumer_connections", count, name, *labels, mode, _REMOTING, is_system)


@lru_cache(1_000)
def _code_name(codes: type[IntEnum], code: int) -> str:
    """Return what RocketMQ calls a code; the number of one that it does not know."""
    if code == OTHER:
        return "other"
    return codes(code).name.lower() if code in codes.__members__.values() else str(code)
