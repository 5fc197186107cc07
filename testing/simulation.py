"""Runs brokers, name servers and clients in one thread. A seed decides the order of callbacks, the delays of the network and
the random numbers.

::

    simulation = Simulation(Choices(seed=7))
    simulation.run(main())     # the same seed gives the same run

Pass ``clock=simulation.clock`` to each broker, name server and client, and a
:class:`~flintmq.testing.simulated_disk.SimulatedDisk` to each broker. Brokers and name servers use the simulated network
automatically. Set ``listen.loop_blocked_warn_ms`` to 0, because the check for a blocked loop uses a real thread.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from flintmq.core.io import chance, lazy_numpy
from flintmq.remoting.wire.command import opaques_from_one
from flintmq.testing.choices import Choices
from flintmq.testing.seeded_loop import SeededClock, SeededLoop
from flintmq.testing.simulated_network import SimulatedNetwork

T = TypeVar("T")


class Simulation:
    """One run of a simulation of brokers, name servers and clients. Not thread-safe.

    Two runs with the same choices are equal in the same process, and in two processes with the same ``PYTHONHASHSEED``. Only
    the process number in the ids of messages differs.

    Args:
        choices: the source of all decisions.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        """Source of the decisions of the simulation's run. The attribute ``made`` of this object is the trace of the run."""
        self.loop = SeededLoop(choices)
        self.clock = SeededClock(self.loop)
        self.network = SimulatedNetwork(self.loop)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return the coroutine's result. Exceptions of :meth:`.SeededLoop.run` are passed
        on."""
        # numpy is loaded before the simulated run, because the seed does not determine when a thread would load numpy.
        lazy_numpy.load()
        with chance.decided_by(random.Random(self.choices.seed)), opaques_from_one():
            return self.loop.run(main)
