"""The last minutes are kept in bounded memory, whatever is looked at and however long."""

from __future__ import annotations

from flintmq.core.broker.groups import SubscriptionGroupConfig
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cluster_view.history import EVERY_S, GROUPS_MAX, SPAN_S, History
from flintmq.programs.cluster_view.memory import BrokerMemory
from flintmq.programs.cluster_view.progress import advance
from flintmq.remoting.wire.bodies import ConsumeStats, OffsetWrapper

MOST = int(SPAN_S / EVERY_S) + 1


def broker(name: str, broker_id: int = 0, *, put: float = 0.0, latency: str = "", lag: int = 0) -> BrokerMemory:
    """A broker with two groups, of which that of the system does not count."""
    made = BrokerMemory("c", name, broker_id, f"{name}:1")
    made.info = {
        "putTps": f"{put} 0 0",
        "getTransferedTps": "2.0 0 0",
        **({"putLatency99": latency} if latency else {}),
    }
    for group in ("g", "CID_RMQ_SYS_x"):
        made.groups = {**made.groups, group: SubscriptionGroupConfig(group_name=group)}
        table = {MessageQueue(name, 0, "T"): OffsetWrapper(broker_queue_offset=lag, consumer_offset=0)}
        made.progress[group] = advance(None, [ConsumeStats(consume_tps=3.0, offset_table=table)], 0.0)
    return made


def test_a_history_sample_has_the_summed_rates_of_all_masters_and_their_highest_latency() -> None:
    """A slave sends what its master counted already, and a broker that is away tells nothing new."""
    history, away = History(), broker("c", put=99.0, lag=99)
    away.error = "gone"
    master, slave, other = broker("a", put=5.0, latency="0.4", lag=7), broker("a", 1, put=5.0), broker("b", put=1.0)
    history.watch("g")
    history.note(10.0, [master, slave, other, away], [master, other, away])
    (sample,) = history.cluster()
    assert (sample.put_per_s, sample.get_per_s, sample.lag, sample.put_latency_99_ms) == (6.0, 6.0, 7, 0.4)
    (of_group,) = history.group("g")
    assert (of_group.get_per_s, of_group.lag, of_group.put_per_s) == (6.0, 7, None)
    assert history.group("other") == ()


def test_all_values_of_a_history_sample_are_none_if_no_broker_answers() -> None:
    """While nobody answers."""
    history, away = History(), broker("a", put=9.0, lag=9)
    away.error = "gone"
    history.watch("g")
    history.note(1.0, [away], [away])
    for samples in (history.cluster(), history.group("g")):
        (sample,) = samples
        assert (sample.put_per_s, sample.get_per_s, sample.lag, sample.put_latency_99_ms) == (None, None, None, None)


def test_the_history_takes_samples_at_a_fixed_interval_and_keeps_a_limited_number_of_samples() -> None:
    """However often a page asks; ten minutes at most; and of groups those that somebody looked at lately."""
    history, one = History(), broker("a", put=1.0)
    for number in range(GROUPS_MAX + 5):
        history.watch(f"g{number}")
    for number in range(5 * MOST):
        history.note(number * EVERY_S / 2, [one], [one])
    samples = history.cluster()
    assert len(samples) == MOST
    assert samples[-1].at_s - samples[0].at_s == SPAN_S
    assert history.group("g0") == ()
    assert len(history.group("g5")) == MOST
    history.note(samples[-1].at_s + SPAN_S + 1, [one], [one])
    assert len(history.cluster()) == 1
