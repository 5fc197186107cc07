"""Change the role of a broker in a test, as the assembly of a later version may."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flintmq.core.broker.role import MASTER_ID, SLAVE
from flintmq.core.broker.state import BrokerState
from flintmq.testing.embedded import EmbeddedBroker

T = TypeVar("T")


def on_loop(broker: EmbeddedBroker, work: Callable[[BrokerState], T]) -> T:
    """Call a function with the broker's state on the thread of its loop; return what it returns."""

    async def run() -> T:
        return work(broker.broker.state)

    return broker.broker.call(run)


def become_slave(broker: EmbeddedBroker) -> None:
    """Make a slave of the broker; it has no master to copy."""
    on_loop(broker, lambda state: state.role.change(SLAVE, 1))


def become_master(broker: EmbeddedBroker, kind: str = "async_master") -> None:
    """Make a master of the broker."""
    on_loop(broker, lambda state: state.role.change(kind, MASTER_ID))


def is_timed(broker: EmbeddedBroker, name: str) -> bool:
    """Return whether the broker has a timer of a name, whose work is done once by this."""
    try:
        on_loop(broker, lambda _state: broker.broker.timers.run_now(name))
    except KeyError:
        return False
    return True
