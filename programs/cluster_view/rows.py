"""Makes the rows of lists of brokers, topics and groups from the state of brokers. The functions send no requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from flintmq.core.broker.perm import perm_text
from flintmq.core.broker.topic_name import RETRY_PREFIX
from flintmq.programs.broker.plugin_figures import plugins_of
from flintmq.programs.cluster_view import figures
from flintmq.programs.cluster_view.group_state import remembered_state
from flintmq.programs.cluster_view.memory import BrokerMemory
from flintmq.programs.cluster_view.names import kind_of_group, kind_of_topic
from flintmq.programs.cluster_view.poll import FIGURES, PROGRESS, TABLES, is_flintmq
from flintmq.programs.cluster_view.progress import lag_of
from flintmq.programs.cluster_view.values import BrokerView, GroupView, PlacedAlarm, StuckQueue, TopicView


def broker_row(broker: BrokerMemory, now_s: float, alarms: tuple[PlacedAlarm, ...]) -> BrokerView:
    """Return a broker's row for a list of brokers, without the broker's settings."""
    info, told = broker.info, figures.main_figures(broker.info)
    error = broker.error
    if not broker.answers:
        told |= {"put_per_s": None, "get_per_s": None}
    if not broker.is_registered:
        missing_s = round(now_s - broker.seen_s)
        error = f"no name server names it any more, for {missing_s} s{f'; {error}' if error else ''}"
    return BrokerView(
        cluster=broker.cluster,
        name=broker.name,
        broker_id=broker.broker_id,
        address=broker.address,
        error=error,
        age_s=broker.age_s(FIGURES, now_s),
        version=info.get("brokerVersionDesc", ""),
        is_flintmq=is_flintmq(broker),
        boot_timestamp_ms=figures.number(info, "bootTimestamp"),
        put_latency_99_ms=figures.put_latency_99_ms(info) if broker.answers else None,
        commit_log_min_offset_bytes=figures.number(info, "commitLogMinOffset"),
        commit_log_max_offset_bytes=figures.number(info, "commitLogMaxOffset"),
        replication=figures.replication_of(info),
        plugins=tuple(plugins_of(info).get("plugins", ())),
        alarms=alarms,
        figures=info,
        config=None,
        **told,
    )


def topic_rows(speakers: Sequence[BrokerMemory], now_s: float) -> dict[str, TopicView]:
    """Return the rows of all topics without the topics' queues, keyed by topic."""
    holders: dict[str, list[BrokerMemory]] = {}
    for broker in speakers:
        for topic in broker.topics:
            holders.setdefault(topic, []).append(broker)
    consumers: dict[str, set[str]] = {}
    lags: dict[str, int] = {}
    for group in {group for broker in speakers for group in (*broker.progress, *broker.beginning)}:
        for progress in remembered_state(group, speakers).progress:
            for topic in progress.topics:
                consumers.setdefault(topic, set()).add(group)
            for topic, lag in progress.lag_by_topic().items():
                lags[topic] = lags.get(topic, 0) + lag
    return {
        topic: _topic_row(topic, holders[topic], consumers.get(topic, ()), lags.get(topic, 0), now_s)
        for topic in sorted(holders)
    }


def _topic_row(
    topic: str, brokers: Sequence[BrokerMemory], groups: Collection[str], lag: int, now_s: float
) -> TopicView:
    configs = [broker.topics[topic] for broker in brokers]
    ends = [broker.ends.get(topic) for broker in brokers]
    known = [one for one in ends if one is not None]
    queues = [queue for one in known for queue in one.queues.values()]
    rates = [broker.topic_per_s(topic) if broker.answers else 0.0 for broker in brokers]
    told = [rate for rate in rates if rate is not None]
    is_whole = len(known) == len(ends)
    return TopicView(
        name=topic,
        kind=kind_of_topic(topic, [(broker.name, broker.cluster) for broker in brokers]),
        perm="/".join(dict.fromkeys(perm_text(config.perm) for config in configs)),
        read_queues=sum(config.read_queue_nums for config in configs),
        write_queues=sum(config.write_queue_nums for config in configs),
        brokers=tuple(broker.name for broker in brokers),
        missing=tuple(broker.name for broker in brokers if not broker.answers),
        put_per_s=sum(told) if len(told) == len(rates) else None,
        messages=sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues) if is_whole else None,
        last_write_ms=max((queue.last_update_timestamp_ms for queue in queues), default=0) if is_whole else None,
        groups=tuple(sorted(groups)),
        lag=lag if any(broker.age_s(PROGRESS, now_s) is not None for broker in brokers) else None,
        age_s=_oldest(broker.age_s(TABLES, now_s) for broker in brokers),
        queues=None,
    )


def group_rows(speakers: Sequence[BrokerMemory], now_s: float, stuck_s: float) -> dict[str, GroupView]:
    """Return the rows of all groups without their queues and members, keyed by group.

    Args:
        speakers: the brokers whose answers about groups are used.
        now_s: the current time.
        stuck_s: seconds without movement after which a queue counts as stuck.
    """
    holders: dict[str, list[BrokerMemory]] = {}
    for broker in speakers:
        for group in broker.groups:
            holders.setdefault(group, []).append(broker)
    odd = {group: ids for broker in speakers for group, ids in figures.odd_groups(broker.info).items()}
    return {group: _group_row(group, holders[group], odd.get(group, ""), now_s, stuck_s) for group in sorted(holders)}


def _group_row(group: str, brokers: Sequence[BrokerMemory], odd: str, now_s: float, stuck_s: float) -> GroupView:
    state = remembered_state(group, brokers)
    conflict = next((one.conflict for broker in brokers if (one := broker.connected.get(group)) and one.conflict), "")
    if odd and not conflict:
        conflict = f"{odd} differ from the others"
    topics = {topic for one in state.progress for topic in one.topics if not topic.startswith(RETRY_PREFIX)}
    return GroupView(
        name=group,
        kind=kind_of_group(group),
        brokers=tuple(broker.name for broker in brokers),
        missing=tuple(broker.name for broker in brokers if not broker.answers),
        state=state.state,
        members=state.members,
        consume_type=state.online.consume_type if state.online is not None else "",
        message_model=state.online.message_model if state.online is not None else "",
        topics=tuple(sorted(topics)),
        lag=state.lag,
        retry_lag=state.retry_lag,
        get_per_s=state.get_per_s,
        conflict=conflict,
        stuck=_stuck(group, brokers, now_s, stuck_s) if state.state == "online" else (),
        age_s=_oldest(broker.age_s(PROGRESS, now_s) for broker in brokers),
        queues=None,
        member_list=None,
        conflicts=None,
    )


def _stuck(group: str, brokers: Sequence[BrokerMemory], now_s: float, stuck_s: float) -> tuple[StuckQueue, ...]:
    found = []
    for broker in brokers:
        looks = broker.progress_of(group) if broker.answers else ()
        for progress, queue, standing_s in ((one, *still) for one in looks for still in one.stuck(now_s, stuck_s)):
            figure = progress.queues[queue]
            found.append(
                StuckQueue(
                    topic=queue.topic,
                    broker=queue.broker_name,
                    queue_id=queue.queue_id,
                    consumer_offset=figure.consumer_offset,
                    lag=lag_of(figure),
                    standing_s=standing_s,
                    client_id=None,
                )
            )
    return tuple(sorted(found, key=lambda one: (-one.standing_s, one.topic, one.broker, one.queue_id)))


def _oldest(ages_s: Iterable[float | None]) -> float | None:
    return max((age_s for age_s in ages_s if age_s is not None), default=None)
