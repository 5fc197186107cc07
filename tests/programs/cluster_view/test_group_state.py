"""What a group is follows from what those brokers told that answer."""

from __future__ import annotations

import pytest

from flintmq.core.broker.conflicts import BROADCASTING, CLUSTERING
from flintmq.core.broker.topic_config import MessageQueue
from flintmq.programs.cluster_view.group_state import remembered_state
from flintmq.programs.cluster_view.memory import NOBODY, BrokerMemory, Connected
from flintmq.programs.cluster_view.progress import advance
from flintmq.programs.cluster_view.rows import broker_row
from flintmq.remoting.wire.bodies import ConsumeStats, OffsetWrapper


def broker(name: str, lag: int | None, connected: Connected | None = None, *, error: str = "") -> BrokerMemory:
    made = BrokerMemory("c", name, 0, f"{name}:1", error=error)
    if lag is not None:
        table = {
            MessageQueue(name, 0, "T"): OffsetWrapper(lag, 0, 0),
            MessageQueue(name, 0, "%RETRY%g"): OffsetWrapper(1),
        }
        made.progress["g"] = advance(None, [ConsumeStats(2.0, table)], 0.0)
    if connected is not None:
        made.connected["g"] = connected
    return made


def members(*client_ids: str, model: str = CLUSTERING) -> Connected:
    return Connected(client_ids, "CONSUME_PASSIVELY", model, "", 0.0)


ABSENT = Connected(*NOBODY, 0.0)


@pytest.mark.parametrize(
    ("brokers", "wanted"),
    [
        ([broker("a", 5, members("x")), broker("b", 7, members("x", "y"))], ("online", 2, 14, 2, 4.0)),
        ([broker("a", 5, ABSENT), broker("b", 7, ABSENT)], ("offline", 0, 14, 2, 4.0)),
        ([broker("a", 5, ABSENT), broker("b", 7, members("x"), error="gone")], ("offline", 0, 6, 1, 2.0)),
        ([broker("a", 5), broker("b", None)], ("unknown", None, 6, 1, 2.0)),
        ([broker("a", 5, members("x", model=BROADCASTING)), broker("b", 7)], ("broadcasting", 1, None, None, None)),
        ([broker("a", None, ABSENT)], ("offline", 0, None, None, None)),
        ([broker("a", 5, members("x"), error="gone")], ("unknown", None, None, None, None)),
        ([], ("unknown", None, None, None, None)),
    ],
)
def test_the_computed_state_of_a_consumer_group_ignores_brokers_that_do_not_answer(
    brokers: list[BrokerMemory], wanted: tuple[str, int | None, int | None, int | None, float | None]
) -> None:
    """A dead broker's last figures are no lag and no rate of now; broadcasting members have no lag that brokers know."""
    state = remembered_state("g", brokers)
    assert (state.state, state.members, state.lag, state.retry_lag, state.get_per_s) == wanted


def test_a_broker_that_does_not_answer_has_no_put_rate_and_no_get_rate_and_no_put_latency() -> None:
    """Its last figures were those of a load that nobody serves now; what it stores is there all the same."""
    one = broker("a", None)
    one.info = {"putTps": "47.0 0 0", "getTransferedTps": "9.0 0 0", "putLatency99": "0.4", "commitLogMaxOffset": "10"}
    row = broker_row(one, 0.0, ())
    assert (row.put_per_s, row.get_per_s, row.put_latency_99_ms) == (47.0, 9.0, 0.4)
    one.error = "gone"
    row = broker_row(one, 0.0, ())
    assert (row.put_per_s, row.get_per_s, row.put_latency_99_ms) == (None, None, None)
    assert row.commit_log_bytes == 10
    one.error, one.is_registered = "", False
    assert broker_row(one, 0.0, ()).put_per_s is None
