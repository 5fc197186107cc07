"""Collects the alarms of brokers, and adds alarms that only an observer of the cluster can see. The functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from flintmq.core.broker.alarm_figures import ALARMS, alarms_of
from flintmq.core.broker.alarms import conflict, disk_used, gathered
from flintmq.core.errors import FlintError
from flintmq.core.kernel.ports.alarm import CRITICAL, WARNING, Alarm
from flintmq.programs.cluster_view.figures import main_figures
from flintmq.programs.cluster_view.memory import BrokerMemory
from flintmq.programs.cluster_view.values import BrokerView, GroupView, PlacedAlarm

NEARLY_FULL_RATIO: Final = 0.85
"""Used share of the log's disk from which RocketMQ deletes files by force (its setting diskSpaceCleanForciblyRatio)."""
FULL_RATIO: Final = 0.9
"""Used share of the log's disk from which RocketMQ refuses messages (its setting diskSpaceWarningLevelRatio)."""
NO_BROKER: Final = Alarm(
    "broker.none",
    CRITICAL,
    "",
    "the name servers know no broker: nobody can send or consume; start one, or look whether brokers name these name servers",
    key="namesrv.addresses",
)


def told_alarms(broker: BrokerMemory) -> tuple[PlacedAlarm, ...]:
    """Return the last alarms that a broker reported. A RocketMQ broker reports no alarms, so its alarms are computed from its
    figures and offsets."""
    try:
        found = alarms_of(broker.info) if ALARMS in broker.info else list(_of_silent(broker))
    except FlintError as error:
        found = [Alarm("alarms.unreadable", WARNING, "", str(error))]
    return tuple(_placed(alarm, broker.name, broker.address) for alarm in found)


def _of_silent(broker: BrokerMemory) -> Iterator[Alarm]:
    used_ratio = main_figures(broker.info)["disk_ratio"]
    disk = disk_used("commitlog", used_ratio, nearly_full_ratio=NEARLY_FULL_RATIO, full_ratio=FULL_RATIO)
    if disk is not None:
        yield disk
    yield from gathered(broker.lags.alarms(lambda group: _members(broker, group)))


def _members(broker: BrokerMemory, group: str) -> int | None:
    connected = broker.connected.get(group)
    return None if connected is None else len(connected.client_ids)


def all_alarms(
    brokers: Sequence[BrokerView], groups: Mapping[str, GroupView], *, is_empty: bool = False
) -> tuple[PlacedAlarm, ...]:
    """Return all alarms, critical ones first.

    Args:
        brokers: the brokers with the alarms that they report.
        groups: users' groups, keyed by name.
        is_empty: whether the name servers answer but know no broker.
    """
    told = {(alarm.id, alarm.subject) for broker in brokers for alarm in broker.alarms}
    seen = [alarm for alarm in gathered(_seen(groups)) if (alarm.id, alarm.subject) not in told]
    away = [broker for broker in brokers if broker.error and ("broker.missing", broker.name) not in told]
    found = [_placed(NO_BROKER, "", "")] if is_empty else []
    found += [_placed(_missing(broker), broker.name, broker.address) for broker in away]
    found += [alarm for broker in brokers for alarm in broker.alarms if not broker.error]
    found += [_placed(alarm, "", "") for alarm in seen]
    return tuple(sorted(found, key=lambda alarm: alarm.level != CRITICAL))


def _missing(broker: BrokerView) -> Alarm:
    text = f"{broker.name}:{broker.broker_id} does not answer: {broker.error}; look whether it runs and can be reached"
    (alarm,) = gathered([Alarm("broker.missing", CRITICAL, broker.name, text)])
    return alarm


def _seen(groups: Mapping[str, GroupView]) -> Iterator[Alarm]:
    for name, group in groups.items():
        if group.conflict:
            yield conflict(name, group.conflict)
        if group.stuck:
            first = group.stuck[0]
            text = (
                f"{name} does not come forward in {len(group.stuck)} queues although messages wait, for "
                f"{first.standing_s:.0f} s in {first.topic} {first.broker}:{first.queue_id}; look at the consumer that "
                "holds it"
            )
            yield Alarm("consumer.stuck", WARNING, name, text, sum(one.lag for one in group.stuck), "messages")


def _placed(alarm: Alarm, broker: str, address: str) -> PlacedAlarm:
    return PlacedAlarm(**attrs.asdict(alarm), broker=broker, address=address)
